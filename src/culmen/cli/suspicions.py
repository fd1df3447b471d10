"""`culmen audit RUN`: signs of gaming in a run, each told once, with what its candidate is worth by the verifier."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.cli.screen import Answer, Screen
from culmen.observe.figures import clean, count

if TYPE_CHECKING:
    from culmen.store.views import Status

FINDINGS = 1
_SHOWN = 40  # findings printed; --json has all


class Seen(msgspec.Struct, frozen=True):
    """A sign as it is told once: where it was seen first, how often, and what was scored with it."""

    sign: str
    meaning: str
    grave: bool
    candidate: str
    evidence: str
    part: str = ""
    line: int = 0
    seq: int = 0
    times: int = 1
    score: float | None = None
    certified: float | None = None


def of_run(name: str | None) -> Answer:
    """Look for signs in a run."""
    from culmen.cli import runs
    from culmen.store import views

    path = runs.find(name)
    now, found = views.status(path), collect(path)
    data = {
        "kind": "run", "run": now.run, "path": now.path, "integrity": now.integrity, "findings": found,
        "best": now.best, "best_before_first_finding": now.best_before_first_finding,
    }  # fmt: skip
    grave = any(each.grave for each in found)
    return Answer(data, lambda screen: show_run(screen, now, found, path), FINDINGS if grave else 0)


def collect(path: Path) -> list[Seen]:
    """All signs of a run, each once, grave ones first, then in the order they were seen."""
    from culmen.evaluate.integrity import signs
    from culmen.store import views

    told: dict[tuple[str, str, str], Seen] = {}
    for each in reversed(views.integrity(path, limit=1_000_000).findings):
        _add(
            told,
            Seen(
                each.sign,
                "",
                each.grave,
                each.candidate,
                each.evidence,
                each.part,
                each.line,
                each.seq,
                score=each.score,
            ),
        )
    meta = views.meta(path)
    for each in views.moved(path) if meta.task.deterministic else ():
        text = f"{each.count} evaluations alike scored {each.low!r} to {each.high!r}"
        _add(told, Seen("moves", "", False, each.candidate, text, score=each.high))
    for each in views.prose(path):
        for sign in signs.of_prose(each.text):
            _add(told, Seen(sign.name, "", sign.grave, each.candidate, sign.evidence, each.source, sign.line, each.seq))
    for each in _lucky(path):
        _add(told, each)
    known = [_complete(path, each) for each in told.values()]
    return sorted(known, key=lambda each: (not each.grave, each.seq))


def _add(told: dict[tuple[str, str, str], Seen], each: Seen) -> None:
    key = (each.candidate, each.sign, each.evidence)
    before = told.get(key)
    told[key] = each if before is None else msgspec.structs.replace(before, times=before.times + 1)


def _complete(path: Path, each: Seen) -> Seen:
    """With what the sign means, and what its candidate is worth by the verifier."""
    from culmen.evaluate.integrity import signs
    from culmen.store import views

    meaning = signs.MEANINGS.get(each.sign, (each.grave, ""))[1]
    if not each.candidate or not each.grave:
        return msgspec.structs.replace(each, meaning=meaning)
    row = views.candidate(path, each.candidate, observations=0).row
    score = each.score if each.score is not None else row.mean
    return msgspec.structs.replace(each, meaning=meaning, score=score, certified=row.certified)


def _lucky(path: Path) -> Iterable[Seen]:
    """A winner whose fresh evaluations were worse than what the search saw, by more than three standard errors."""
    from culmen.store import views

    winner, objective = views.verdict(path), views.meta(path).task.objective
    if winner is None or not winner.get("confirmed") or not winner.get("se") or winner.get("search_score") is None:
        return
    fresh, search = float(winner["score"]), float(winner["search_score"])
    if objective.reward(search) - objective.reward(fresh) > 3 * float(winner["se"]):
        text = f"the search saw {search:.6g}, {winner['count']} fresh evaluations {fresh:.6g}"
        yield Seen("lucky", "", False, str(winner["id"]), text, score=search)


def show_run(screen: Screen, now: Status, found: Sequence[Seen], path: Path) -> None:
    """The findings for people."""
    from culmen.cli import runs
    from culmen.cli.session import best_line, suspected, vouched

    grave, notes = [each for each in found if each.grave], [each for each in found if not each.grave]
    screen.heading(now.run, f"{count(len(grave), 'grave sign')}, {count(len(notes), 'note')}")
    screen.pairs(
        ("best", best_line(now.best)),
        ("certified", vouched(now.best)),
        ("integrity", f"{now.integrity}: {_POLICIES[now.integrity]}"),
        ("findings", suspected(now)),
    )
    for each in grave[:_SHOWN]:
        screen.line()
        screen.finding("grave", f"{each.candidate or each.part}  {each.sign}: {each.meaning}", "", "bold red")
        place = f"{each.part}:{each.line}  " if each.line else ""
        worth = [
            (name, value)
            for name, value in (("scored", each.score), ("certified", each.certified))
            if value is not None and repr(value) not in each.evidence
        ]
        screen.pairs(
            ("  evidence", clean(place + each.evidence)), *((f"  {name}", _number(value)) for name, value in worth)
        )
    if len(grave) > _SHOWN:
        screen.line(f"and {len(grave) - _SHOWN} more (--json has all)", style="dim")
    _notes(screen, notes)
    screen.line()
    if not grave:
        screen.line("No grave signs. That is no proof: what keeps scores honest is in docs/security.md.", style="green")
    run = runs.shown(path)
    if not grave:
        return screen.next_steps((f"culmen best {run}", "print the best"))
    first = [(f"culmen show {run} {grave[0].candidate}", "the first of them")] if grave[0].candidate else []
    screen.next_steps(*first, (f"culmen fork {run} --integrity reject", "search again without such candidates"))


_POLICIES = {
    "warn": "signs are noted",
    "reject": "grave signs reject a candidate",
    "stop": "a grave sign ends the search",
}


def _notes(screen: Screen, notes: Sequence[Seen]) -> None:
    """Signs that are no more than worth knowing, by kind."""
    kinds: dict[str, list[Seen]] = {}
    for each in notes:
        kinds.setdefault(each.sign, []).append(each)
    if kinds:
        screen.line()
    for name, several in kinds.items():
        first = several[0]
        example = f"{first.candidate}{f' line {first.line}' if first.line else ''}: {first.evidence}"
        screen.finding(
            "note",
            f"{name}: {first.meaning}; {count(len({s.candidate for s in several}), 'candidate')}",
            clean(example),
            "dim",
        )


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else str(value)
