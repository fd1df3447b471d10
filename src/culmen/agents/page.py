"""Sessions: actions of agents, step by step, with the commit of each in the shared tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from culmen.core.brief import Text
from culmen.core.evaluation import TRAJECTORY
from culmen.core.event import Custom, Event
from culmen.core.json import JsonObject
from culmen.observe.figures import clock_text
from culmen.store import views
from culmen.web.pages.added import Page
from culmen.web.runs import Digest

_STEPS = 400  # of one agent
_ROLLOUTS = 40  # of a skill
_TEXT = 20_000  # characters of one text
_WAIT = 10.0  # seconds that git may take


def sessions_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """Every agent's session: its steps, reports, experiments, end and merge.

    These are the effects `session.*` of agents/messages.py. `transcript` is the text that the
    agent's own program left in the run's folder, if any; that of a built-in agent is among its
    steps, as texts of its model and results of its tools. `tried` are its experiments with scores.
    """
    run.refresh()
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
    notes = [
        {"elapsed": note.elapsed, "fields": {k: v for k, v in note.body.items() if k != "note"}}
        | {"kind": note.kind}
        for note in run.notes
        if note.kind.startswith(("session", "agent"))
    ]
    direction = run.meta.task.objective.direction
    return {
        "agents": [agents[number] for number in sorted(agents)],
        "rollouts": _rollout_rows(run, params),
        "all_rollouts": run.meta.task.evaluator.form == "rollout",
        "notes": notes[-200:],
        "direction": direction,
    }


def _rollout_rows(run: Digest, params: Mapping[str, str]) -> list[JsonObject]:
    """The newest rollouts of a skill with their steps; with `rollouts` = failed, failures alone."""
    if run.meta.task.evaluator.form != "rollout":
        return []
    failed = 1.0 if params.get("rollouts") == "failed" else None
    splits = {case.id: case.split for case in run.meta.task.cases}
    return [
        {
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
        for seen in views.newest_observations(run.run, _ROLLOUTS, failed)
    ]


def _trajectory_steps(text: str) -> list[JsonObject]:
    """The steps of a trajectory as texts; none of one that was cut off."""
    try:
        steps = msgspec.json.decode(text or "{}").get("steps", [])
    except msgspec.DecodeError:
        return []
    return [
        {
            "source": str(step.get("source", "")),
            "text": _cut_text(str(step.get("message") or "")),
            "thought": _cut_text(str(step.get("reasoning_content") or "")),
            "calls": [
                f"{call.get('function_name', '')} {_arguments_text(call.get('arguments'))}"
                for call in step.get("tool_calls") or ()
                if isinstance(call, dict)
            ],
        }
        for step in steps[:_STEPS]
        if isinstance(step, dict)
    ]


def _arguments_text(arguments: object) -> str:
    if isinstance(arguments, dict) and isinstance(arguments.get("text"), str):
        return _cut_text(arguments["text"], 2_000)
    return _cut_text(msgspec.json.encode(arguments).decode(), 2_000)


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
        agent["transcript"] = _read_transcript(run.run, str(data.get("transcript", "")))
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
                "about": _step_description(entry.body),
                **_step_results(entry.result, data),
            }
        )


def _step_description(body: JsonObject) -> str:
    closing = f"while closing: {body['closing']}" if body.get("closing") else ""
    return " ".join(
        filter(None, (str(body.get("tool") or ""), str(body.get("reason") or ""), closing))
    )


def _step_results(result: object, data: JsonObject) -> JsonObject:
    """The results of a step as texts for display."""
    experiments = [
        {name: each.get(name, "") for name in ("ticket", "path", "note", "fault")}
        for each in data.get("experiments") or ()
        if isinstance(each, dict)
    ]
    return {
        "text": _cut_text(result.text if isinstance(result, Text) else str(data.get("text", ""))),
        "fault": result.fault if isinstance(result, Text) else str(data.get("fault", "")),
        "reports": [_cut_text(str(each)) for each in data.get("reports") or ()],
        "experiments": experiments,
        "changed": list(data.get("changed") or ()),
        "ended": str(data.get("ended", "")),
    }


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
            timeout=_WAIT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (
        _cut_text(shown.stdout[: 10 * _TEXT].decode("utf-8", "replace"), 5 * _TEXT)
        if shown.returncode == 0
        else ""
    )


def _read_transcript(run: Path, name: str) -> str:
    """The text of a file inside the run's folder; "" for anything else."""
    if not name:
        return ""
    path, root = (run / name).resolve(), run.resolve()
    if root not in path.parents or not path.is_file():
        return ""
    with path.open("rb") as file:
        text = file.read(4 * _TEXT).decode("utf-8", "replace")
    return _cut_text(
        "\n".join(map(_transcript_line, text.splitlines())) if path.suffix == ".jsonl" else text
    )


def _transcript_line(line: str) -> str:
    """One line of an agent's program as `0:07 KIND: TEXT`; any other line unchanged."""
    try:
        row = msgspec.json.decode(line, type=_Heard)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return line
    return f"{clock_text(row.seconds)} {row.kind}: {row.text}"


class _Heard(msgspec.Struct):
    """A line in the form that `sessions.hosting` writes."""

    seconds: float
    kind: str
    text: str


SESSIONS = Page("Sessions", sessions_page)
