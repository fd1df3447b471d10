"""Spans of a rollout: its trajectory (ATIF) after the conventions for spans of agents.

The conventions: github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai. Messages and
arguments of tools are left out, as are steps of embedded sub-agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from culmen.core.evaluation import TRAJECTORY, Observation
from culmen.core.json import JsonObject

_ROLE = "agent"


class RolloutSpan(msgspec.Struct, frozen=True):
    """One span; times are Unix seconds.

    `inner` is True for the spans of what the agent did, below that of its invocation. `calls` is
    True for a call of a model.
    """

    name: str
    start: float
    end: float
    attributes: JsonObject
    inner: bool = True
    calls: bool = False


def rollout_spans(seen: Observation, start: float, end: float) -> list[RolloutSpan]:
    """The spans of an evaluation's trajectory, the agent's invocation first; [] without one.

    All of them lie within the evaluation's `start` and `end`.
    """
    trajectory = _trajectory(seen)
    if trajectory is None:
        return []
    agent: JsonObject = trajectory["agent"]
    name, asked = str(agent.get("name", "")), next((a for a in seen.asked if a.role == _ROLE), None)
    provider, _, model = (asked.model if asked else "").rpartition("/")
    model = model or str(agent.get("model_name") or "")
    common = {"gen_ai.provider.name": provider or name or "unknown"}
    common |= {"gen_ai.agent.name": name} if name else {}
    named = {"gen_ai.request.model": model} if model else {}
    steps = list(_timed_steps(trajectory["steps"], start, end))
    root = RolloutSpan(
        f"invoke_agent {name}".strip(),
        steps[0][1],
        end,
        {"gen_ai.operation.name": "invoke_agent", **common, **named, **_facts(trajectory)},
        inner=False,
    )
    return [root, *(span for step in steps for span in _step_spans(*step, model, common))]


def _trajectory(seen: Observation) -> JsonObject | None:
    """The trajectory of an observation; None without one, or if it was cut short."""
    try:
        found: object = msgspec.json.decode(seen.artifacts.get(TRAJECTORY, "null"))
    except msgspec.DecodeError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("agent"), dict):
        return None
    steps = found.get("steps")
    is_list = isinstance(steps, list) and all(isinstance(step, dict) for step in steps)
    return found if is_list and steps else None


def _facts(trajectory: JsonObject) -> JsonObject:
    """Attributes of the whole invocation: version, session and tokens, if they are known."""
    totals = trajectory.get("final_metrics")
    return {
        **_text("gen_ai.agent.version", trajectory["agent"].get("version")),
        **_text("gen_ai.conversation.id", trajectory.get("session_id")),
        **_tokens(totals, "total_prompt_tokens", "total_completion_tokens"),
    }


def _text(name: str, value: object) -> JsonObject:
    return {name: value} if isinstance(value, str) and value not in ("", "unknown") else {}


def _tokens(found: object, read: str, written: str) -> JsonObject:
    names = {"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": written}
    values = (
        {name: found.get(key) for name, key in names.items()} if isinstance(found, dict) else {}
    )
    return {name: value for name, value in values.items() if isinstance(value, int) and value > 0}


def _timed_steps(
    steps: list[JsonObject], start: float, end: float
) -> Iterator[tuple[JsonObject, float, float]]:
    """Each step with its begin and end: that of the next one, or of the evaluation."""
    times, last = list[float](), start
    for step in steps:
        last = min(end, max(last, _time(step.get("timestamp"), last)))
        times.append(last)
    yield from zip(steps, times, [*times[1:], end], strict=True)


def _time(value: object, otherwise: float) -> float:
    try:
        at = datetime.fromisoformat(str(value))
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return otherwise


def _step_spans(
    step: JsonObject, start: float, end: float, model: str, common: JsonObject
) -> Iterator[RolloutSpan]:
    """The spans of one step of the agent: its turn of the model, if it has one, and its tools."""
    if step.get("source") != "agent":
        return
    own = str(step.get("model_name") or model)
    if own:
        tokens = _tokens(step.get("metrics"), "prompt_tokens", "completion_tokens")
        facts = {"gen_ai.operation.name": "chat", **common, "gen_ai.request.model": own, **tokens}
        yield RolloutSpan(f"chat {own}", start, end, facts, calls=True)
    for call in step.get("tool_calls") or ():
        if not isinstance(call, dict):
            continue
        tool = str(call.get("function_name") or "tool")
        facts = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, **common}
        facts |= _text("gen_ai.tool.call.id", call.get("tool_call_id"))
        facts["gen_ai.tool.type"] = "function"
        yield RolloutSpan(f"execute_tool {tool}", start, end, facts)
