"""Sessions: actions of agents, step by step, with the commit of each in the shared tree."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from culmen.core.brief import Text
from culmen.core.evaluation import TRAJECTORY
from culmen.core.event import Custom, Event
from culmen.core.json import JsonObject
from culmen.extensions.web.pages.added import Page
from culmen.extensions.web.runs import Digest
from culmen.store import views

_STEPS = 5_000  # of one agent
_TEXT = 20_000  # characters of one text
_SPEAKERS = {"said": "agent", "text": "agent", "thought": "agent", "tool": "tool"}
# errors of a text that is no JSON, or JSON in another form
_UNREADABLE = (msgspec.DecodeError, UnicodeEncodeError, RecursionError)
# fields of a step that are sent with its text alone
_LATER = ("text", "reports")


def sessions_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """Every agent's session and every rollout of a skill: their steps, and how they ended.

    The steps of an agent are the effects `session.*` of `messages.py`, and the lines of the
    transcript that its own program left in the run's folder; `transcript` is one in another form.
    `tried` are its experiments with scores. With `brief`, steps have only the `head` of their
    texts, their length `chars`, and, if a `text` is searched for, `found`. With `agent` and `from`,
    only the whole steps of that agent or rollout from that one on are returned, a few at a time.
    """
    run.refresh()
    agents = run.memoise_result("sessions", run.last, lambda: _read_agents(run))
    failed = params.get("rollouts") == "failed"
    rollouts = run.memoise_result(
        f"rollouts {failed}", run.last, lambda: _read_rollouts(run, failed)
    )
    if "from" in params:
        return {"steps": _whole_steps([*agents, *rollouts], params)}
    notes = [
        {"elapsed": note.elapsed, "fields": {k: v for k, v in note.body.items() if k != "note"}}
        | {"kind": note.kind}
        for note in run.notes
        if note.kind.startswith(("session", "agent"))
    ]
    return {
        "agents": _shown_steps(agents, params),
        "rollouts": _shown_steps(rollouts, params),
        "all_rollouts": run.meta.task.evaluator.form == "rollout",
        "notes": notes[-200:],
        "direction": run.meta.task.objective.direction,
    }


def _shown_steps(talks: list[JsonObject], params: Mapping[str, str]) -> list[JsonObject]:
    """The agents or rollouts with brief steps, or with the first of their whole steps."""
    if not params.get("brief"):
        # steps of one agent in a document that holds their texts
        return [each | {"steps": each["steps"][:400]} for each in talks]
    sought = params.get("text", "").lower()
    return [
        each | {"steps": [_brief_step(step, sought) for step in each["steps"]]} for each in talks
    ]


def _read_agents(run: Digest) -> list[JsonObject]:
    agents: dict[int, JsonObject] = {}
    # agents work one after another: a model's text in between belongs to the one at work
    at_work: int | None = None
    for event in _agent_events(run):
        entry = event.entry
        data = entry.result.data if isinstance(entry.result, Custom) else {}
        agent = entry.body.get("agent", 0) if entry.effect != "write" else at_work
        if not isinstance(agent, int) or agent < 0:  # below 0: evaluations before the first agent
            continue
        at_work = {"session.open": agent, "session.end": None}.get(entry.effect, at_work)
        _add_event(run, agents.setdefault(agent, _empty_agent(agent)), event, data)
    for note in run.notes:
        if note.kind == "experiment" and note.body.get("agent") in agents:
            agents[note.body["agent"]]["tried"].append(_experiment_row(note.body))
    return [agents[number] for number in sorted(agents)]


def _whole_steps(talks: list[JsonObject], params: Mapping[str, str]) -> list[JsonObject]:
    start = int(params["from"]) if params["from"].isdecimal() else 0
    return [
        step
        for each in talks
        if str(each["agent"]) == params.get("agent")
        for step in each["steps"][start : start + 20]  # steps whose texts are sent at once
    ]


def _brief_step(step: JsonObject, sought: str) -> JsonObject:
    """A step without its texts and without fields that are empty."""
    said = "\n".join([*step["reports"], step["text"]])
    brief = {name: value for name, value in step.items() if name not in _LATER and value}
    brief["chars"] = len(said)
    if sought:
        words = [said, step["about"], step["fault"], step["ended"]]
        words += [each[name] for each in step["experiments"] for name in ("path", "note")]
        brief["found"] = any(sought in str(word).lower() for word in words)
    return brief


def _read_rollouts(run: Digest, failed: bool) -> list[JsonObject]:
    """The newest rollouts of a skill, with their steps; failures alone if `failed`."""
    if run.meta.task.evaluator.form != "rollout":
        return []
    splits = {case.id: case.split for case in run.meta.task.cases}
    rows = [
        {
            "agent": f"rollout-{seq}",
            "candidate": seen.candidate,
            "case": seen.case,
            "split": splits.get(seen.case, ""),
            "status": seen.status.value,
            "reason": seen.reason,
            "score": seen.score,
            "seconds": seen.seconds,
            "tokens": seen.usage.tokens,
            "feedback": _cut_text(seen.feedback),
            "steps": _trajectory_steps(seen.artifacts.get(TRAJECTORY, "")),
        }
        # rollouts of a skill
        for seq, seen in views.newest_observations(run.run, 40, 1.0 if failed else None)
    ]
    return [row | {"count": len(row["steps"]), "tried": []} for row in rows]


class _Trajectory(msgspec.Struct):
    """The part of a trajectory (`rollouts.trajectory`) that is shown."""

    steps: list[JsonObject] = []


def _trajectory_steps(text: str) -> list[JsonObject]:
    """The steps of a trajectory, one for each text in it; none of one that was cut off."""
    try:
        steps = msgspec.json.decode(text or "{}", type=_Trajectory).steps[:_STEPS]
    except _UNREADABLE:
        return []
    times = [_timestamp_seconds(step) for step in steps]
    return [
        _text_step(f"{number}.{place}", max(0.0, at - times[0]), *piece)
        for number, (step, at) in enumerate(zip(steps, times, strict=True), 1)
        for place, piece in enumerate(_trajectory_texts(step))
    ]


def _timestamp_seconds(step: JsonObject) -> float:
    try:
        return datetime.fromisoformat(str(step.get("timestamp"))).timestamp()
    except ValueError:
        return 0.0


def _trajectory_texts(step: JsonObject) -> Iterator[tuple[str, str, str, str]]:
    """Kind, speaker, tool and text of each text of a step, in order."""
    source = str(step.get("source", ""))
    if step.get("reasoning_content"):
        yield "thought", source, "", _text_of(step["reasoning_content"])
    if step.get("message"):
        yield "said", source, "", _text_of(step["message"])
    for call in _rows_of(step.get("tool_calls")):
        arguments = call.get("arguments")
        if isinstance(arguments, dict) and isinstance(arguments.get("text"), str):
            arguments = arguments["text"]
        yield "tool", "tool", str(call.get("function_name", "")), _text_of(arguments or "")
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    for result in _rows_of(results):
        yield "result", "tool", "", _text_of(result.get("content") or "")


def _rows_of(value: object) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _agent_events(run: Digest) -> list[Event]:
    """Events of agents and of their models, in order."""
    session_events = views.effect_results(run.run, "session.")
    replies = views.effect_results(run.run, "write") if session_events else []
    return sorted(
        [*session_events, *(event for event in replies if event.entry.body.get("role") == "agent")],
        key=lambda each: each.seq,
    )


def _experiment_row(body: JsonObject) -> JsonObject:
    names = ("n", "candidate", "path", "score", "certified", "status", "reason")
    return {name: body.get(name) for name in names}


def _empty_agent(agent: int) -> JsonObject:
    return {
        "agent": agent,
        "kind": "",
        "isolation": "",
        "version": "",
        "steps": [],
        "count": 0,
        "experiments": 0,
        "tried": [],
        "ended": "",
        "reflections": "",
        "notes": "",
        "transcript": "",
        "commit": None,
        "diff": "",
        "tokens": 0,
        "dollars": 0.0,
    }


def _add_event(run: Digest, agent: JsonObject, event: Event, data: JsonObject) -> None:
    entry = event.entry
    step = entry.effect.partition(".")[2] or "said"
    usage = getattr(entry.result, "usage", None)
    if usage is not None:
        agent["tokens"] += usage.tokens
        agent["dollars"] += usage.dollars
    agent["count"] += 1
    agent["kind"] = agent["kind"] or str(entry.body.get("kind", ""))
    agent["experiments"] += len(data.get("experiments") or ())
    if step == "open":
        agent |= {name: data.get(name, "") for name in ("isolation", "version")}
    if step == "wait" and data.get("ended"):
        agent["ended"] = data["ended"]
    if step == "end":
        agent |= {name: _cut_text(str(data.get(name, ""))) for name in ("reflections", "notes")}
        agent["ended"] = agent["ended"] or str(entry.body.get("reason", ""))
        _add_transcript(agent, run.run, str(data.get("transcript", "")))
    if step == "commit":
        agent["commit"] = {
            name: data.get(name) for name in ("commit", "trunk", "changed", "dropped", "conflicts")
        }
        agent["diff"] = run.memoise_result(
            f"diff {agent['agent']}",
            event.seq,
            lambda: _commit_diff(run.run, str(data.get("commit", ""))),
        )
    if len(agent["steps"]) < _STEPS:
        agent["steps"].append(
            {
                "seq": event.seq,
                "elapsed": entry.elapsed,
                "step": step,
                "speaker": _SPEAKERS.get(step, "culmen"),
                "about": _step_description(entry.body, data),
                "dollars": usage.dollars if usage is not None else 0.0,
                **_step_results(entry.result, data),
            }
        )


def _step_description(body: JsonObject, data: JsonObject) -> str:
    closing = f"while closing: {body['closing']}" if body.get("closing") else ""
    named = [body.get("tool"), body.get("reason"), data.get("isolation"), closing]
    return " ".join(str(each) for each in named if each)


def _text_step(
    seq: str, elapsed: float, kind: str, speaker: str, about: str, text: str
) -> JsonObject:
    """A step that is a text alone."""
    return {
        "seq": seq,
        "elapsed": elapsed,
        "step": kind,
        "speaker": speaker,
        "about": about,
        "dollars": 0.0,
        **_step_results(Text(text), {}),
    }


def _step_results(result: object, data: JsonObject) -> JsonObject:
    """The results of a step as texts for display."""
    experiments = [
        {name: each.get(name, "") for name in ("ticket", "path", "note", "fault")}
        for each in data.get("experiments") or ()
        if isinstance(each, dict)
    ]
    text = _cut_text(result.text if isinstance(result, Text) else str(data.get("text", "")))
    reports = [_cut_text(str(each)) for each in data.get("reports") or ()]
    return {
        "head": _head_line("\n".join([*reports, text])),
        "text": text,
        "fault": result.fault if isinstance(result, Text) else str(data.get("fault", "")),
        "reports": reports,
        "experiments": experiments,
        "changed": list(data.get("changed") or ()),
        "ended": str(data.get("ended", "")),
    }


def _head_line(text: str) -> str:
    """The first line of a text without marks of a block of code; of a JSON object its fields."""
    text = re.sub(r"^\s*```\w*\n", "", text).strip()
    fields: dict[str, object] = {}
    if text[:1] == "{":
        with contextlib.suppress(*_UNREADABLE):
            fields = msgspec.json.decode(text.removesuffix("```"), type=dict[str, object])
    shown = {
        name: f"{len(value)} entries" if isinstance(value, dict | list) else str(value)
        for name, value in fields.items()
    }
    line = ", ".join(f"{name}: {' '.join(value.split())}" for name, value in shown.items())
    # characters of a text that is sent without being asked for
    return (line or text.partition("\n")[0])[:160]


def _cut_text(text: str, max_characters: int = _TEXT) -> str:
    return text if len(text) <= max_characters else text[:max_characters] + "\n..."


def _commit_diff(run: Path, commit: str) -> str:
    """The diff of a commit of the shared repository; "" without git or such a commit.

    No program that the repository may name is run: neither diff drivers nor text converters nor
    hooks.
    """
    repository, git = run / "control" / "repo.git", shutil.which("git")
    if git is None or not repository.is_dir() or not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        return ""
    command = [
        git,
        "-c",
        "core.fsmonitor=false",
        f"--git-dir={repository}",
        "show",
        "--format=",
        "--no-color",
    ]
    environment = {
        "PATH": os.defpath,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "LC_ALL": "C",
    }
    try:
        shown = subprocess.run(
            [*command, "--no-ext-diff", "--no-textconv", commit, "--"],
            env=environment,
            check=False,
            capture_output=True,
            timeout=10.0,  # seconds that git may take
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (
        _cut_text(shown.stdout[: 10 * _TEXT].decode("utf-8", "replace"), 5 * _TEXT)
        if shown.returncode == 0
        else ""
    )


def _add_transcript(agent: JsonObject, run: Path, name: str) -> None:
    """Add the transcript of the agent's program: as steps at their times, or as one text."""
    path, text = _read_file(run, name)
    if path is None:
        return
    if path.suffix != ".jsonl":
        agent["transcript"] = _cut_text(text)
        return
    began = next((step["elapsed"] for step in agent["steps"] if step["step"] == "open"), 0.0)
    steps: list[JsonObject] = []
    row = _Heard(0.0, "", "")
    for number, line in enumerate(filter(str.strip, text.splitlines())):
        row = _transcript_row(line) or _Heard(row.seconds, "line", line)  # torn, or another form
        speaker = _SPEAKERS.get(row.kind, "program")
        name = f"program-{number}"
        steps.append(_text_step(name, began + row.seconds, row.kind, speaker, "", row.text))
    agent["count"] += len(steps)
    agent["steps"] = sorted(agent["steps"] + steps, key=lambda step: step["elapsed"])[:_STEPS]


def _read_file(run: Path, name: str) -> tuple[Path | None, str]:
    """A file inside the run's folder and its text; (None, "") for anything else."""
    path, root = (run / name).resolve(), run.resolve()
    if not name or root not in path.parents or not path.is_file():
        return None, ""
    with path.open("rb") as file:
        return path, file.read(4_000_000).decode("utf-8", "replace")  # bytes read of a transcript


def _transcript_row(line: str) -> _Heard | None:
    """A line of an agent's program; None if it is in another form."""
    try:
        return msgspec.json.decode(line, type=_Heard)
    except _UNREADABLE:
        return None


class _Heard(msgspec.Struct):
    """A line in the form that `sandbox.process` writes."""

    seconds: float
    kind: str
    text: str


SESSIONS = Page("Sessions", sessions_page)
