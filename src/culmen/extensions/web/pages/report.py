"""Page one of a report: what the overview lacks to be believed and made again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from culmen.core.evaluation import meets_trust_level
from culmen.core.json import JsonObject
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget
from culmen.extensions.web.pages.trust import ISOLATION
from culmen.extensions.web.runs import Digest
from culmen.report.facts import result_facts
from culmen.report.figures import (
    count_text,
    dollars_text,
    duration_text,
    join_nonempty,
    short_path,
    traces_line,
)
from culmen.report.sentences import (
    noise_sentence,
    reported_score_text,
    run_verdict,
    say,
)
from culmen.store import views
from culmen.store.views import RunStatus


def report_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """Evidence, costs, and commands that make the result again, as pairs of texts."""
    now = views.run_status(run.run)
    return {
        "evidence": [list(pair) for pair in _evidence(now, run) if pair[1]],
        "cost": [list(pair) for pair in _costs(now) if pair[1]],
        "reproduce": [list(pair) for pair in _commands(now, run)],
        "made_with": _versions(now, run),
    }


def _evidence(now: RunStatus, run: Digest) -> list[tuple[str, str]]:
    best, objective = now.best, run.meta.task.objective
    integrity = views.run_integrity(run.run, 1)
    scored = sum(integrity.levels.values())
    trusted = sum(n for name, n in integrity.levels.items() if meets_trust_level(name, "verified"))
    signs = (
        f"{count_text(now.findings, 'candidate')} with a grave sign"
        if now.findings
        else "no grave sign in any evaluation"
    )
    facts = result_facts(run.run, now)
    return [
        ("score", "" if best is None else _score_text(now, objective)),
        ("measured", say("basis", facts)),
        ("doubts", "; ".join(run_verdict(facts).doubts)),
        ("noise", noise_sentence(integrity.noise if best is None else best.noise)),
        ("traces", traces_line(now)),
        ("isolation", join_nonempty([now.isolation, ISOLATION.get(now.isolation, "")], ": ")),
        (
            "scored apart",
            f"{trusted:,} of {count_text(scored, 'scored evaluation')}" * bool(scored),
        ),
        ("integrity", signs * bool(now.evaluations)),
    ]


def _score_text(now: RunStatus, objective: Objective) -> str:
    assert now.best is not None
    shown = reported_score_text(now.best)
    front = "; the combined score of the default choice" * bool(objective.metrics)
    return f"{shown}, {'lower' if now.direction == 'min' else 'higher'} is better{front}"


def _costs(now: RunStatus) -> list[tuple[str, str]]:
    usage, budget = now.usage, now.budget
    tokens = usage.input_tokens + usage.output_tokens
    unpriced = f" and {count_text(usage.unpriced, 'call')} of unknown price" * bool(usage.unpriced)
    failed = sum(many for name, many in now.statuses.items() if name != "ok")
    return [
        (
            "evaluations",
            _of_budget(f"{now.evaluations:,}", budget.evaluations)
            + f", {failed:,} failed" * bool(failed),
        ),
        ("candidates", f"{now.candidates:,}"),
        ("model calls", _of_budget(f"{usage.calls:,}", budget.calls) if usage.calls else "none"),
        ("tokens", _of_budget(f"{tokens:,}", budget.tokens) if tokens else ""),
        ("dollars", _of_budget(dollars_text(usage.dollars), budget.dollars, "$") + unpriced),
        (
            "active time",
            f"{duration_text(now.elapsed_seconds)}, {count_text(now.workers, 'worker')}",
        ),
    ]


def _of_budget(spent: str, limit: float | None, unit: str = "") -> str:
    return spent if limit is None else f"{spent} of {unit}{limit:,g}"


def _commands(now: RunStatus, run: Digest) -> list[tuple[str, str]]:
    """(purpose, command) pairs; the run is named as in its folder of runs."""
    name = shlex.quote(run.name.replace("~", "/"))
    steps = [
        (
            "check the whole run against its journal, at no cost",
            f"culmen runs replay {name} --verify",
        )
    ]
    if now.best is not None:
        steps.append(("write the files of the best candidate", f"culmen best {name} --out best"))
    steps.append(("search anew with these settings", _search_command(now, run)))
    return steps


def _search_command(now: RunStatus, run: Digest) -> str:
    """The command that starts such a run; the task stands as its file or folder was given."""
    meta = run.meta
    words = ["culmen", "run", _task_word(meta.task), "--strategy", run.strategy_word]
    for text in run.changed_settings:
        words += ["--set", text]
    models = meta.model if isinstance(meta.model, dict) else {"": meta.model or ""}
    for role, model in models.items():
        given = f"{role}={model}" if role and role != "default" else str(model)
        words += ["--model", given] if model else []
    words += ["--budget", _budget_text(meta.budget)] if _budget_text(meta.budget) else []
    words += ["--seed", str(now.seed), "--workers", str(now.workers)]
    return shlex.join(words)


def _task_word(task: Task) -> str:
    """The argument of `culmen run` for a task: its folder, or an evaluator that stands alone.

    Outside the working folder its name alone: a report may be passed on.
    """
    if not task.root:
        return task.name
    whole = Path(task.root, "task.toml").is_file() or not task.evaluator.path
    path = short_path(task.root if whole else task.evaluator.path)
    return Path(path).name if Path(path).is_absolute() else path


def _budget_text(budget: Budget) -> str:
    limits = msgspec.to_builtins(budget)
    return ",".join(
        f"{name}={value:.15g}" for name, value in limits.items() if isinstance(value, int | float)
    )


def _versions(now: RunStatus, run: Digest) -> str:
    meta = run.meta
    culmen = f"culmen {meta.culmen}" if meta.culmen else ""
    python = f"Python {meta.python}" if meta.python else ""
    return join_nonempty([culmen, python, meta.platform, f"random seed {now.seed}"])
