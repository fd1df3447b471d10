"""What ails a run, in words, with one thing to try for each: computed from its journal alone.

Shown beside the three lines of `observe.summary` by the command line, in Python and on the dashboard.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from culmen.observe.figures import count, number
from culmen.store import views
from culmen.store.views import RunStatus
from culmen.store.views.events import FailureCauses, failure_causes
from culmen.store.views.run import noise

_ENOUGH = 10  # evaluations, or answers, below which a share says nothing
_FAILING = 0.3  # share of candidates without any score that is worth a word
_LOSING = 0.1  # the same of evaluations that were lost
_STALL = 0.4  # share of the evaluations since the best was found
_LONG = 30  # evaluations that a stall lasts at least
_VAIN = 0.5  # share of the answers that brought nothing
_NAMED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit|Interrupt|Invalid))\b")


class Finding(msgspec.Struct, frozen=True):
    """`what` is so, in a sentence, and one thing to `do` about it; `topic` is a word for programs."""

    topic: str
    what: str
    do: str


def diagnose(now: RunStatus, run: Path | None = None) -> list[Finding]:
    """What is worth saying of the run, the gravest first."""
    path = run or Path(now.path)
    causes = failure_causes(path)
    found = [*_unscored(now), *_failing(now, causes), *_lost(now, causes), *_vain(now, path), *_turns(now)]
    return [*found, *_fallen(now, path), *_undecided(now), *_stalled(now, path), *_unpriced(now)]


def _unscored(now: RunStatus) -> Iterator[Finding]:
    if now.best is None and now.evaluations and now.state != "running":
        yield Finding(
            "nothing_scored",
            f"nothing has scored in {count(now.evaluations, 'evaluation')}",
            "culmen check TASK evaluates the initial program alone, with the evaluator's own words",
        )


def _failing(now: RunStatus, causes: FailureCauses) -> Iterator[Finding]:
    if causes.candidates < _ENOUGH or causes.fruitless < _FAILING * causes.candidates:
        return
    kinds: dict[str, int] = {}
    for words, times in causes.kinds.items():
        kinds[_kind(words)] = kinds.get(_kind(words), 0) + times
    kind = max(kinds, key=lambda each: kinds[each], default="")
    part = kinds.get(kind, 0) / max(1, sum(kinds.values()))
    named = f": {kind}" + (f" ({part:.0%} of them)" if part < 0.995 else "") if kind else ""
    yield Finding("failing", f"{causes.fruitless / causes.candidates:.0%} of candidates fail{named}", _cure(kind))


def _kind(words: str) -> str:
    """`SyntaxError` of a last line of feedback or, where it names no exception, the reason of the failure."""
    reason, _, last = words.partition("\n")
    named = _NAMED.match(last)
    return named[1].rpartition(".")[2] if named else reason.replace("_", " ")


_CURES = {
    "SyntaxError": "a stronger model: --model NAME; culmen show RUN ID --prompt shows what one was asked and answered",
    "ModuleNotFoundError": "say in the goal which packages there are, or install what candidates ask for",
    "ImportError": "say in the goal which packages there are, or install what candidates ask for",
    "timeout": "raise [limits] seconds, or say in the goal how long a candidate may take",
    "cpu limit": "raise [limits] seconds, or say in the goal how long a candidate may take",
    "memory limit": "raise [limits] memory_mb, or say in the goal how much memory there is",
    "scorer raised": "correct the evaluator: it raises on what candidates return (culmen show RUN ID)",
    "immutable text changed": "say in the goal which lines may change, or widen the EVOLVE-BLOCK markers",
}


def _cure(kind: str) -> str:
    return _CURES.get(kind, "say in the goal what a candidate must return; culmen log RUN names failed candidates")


def _lost(now: RunStatus, causes: FailureCauses) -> Iterator[Finding]:
    lost = now.statuses.get("lost", 0)
    if now.evaluations < _ENOUGH or lost < _LOSING * now.evaluations:
        return
    away = now.failures.get("provider_away", 0) >= lost / 2
    yield Finding(
        "lost",
        f"{lost / now.evaluations:.0%} of evaluations were lost"
        + (": what the evaluator asks elsewhere did not answer" if away else ", by no fault of candidates"),
        "see to the service that the evaluator asks, then culmen fork RUN evaluates them again"
        if away
        else "culmen doctor says what this machine lacks; fewer --workers need less memory",
    )


def _vain(now: RunStatus, path: Path) -> Iterator[Finding]:
    asked = sum(row.effects for row in views.calls(path) if row.effect == "propose")
    faults = sum(now.faults.values())
    if asked < _ENOUGH or faults < _VAIN * asked:
        return
    worst = next(iter(now.faults))
    what = "nothing was accepted" if faults >= asked else f"{faults / asked:.0%} of answers brought less than asked"
    yield Finding("nothing_accepted", f"{what}: {worst.replace('_', ' ')}", _FAULTS.get(worst, _FAULTS[""]))


_FAULTS = {
    "": "culmen show RUN ID --prompt shows a prompt and its reply; a stronger model: --model NAME",
    "diff_mismatch": "a model that quotes exactly: --model NAME, or a shorter program, which is rewritten whole",
    "unchanged": "another model or a higher temperature; culmen tell RUN --hint TEXT gives it an idea",
    "duplicate": "a higher temperature, or several models at once: --model 'A|B'",
    "truncated": "raise max_tokens of the model in a models file",
    "too_long": "set context of the model in a models file, or choose one with a larger context",
    "refused": "another model, or a goal in other words: the provider refuses to answer this one",
    "no_model": "name a model for this role: --model ROLE=NAME",
}


def _turns(now: RunStatus) -> Iterator[Finding]:
    few = now.few_turns
    if few is not None:
        many = "no turn" if not few.turns else f"only {count(few.turns, 'turn')}"
        yield Finding(
            "few_turns",
            f"the strategy finished {many} in {count(few.evaluations, 'evaluation')}",
            f"--budget evaluations={few.needed}, or fewer programs and cases a turn (culmen strategies NAME)",
        )


def _fallen(now: RunStatus, path: Path) -> Iterator[Finding]:
    best = now.best
    if best is None or not best.confirmed or best.search_score is None:
        return
    fall = best.search_score - best.score if now.direction == "max" else best.score - best.search_score
    spread = noise(path) or (best.se or 0.0) * math.sqrt(best.count)
    if fall <= max(best.margin or 0.0, 1e-9 * abs(best.search_score)):
        return
    verb = "fell" if now.direction == "max" else "rose"
    why = f"noise {spread:.2g} per evaluation" if spread else "fresh evaluations differ from those of the search"
    yield Finding(
        "fallen",
        f"the final value {verb} from {number(best.search_score)} to {number(best.score)}: {why}",
        "evaluate more: --budget evaluations=+N, or a strategy's setting for more evaluations of each candidate",
    )


def _undecided(now: RunStatus) -> Iterator[Finding]:
    best = now.best
    if best is None or best.gain is None or not best.gain_margin or abs(best.gain) > best.gain_margin:
        return
    times = min(100, math.ceil((best.gain_margin / max(abs(best.gain), 1e-12)) ** 2))  # a margin shrinks with the root
    yield Finding(
        "within_noise",
        f"the gain of {best.gain:+.2g} is within the noise (± {best.gain_margin:.2g})",
        f"measure longer: about {max(2, times)} times as many evaluations in the final choice (final= in the budget)",
    )


def _stalled(now: RunStatus, path: Path) -> Iterator[Finding]:
    points = views.progress(path) if now.evaluations >= 2 * _LONG else []
    if not points:
        return
    since = next(point.evaluations for point in points if point.candidate == points[-1].candidate)
    idle = now.evaluations - since
    if idle < max(_LONG, _STALL * now.evaluations) or _reached(now):
        return
    offline = set(now.models.values()) == {"offline"}
    if now.state == "running":
        do = "culmen tell RUN --hint TEXT, an idea of yours for the models" if not offline else "culmen stop RUN"
    elif offline:
        do = "a language model finds what edits do not: culmen fork RUN --model NAME"
    else:
        do = "another method from the same results: culmen fork RUN --strategy NAME (culmen strategies)"
    yield Finding("stalled", f"stalled since evaluation {since:,} of {now.evaluations:,}", do)


def _reached(now: RunStatus) -> bool:
    if now.target is None or now.best is None:
        return False
    return now.best.value >= now.target if now.direction == "max" else now.best.value <= now.target


def _unpriced(now: RunStatus) -> Iterator[Finding]:
    if now.usage.unpriced and now.budget.dollars is not None:
        yield Finding(
            "unpriced",
            f"{count(now.usage.unpriced, 'call')} had no known price, so dollars limited nothing there",
            "give the model a price in a models file",
        )
