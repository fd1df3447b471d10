"""Runs for the dashboard: real strategies on a virtual clock.

One has hostile texts alone, one has agents.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import TRAJECTORY, Case, Observation, Sign, Status
from culmen.core.event import Custom, Entry
from culmen.core.result import NoiseReport, RunResult, Score
from culmen.core.task import Evaluator, MetricGoal, Objective, Task
from culmen.core.usage import Budget, Usage
from culmen.extensions.train.plus_plus import PacevolvePlusPlus
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.store.lease import RunLock
from culmen.strategies import catalog
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.testing import landscape
from culmen.testing.virtual import simulate
from tests.gallery import Gallery, record, task

HOSTILE = (
    '<img src=x onerror="window.pwned=1">',
    "</script><script>window.pwned=1</script>",
    '"><svg onload=window.pwned=1>',
    "javascript:window.pwned=1",
    "<style>body{display:none}</style>",
    "${window.pwned=1}{{constructor.constructor('window.pwned=1')()}}",
)
EVERYTHING = " ".join(HOSTILE)


def recorded(folder: Path) -> None:
    """Finished runs of five strategies, two of them alike except for the seed."""
    budget = Budget(evaluations=160, dollars=2.0)
    for name, seed in (
        ("polca", 1),
        ("polca", 2),
        ("turboevolve", 1),
        ("map_elites", 1),
        ("gepa", 1),
    ):
        exact = name in ("turboevolve", "map_elites")
        about = task(6 if name == "gepa" else 0, deterministic=exact)
        world = Gallery(sigma=0.0 if exact else 0.05)
        record(
            folder / f"{name}-{seed}",
            catalog.make_strategy(name, {}),
            budget=budget,
            about=about,
            world=world,
            seed=seed,
        )


def hostile(folder: Path) -> Path:
    """A hostile run: every text of a candidate, a model or an evaluator tries to be markup."""
    about = Task(
        EVERYTHING,
        goal=EVERYTHING,
        seeds=({EVERYTHING: EVERYTHING},),
        objective=Objective(target=1.0),
    )
    strategy = {"path": "x:Hostile", "config": {"<b>setting</b>": EVERYTHING, "bins": 10}}
    meta = RunMeta(
        "hostile",
        about,
        strategy,
        models={EVERYTHING: EVERYTHING},
        budget=Budget(evaluations=9),
        created=1.0,
    )
    journal = SqlJournal.create(folder / "hostile", meta)
    seed = about.initial_candidates()[0]
    origin = Origin(EVERYTHING, EVERYTHING, island=0, note=EVERYTHING)
    child = Candidate.of({EVERYTHING: EVERYTHING + "\nmore"}, (seed.id,), origin)
    usage = Usage(calls=1, input_tokens=5, output_tokens=5, dollars=0.01)
    proposal = Proposal(
        (child,), EVERYTHING, EVERYTHING, EVERYTHING, usage, EVERYTHING, EVERYTHING, {EVERYTHING: 2}
    )
    note = {
        "note": "event",
        "island": 0,
        "cells": 1,
        "k": 1,
        EVERYTHING: EVERYTHING,
        "candidates": [{"id": child.id, "reward": 1.0, "features": [1.0, 2.0]}],
    }
    journal.append(
        [Entry("note", effect="seeds", body={"note": "seeds"}, result=Proposal(candidates=(seed,)))]
    )
    journal.append([Entry("state", body={"state": "running"})])
    journal.append([Entry("done", 1, "m", "propose", {"role": EVERYTHING}, proposal, 1.0)])
    journal.append([Entry("done", 2, "m", "evaluate", result=_seen(seed, 0.5), elapsed=2.0)])
    journal.append([Entry("done", 3, "m", "evaluate", result=_seen(child, 0.9), elapsed=3.0)])
    broken = Observation(
        child.id, Status.ERROR, case=EVERYTHING, reason=EVERYTHING, feedback=EVERYTHING
    )
    journal.append([Entry("done", 4, "m", "evaluate", result=broken, elapsed=4.0)])
    journal.append([Entry("note", 1, body=note, elapsed=4.5)])
    journal.append(
        [
            Entry(
                "note",
                2,
                body={"note": EVERYTHING, "ideas": [{EVERYTHING: EVERYTHING}], "x": EVERYTHING},
            )
        ]
    )
    journal.append([Entry("tell", body={"tell": "hint", "id": "1", "text": EVERYTHING})])
    tried = {
        "agent": 0,
        "n": 1,
        "candidate": child.id,
        "path": EVERYTHING,
        "score": 1.0,
        "certified": None,
    }
    journal.append(
        [
            Entry(
                "note",
                3,
                body={"note": "experiment", **tried, "status": EVERYTHING, "reason": EVERYTHING},
            )
        ]
    )
    said = Text(EVERYTHING, fault=EVERYTHING, model=EVERYTHING)
    (folder / "hostile" / "transcripts").mkdir()
    heard = json.dumps({"seconds": 1.0, "kind": EVERYTHING, "text": EVERYTHING})
    (folder / "hostile" / "transcripts" / "a00.jsonl").write_text(f"{heard}\n{EVERYTHING}\n")
    journal.append(
        [_session(1, "open", {"isolation": EVERYTHING, "version": EVERYTHING}, kind=EVERYTHING)]
    )
    journal.append([Entry("done", 20, "m", "write", {"role": "agent"}, said, 4.0)])
    journal.append([_session(1, "wait", {"reports": [EVERYTHING], "ended": EVERYTHING})])
    journal.append(
        [_session(1, "end", {"reflections": EVERYTHING, "transcript": "transcripts/a00.jsonl"})]
    )
    journal.append(
        [
            Entry(
                "state",
                body={"state": "failed", "reason": EVERYTHING, "error": EVERYTHING},
                elapsed=5.0,
            )
        ]
    )
    journal.close()
    return folder / "hostile"


FAMILY = 1_500  # candidates of `family`
PATH, CHAIN = 40, 16  # steps of its path to the best, and candidates of a chain beside it
OPERATORS = 30


def family(folder: Path) -> list[Candidate]:
    """A run of many candidates of known descent; returned are they, in order of appearance.

    The first `PATH` are the path to the best, the next `CHAIN` a chain that begins at its third; of
    the others each descends from a step of the path, and the 500th from two more. Every tenth of
    them has no score.
    """
    about = Task("circles", goal="Place the circles.", seeds=({"circles.py": "RADIUS = 0\n"},))
    meta = RunMeta(
        "family",
        about,
        {"path": "x:Polca", "config": {}},
        budget=Budget(evaluations=9),
        created=1.0,
    )
    made = [about.initial_candidates()[0]]
    for n in range(1, FAMILY):
        up = (
            made[n - 1]
            if n != PATH and n < PATH + CHAIN
            else made[2 if n == PATH else n * 7 % PATH]
        )
        further = {500: made[PATH : PATH + 2], PATH // 2: made[1:2]}.get(n, [])
        parents = (up.id, *(each.id for each in further))
        origin = Origin(f"operator {n % OPERATORS}", "small-model", island=n % 3)
        made.append(Candidate.of({"circles.py": f"RADIUS = {n}\n"}, parents, origin))
    with SqlJournal.create(folder / "family", meta) as journal:
        journal.append(
            [
                Entry(
                    "note",
                    effect="seeds",
                    body={"note": "seeds"},
                    result=Proposal(candidates=(made[0],)),
                )
            ]
        )
        journal.append([Entry("state", body={"state": "running"})])
        entries: list[Entry] = []
        for n, each in enumerate(made):
            if n:
                entries.append(
                    Entry(
                        "done",
                        2 * n,
                        "m",
                        "propose",
                        {},
                        Proposal((each,), "", "", "m", Usage()),
                        1.0 * n,
                    )
                )
            seen = Observation(each.id, Status.OK, family_score(n), seconds=0.2, trust="verified")
            if family_score(n) is None:
                seen = Observation(each.id, Status.ERROR, reason="exception", seconds=0.2)
            entries.append(Entry("done", 2 * n + 1, "m", "evaluate", result=seen, elapsed=n + 0.5))
        journal.append(entries)
        journal.append([Entry("state", body={"state": "paused"}, elapsed=FAMILY)])
    return made


def family_score(n: int) -> float | None:
    """The score of the nth candidate of `family`."""
    if n < PATH:
        return n / PATH
    return None if n % 10 == 0 and n >= PATH + CHAIN else (n * 37 % 400) / 800


def _seen(candidate: Candidate, score: float) -> Observation:
    return Observation(
        candidate.id,
        Status.OK,
        score,
        case=EVERYTHING,
        metrics={EVERYTHING: 1.0},
        feedback=EVERYTHING,
        artifacts={EVERYTHING: EVERYTHING},
        signs=(Sign(EVERYTHING, EVERYTHING, True, EVERYTHING, 3),),
    )


def agents(folder: Path) -> Path:
    """A run in which two agents had a session; the second is still at work."""
    meta = RunMeta(
        "agents",
        task(),
        {"path": "x:Cato", "config": {}},
        budget=Budget(evaluations=9),
        created=1.0,
    )
    journal = SqlJournal.create(folder / "agents", meta)
    (folder / "agents" / "transcripts").mkdir()
    (folder / "agents" / "transcripts" / "a0.txt").write_text("I read TASK.md first.")
    (folder / "secret.txt").write_text("not part of the run")
    made = [{"ticket": "t1", "path": "candidates/a00/one.py", "note": "a wider ring"}]
    changed = {
        "commit": _repository(folder / "agents"),
        "changed": ["notes/a00.md"],
        "dropped": ["evaluator.py"],
    }
    ended = {"reflections": "Corners matter.", "transcript": "transcripts/a0.txt"}
    journal.append(
        [
            Entry("state", body={"state": "running"}),
            _session(1, "open", {"isolation": "jailed", "version": "1.2"}, kind="builtin"),
            _session(2, "tool", {"text": "circles.py  TASK.md"}, tool="command"),
            _session(
                3,
                "wait",
                {"experiments": made, "reports": ["The ring is loose."], "ended": "finished"},
            ),
            _session(4, "end", ended),
            _session(5, "commit", changed),
            _session(6, "open", {"isolation": "jailed"}, agent=1, kind="builtin"),
            _session(7, "end", {"transcript": "../secret.txt"}, agent=1),
        ]
    )
    journal.close()
    return folder / "agents"


TURNS = 1_000  # of `conversation`, each of four messages


def conversation(folder: Path) -> Path:
    """A run with a session of thousands of messages, of every form.

    It is the session of the first of two agents.
    """
    meta = RunMeta(
        "conversation",
        task(),
        {"path": "x:Cato", "config": {}},
        budget=Budget(evaluations=9),
        created=1.0,
    )
    entries = [
        Entry("state", body={"state": "running"}),
        _session(1, "open", {"isolation": "jailed"}, kind="builtin"),
    ]
    usage = Usage(calls=1, input_tokens=900, output_tokens=100, dollars=0.002)
    for turn in range(1, TURNS + 1):
        call = json.dumps(
            {"tool": "write", "path": f"candidates/a00/{turn}.py", "note": "two lines\nof a note"}
        )
        said = f"Turn {turn}: I widen `RADIUS`.\n```json\n{call}\n```\n```python\ndef radius():\n    return {turn}\n```\n"  # noqa: E501
        result = {
            "score": turn,
            "log": f"first\nsecond of {turn}",
            "cases": [{"case": n, "ok": True} for n in range(3)],
        }
        output = (
            {"text": json.dumps(result)}
            if turn % 5
            else {"fault": "missing", "text": "no such file"}
        )
        made = [{"ticket": f"t{turn}", "path": f"candidates/a00/{turn}.py", "note": "wider"}]
        at = 10 * turn
        entries += [
            Entry("done", at, "m", "write", {"role": "agent"}, Text(said, usage=usage), float(at)),
            _session(at + 1, "tool", {"text": "written"}, tool="write"),
            _session(at + 2, "tool", output, tool="command"),
            _session(at + 3, "wait", {"experiments": made}),
        ]
    last = 10 * TURNS + 10
    entries += [
        _session(last, "end", {"reflections": "Corners matter."}, reason="finished"),
        _session(last + 1, "open", {"isolation": "jailed"}, agent=1, kind="builtin"),
        Entry("state", body={"state": "paused"}, elapsed=float(last + 1)),
    ]
    with SqlJournal.create(folder / "conversation", meta) as journal:
        journal.append(entries)
    return folder / "conversation"


def rollouts(folder: Path) -> Path:
    """A run in which one candidate was tried on two cases.

    One passed without a trajectory, one failed with one.
    """
    call = {"function_name": "read", "arguments": {"path": "hint.txt"}}
    heard = {"tool_calls": [call], "observation": {"results": [{"content": "42"}]}}
    steps = [
        {
            "source": "user",
            "message": "Write the answer.",
            "timestamp": "2026-01-01T00:00:00.000+00:00",
        },
        {
            "source": "agent",
            "message": "I look.",
            "reasoning_content": "It is in the hint.",
            **heard,
        },
        {
            "source": "system",
            "message": "3 events left out",
            "timestamp": "2026-01-01T00:00:03.000+00:00",
        },
    ]
    steps[1]["timestamp"] = "2026-01-01T00:00:02.000+00:00"
    trajectory = {TRAJECTORY: json.dumps({"schema_version": "ATIF-v1.7", "steps": steps})}
    about = Task(
        "rollouts",
        seeds=({"SKILL.md": "Read the hint.\n"},),
        cases=(Case("one"), Case("two", split="val")),
        evaluator=Evaluator(form="rollout"),
    )
    made = about.initial_candidates()[0]
    failed = Observation(
        made.id,
        Status.OK,
        0.0,
        case="two",
        feedback="the answer is wrong",
        artifacts=trajectory,
        seconds=3.0,
    )
    meta = RunMeta(
        "rollouts",
        about,
        {"path": "x:Gated", "config": {}},
        budget=Budget(evaluations=9),
        created=1.0,
    )
    with SqlJournal.create(folder / "rollouts", meta) as journal:
        journal.append(
            [
                Entry(
                    "note",
                    effect="seeds",
                    body={"note": "seeds"},
                    result=Proposal(candidates=(made,)),
                )
            ]
        )
        passed = Observation(made.id, Status.OK, 1.0, case="one", seconds=2.0)
        journal.append([Entry("done", 1, "m", "evaluate", result=passed, elapsed=1.0)])
        journal.append([Entry("done", 2, "m", "evaluate", result=failed, elapsed=2.0)])
        journal.append([Entry("state", body={"state": "paused"}, elapsed=3.0)])
    return folder / "rollouts"


def _repository(run: Path) -> str:
    """The shared repository with one commit, whose id is returned."""
    tree, bare = run / "tree", run / "control" / "repo.git"
    git = ["git", "-c", "user.name=agent", "-c", "user.email=agent@localhost"]
    subprocess.run([*git, "init", "--quiet", tree], check=True)
    (tree / "notes").mkdir()
    (tree / "notes" / "a00.md").write_text("Corners <b>matter</b>.\n")
    subprocess.run([*git, "-C", tree, "add", "notes"], check=True)
    subprocess.run([*git, "-C", tree, "commit", "--quiet", "-m", "agent 0"], check=True)
    subprocess.run([*git, "clone", "--quiet", "--bare", tree, bare], check=True)
    named = subprocess.run(
        [*git, "-C", tree, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    )
    return named.stdout.strip()


def _session(key: int, step: str, data: dict[str, Any], agent: int = 0, **about: str) -> Entry:
    result = Custom(data, Usage(calls=1, input_tokens=100, output_tokens=20, dollars=0.01))
    return Entry(
        "done", key, "m", f"session.{step}", {"agent": agent, **about}, result, elapsed=float(key)
    )


def empty(folder: Path) -> Path:
    """A run that was made and never begun."""
    SqlJournal.create(
        folder / "empty", RunMeta("empty", task(), {"path": "x:Polca", "config": {}}, created=1.0)
    ).close()
    return folder / "empty"


def advisors(folder: Path) -> None:
    """Searches by ideas: `pace`, and `advisor`, whose policy is trained.

    Its world trains nothing.
    """
    plus = PacevolvePlusPlus(scaffold=Pacevolve(islands=4), worst=0.0, best=1.0)
    about, budget = landscape.task(), Budget(evaluations=60)
    for name, strategy in (("pace", Pacevolve(islands=3)), ("advisor", plus)):
        meta = RunMeta(name, about, catalog.strategy_config(strategy), budget=budget, created=1.0)
        with SqlJournal.create(folder / name, meta) as journal:
            simulate(
                strategy, about, landscape.Landscape(), budget, seed=1, workers=4, journal=journal
            )


# Runs that end, or stand, in every way: what the first screen says of each is known.

_FAILURE = """Traceback (most recent call last):
  File "/home/ada/circles/evaluate.py", line 12, in evaluate
    return radii["sum"]
KeyError: '<b>sum</b>'
"""
_EXACT = NoiseReport(True)


def verdicts(folder: Path) -> dict[str, Path]:
    """One run for each kind of end and result; `running` is held by this process."""
    noisy = NoiseReport(False, 0.1, 5)
    made = {
        "better": ended(
            folder / "better", [0.75, 0.9, 1.0], winner={"gain_margin": 0.0, "noise": _EXACT}
        ),
        "spent": ended(
            folder / "spent", [0.75, 0.9], reason="evaluations", known=1.0, winner={"noise": _EXACT}
        ),
        "within": ended(
            folder / "within",
            [0.5, 0.58],
            bounds=(0.0, 0.6),
            winner={"margin": 0.04, "gain_margin": 0.1, "noise": noisy},
        ),
        "kept": ended(folder / "kept", [0.5, 0.4], winner={"kept_initial": True, "noise": _EXACT}),
        "minimised": ended(
            folder / "minimised",
            [20.0, 12.0],
            direction="min",
            target=10.0,
            winner={"noise": _EXACT},
        ),
        "doubted": ended(
            folder / "doubted",
            [20.0, 12.0],
            direction="min",
            reports=True,
            winner={"noise": _EXACT},
        ),
        "crossing-zero-with-a-name-of-some-length": ended(
            folder / "crossing-zero-with-a-name-of-some-length",
            [-1.0, 3.0],
            winner={"noise": _EXACT},
        ),
        "flaky": ended(
            folder / "flaky", [0.5, 0.8], winner={"failures": 2, "count": 12, "noise": _EXACT}
        ),
        "stopped": ended(folder / "stopped", [0.5, 0.8], reason="user", winner={"noise": _EXACT}),
        "failed": ended(folder / "failed", [], reason="initial_fails"),
        "broken": ended(
            folder / "broken", [0.5, 0.8], state="failed", error="the disk <i>broke</i>"
        ),
        "paused": ended(folder / "paused", [0.5, 0.8], state="paused"),
        "interrupted": ended(folder / "interrupted", [0.5, 0.8], state=""),
        "running": ended(folder / "running", [0.5, 0.8], state=""),
        "begun": ended(folder / "begun", None, state=""),
        "several": ended(folder / "several", [0.5, 0.8, 0.7], state="paused", metrics=True),
    }
    _HELD.extend(RunLock.acquire(made[name]) for name in ("running", "begun"))
    return made


_HELD: list[RunLock] = []  # locks of runs that seem to go on, until the tests end


def ended(
    path: Path,
    scores: list[float] | None,
    *,
    state: str = "finished",
    reason: str = "strategy_done",
    error: str = "",
    winner: dict[str, Any] | None = None,
    metrics: bool = False,
    reports: bool = False,
    **objective: Any,
) -> Path:
    """A run whose first candidate is the initial program.

    Without scores it fails, with None nothing was tried.

    With `metrics` it has two objectives; with `reports` evaluations report the same metrics
    beside the score.
    """
    goals = (MetricGoal("accuracy"), MetricGoal("latency", "min")) if metrics else ()
    aim = Objective(**objective, metrics=goals)
    about = Task(
        "circles", goal="Place the circles.", seeds=({"circles.py": "RADIUS = 1\n"},), objective=aim
    )
    meta = RunMeta(
        path.name,
        about,
        {"path": "x:Polca", "config": {}},
        budget=Budget(evaluations=9),
        created=1_760_000_000.0,
    )
    tried = [about.initial_candidates()[0]]
    for n in range(1, len(scores or ())):
        origin = Origin("rewrite", "small-model", n)
        tried.append(Candidate.of({"circles.py": f"RADIUS = {n + 1}\n"}, (tried[0].id,), origin))
    usage = Usage(calls=1, input_tokens=900, output_tokens=300, dollars=0.0031)
    with SqlJournal.create(path, meta) as journal:
        journal.append(
            [
                Entry(
                    "note",
                    effect="seeds",
                    body={"note": "seeds"},
                    result=Proposal(candidates=(tried[0],)),
                )
            ]
        )
        journal.append([Entry("state", body={"state": "running"})])
        for n, each in enumerate(tried if scores is not None else ()):
            if n:
                made = Proposal((each,), "", "", "small-model", usage)
                journal.append([Entry("done", 2 * n, "m", "propose", {}, made, 10.0 * n)])
            seen = _measured(each, scores[n] if scores else None, n, metrics or reports)
            journal.append(
                [Entry("done", 2 * n + 1, "m", "evaluate", result=seen, elapsed=10.0 * n + 5)]
            )
        if state:
            body: dict[str, Any] = {"state": state, "reason": reason, "error": error}
            if winner is not None and scores:
                body["winner"] = msgspec.to_builtins(_winner(tried, scores, aim, winner))
            journal.append([Entry("state", body=body, elapsed=10.0 * len(tried))])
    return path


def _measured(candidate: Candidate, score: float | None, n: int, metrics: bool) -> Observation:
    if score is None:
        return Observation(
            candidate.id, Status.ERROR, reason="exception", feedback=_FAILURE, seconds=0.2
        )
    told = {"accuracy": score, "latency": 3.0 + n} if metrics else {}
    return Observation(candidate.id, Status.OK, score, metrics=told, seconds=0.2, trust="verified")


def _winner(
    tried: list[Candidate], scores: list[float], aim: Objective, fields: dict[str, Any]
) -> RunResult:
    """The reported result: the last candidate beside the initial program.

    Both are on the same evaluations.
    """
    kept = bool(fields.get("kept_initial"))
    last = Score(tried[-1].id, scores[-1], 3, 0.0, fields.get("margin", 0.0))
    given: dict[str, Any] = {
        "id": tried[0 if kept else -1].id,
        "score": scores[0 if kept else -1],
        "count": 3,
        "margin": 0.0,
        "confirmed": True,
        "verified": True,
        "trust": "verified",
        "direction": aim.direction,
        "initial": Score(tried[0].id, scores[0], 3, 0.0, fields.get("margin", 0.0)),
        "gain": scores[-1] - scores[0],
        "gain_margin": 0.0,
        "challenger": last if kept else None,
        "evaluations": len(scores),
    }
    return RunResult(**{**given, **fields})
