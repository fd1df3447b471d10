"""The receipt of a run: its final choice as a comparison, and the chain of its journal.

The initial program stands for before, the chosen one for after; the pairs are their evaluations of
the final choice, case by case. Rule and settings were fixed when the run was made.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import msgspec

from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.core.json import JsonObject
from culmen.extensions.judge import verify
from culmen.extensions.judge.referee import seal_document
from culmen.store import chain, views
from culmen.store.database import RunMeta, open_snapshot

_ALPHA = 0.025  # a side, as of the 95 % intervals on all pages


def run_receipt(path: Path) -> JsonObject:
    """The receipt of a finished run; raise `UserError` if it has chosen nothing to compare."""
    meta, best, initial = views.run_meta(path), views.best_result(path), views.initial_program(path)
    if best is None or not initial or best.id == initial:
        raise UserError(
            "the run has no winner beside its initial program",
            where=str(path),
            fix=f"culmen status {path.name}",
        )
    pairs = _pairs_of(path, initial, best.id)
    scored = all(None not in (pair["before"], pair["after"]) for pair in pairs)
    is_exact = best.noise is not None and best.noise.exact is True and scored
    bar = {**_bar_of(meta, [initial, best.id]), "exact": is_exact, "pairs": len(pairs)}
    comparison = {
        "bar": bar,
        "pairs": pairs,
        "links": verify.chain(bar, pairs),
        "verdict": verify.verdict(bar, pairs),
        "interval": verify.interval(bar, pairs),
        "failure": "",
    }
    return seal_document("run", [comparison], _journal_of(path))


def _pairs_of(path: Path, initial: str, winner: str) -> list[JsonObject]:
    """Evaluations of both on each case, in their order; the last ones if one side has more."""
    for phase in ("final", None):  # where equal repeats are known, the choice makes none
        found: dict[str, tuple[list[Observation], list[Observation]]] = {}
        for each in views.stream_observations(path, phase=phase):
            if each.candidate in (initial, winner):
                found.setdefault(each.case, ([], []))[each.candidate == winner].append(each)
        pairs = [pair for case, sides in found.items() for pair in _pairs_on(case, *sides)]
        if pairs:
            return pairs
    raise UserError(
        "the winner and the initial program have no case in common",
        where=str(path),
        fix=f"culmen status {path.name}",
    )


def _pairs_on(
    case: str, before: Sequence[Observation], after: Sequence[Observation]
) -> list[JsonObject]:
    count = min(len(before), len(after))
    return [
        {"before": b.score, "after": a.score, "swapped": False, "case": case}
        for b, a in zip(before[-count:], after[-count:], strict=True)
        if count
    ]


def _bar_of(meta: RunMeta, candidates: Sequence[str]) -> JsonObject:
    """The rule of the comparison, and digests of task, evaluator and settings."""
    task = meta.task
    return {
        "direction": task.objective.direction,
        "gain": 0.0,
        "relative": False,
        "passes": False,
        "error": 2 * _ALPHA,
        "ask": 0,
        "alpha": _ALPHA,
        "evaluator": task.evaluator.digest,
        "task": task.digest,
        "cases": verify.digest([case.id for case in task.cases]),
        "edit": list(candidates),
        "rule": verify.digest(msgspec.to_builtins([meta.strategy, meta.budget, meta.seed])),
        "versions": {"culmen": meta.culmen, "python": meta.python, **meta.versions},
        "time": meta.created,
    }


def _journal_of(path: Path) -> JsonObject:
    with open_snapshot(path) as connection:
        seal = chain.read_seal(connection)
        rows = [base64.b64encode(each).decode() for each in chain.read_contents(connection)]
    if seal is None:
        raise UserError(
            "the record of the journal's last event is missing",
            where=str(path),
            fix=f"culmen runs recover {path.name}",
        )
    origin, last = (base64.b64encode(each).decode() for each in (seal.origin, seal.hash))
    return {"origin": origin, "hash": last, "settings": seal.settings.hex(), "rows": rows}
