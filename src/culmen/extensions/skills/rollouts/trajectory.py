"""Trajectories of rollouts in the Agent Trajectory Interchange Format (ATIF v1.7).

An agent may leave one as /logs/agent/trajectory.json; of any other, the events of its program are
put into that form. The format: harborframework.com/docs/agents/trajectory-format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from culmen.core.foreign import boundary
from culmen.core.json import JsonObject
from culmen.core.usage import Usage

VERSION = "ATIF-v1.7"
FILE = "trajectory.json"
LONGEST = 256 * 1024  # bytes of a trajectory that is kept
_STEPS = 400  # events that are kept of a long rollout: its beginning and its end
_SHOWN_STEPS, _SHOWN_TEXT = 10, 240  # of a trajectory in a model's prompt


class ProgramRow(msgspec.Struct):
    """A line of the record of a program's events (`sandbox.process`)."""

    seconds: float
    kind: str
    text: str


def read_rows(file: Path) -> list[ProgramRow]:
    """The recorded events; lines that cannot be read are left out."""
    rows: list[ProgramRow] = []
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return rows
    for line in lines:
        try:
            rows.append(msgspec.json.decode(line, type=ProgramRow))
        except msgspec.DecodeError:
            continue
    return rows


def build_trajectory(
    agent: JsonObject, instruction: str, rows: Sequence[ProgramRow], started: float, usage: Usage
) -> JsonObject:
    """The trajectory of a program's events.

    `agent` has name, version and perhaps model_name; `started` is the Unix time of the start.
    """
    steps: list[JsonObject] = [{"source": "user", "message": instruction, "seconds": 0.0}]
    for row in _with_gap(rows):
        _add_event(steps, row)
    for number, step in enumerate(steps, 1):
        at = datetime.fromtimestamp(started + step.pop("seconds"), UTC)
        step |= {"step_id": number, "timestamp": at.isoformat(timespec="milliseconds")}
    return {
        "schema_version": VERSION,
        "agent": agent,
        "steps": steps,
        "final_metrics": {**_usage_totals(usage), "total_steps": len(steps)},
    }


def _usage_totals(usage: Usage) -> JsonObject:
    return {
        "total_prompt_tokens": usage.input_tokens,
        "total_completion_tokens": usage.output_tokens,
        "total_cost_usd": usage.dollars,
    }


def with_usage(trajectory: JsonObject, usage: Usage) -> JsonObject:
    """The final metrics of a trajectory with the measurements of the gateway."""
    claimed = trajectory.get("final_metrics")
    return {**(claimed if isinstance(claimed, dict) else {}), **_usage_totals(usage)}


def _with_gap(rows: Sequence[ProgramRow]) -> Iterable[ProgramRow]:
    kept = [row for row in rows if row.kind not in ("life", "session")]
    if len(kept) <= _STEPS:
        return kept
    half = _STEPS // 2
    gap = ProgramRow(kept[half].seconds, "trouble", f"{len(kept) - 2 * half} events left out")
    return [*kept[:half], gap, *kept[-half:]]


def _add_event(steps: list[JsonObject], row: ProgramRow) -> None:
    """Add an event to the last step of the agent, or as a new step."""
    text, last = row.text[:2_000], steps[-1]  # characters of one text
    if row.kind in ("trouble", "refused"):
        steps.append({"source": "system", "message": text, "seconds": row.seconds})
        return
    if last["source"] != "agent" or (row.kind != "tool" and "tool_calls" in last):
        last = {"source": "agent", "message": "", "seconds": row.seconds}
        steps.append(last)
    if row.kind == "tool":
        name, _, argument = text.partition(" ")
        calls = last.setdefault("tool_calls", [])
        calls.append(
            {
                "tool_call_id": f"call_{len(steps)}_{len(calls) + 1}",
                "function_name": name or "tool",
                "arguments": {"text": argument},
            }
        )
        return
    key = "reasoning_content" if row.kind == "thought" else "message"
    last[key] = f"{last.get(key, '')}\n{text}".strip()


@boundary()
def parse_trajectory(data: bytes) -> JsonObject | None:
    """A trajectory that an agent left; None if it is not one."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict) or not str(found.get("schema_version")).startswith("ATIF-v"):
        return None
    steps, agent = found.get("steps"), found.get("agent")
    right = isinstance(steps, list) and all(isinstance(step, dict) for step in steps)
    if not (right and steps and isinstance(agent, dict)):
        return None
    count_calls(found)  # these raise for steps in another form
    last_steps(found)
    return found


def last_steps(trajectory: JsonObject) -> str:
    """The last steps of the agent in few lines, for a model that is to find out what went wrong."""
    steps = [step for step in all_steps(trajectory) if step.get("source") != "user"]
    lines = [_step_line(step) for step in steps[-_SHOWN_STEPS:]]
    if left := len(steps) - len(lines):
        lines.insert(0, f"({left} earlier steps are not shown)")
    if more := trajectory.get("continued_trajectory_ref"):
        lines.append(f"(later steps, in {_short_text(more)}, are not read)")
    return "\n".join(lines)


def count_calls(trajectory: JsonObject) -> int:
    """Number of tool calls, with those of embedded sub-agents."""
    return sum(len(step.get("tool_calls") or ()) for step in all_steps(trajectory))


def all_steps(trajectory: JsonObject) -> list[JsonObject]:
    """Steps without copied context; those of an embedded sub-agent follow the reference to it."""
    agents = trajectory.get("subagent_trajectories") or ()
    embedded = {each["trajectory_id"]: each for each in agents}
    found: list[JsonObject] = []
    for step in trajectory["steps"]:
        if not step.get("is_copied_context"):
            found.append(step)
        for result in _results(step):
            for reference in result.get("subagent_trajectory_ref") or ():
                if agent := embedded.pop(reference.get("trajectory_id"), None):
                    found += all_steps(agent)
    return found + [step for agent in embedded.values() for step in all_steps(agent)]


def _results(step: JsonObject) -> list[JsonObject]:
    return (step.get("observation") or {}).get("results") or []


def _step_line(step: JsonObject) -> str:
    pieces = [_short_text(step.get("message"))]
    for call in step.get("tool_calls") or ():
        arguments = call.get("arguments") if isinstance(call, dict) else None
        named = arguments.get("text") if isinstance(arguments, dict) else None
        words = named if isinstance(named, str) else arguments
        pieces.append(f"{call.get('function_name', '')}({_short_text(words)})")
    for result in _results(step):
        pieces.append(f"-> {_short_text(result.get('content'))}")
    return f"{step.get('source', '')}: " + " ".join(filter(None, pieces))


def _short_text(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode() if value else ""
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_TEXT else f"{text[: _SHOWN_TEXT - 1]}…"
