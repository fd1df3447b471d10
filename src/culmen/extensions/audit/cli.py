"""`culmen audit`: ways to game a task, or signs of gaming in a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import replace

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import (
    AskedModels,
    CommandFlags,
    ModelsFile,
    VerbTable,
    asking_backend,
    find_run,
    option_words,
)
from culmen.core.admissions import ADMISSION
from culmen.core.errors import UserError
from culmen.report.figures import (
    count_text,
    duration_text,
    escape_controls,
    join_nonempty,
    run_name,
)

if TYPE_CHECKING:
    from culmen.core.ports import Backend
    from culmen.core.task import Task
    from culmen.extensions.audit.attack import AttackOutcome, AuditReport
    from culmen.store.views import RunStatus

FINDINGS, INCONCLUSIVE = 1, 6
_SHOWN = 40  # signs printed; --json has all
_STYLES = {
    "gamed": "bold red",
    "effect": "bold red",
    "look": "yellow",
    "inconclusive": "yellow",
    "held": "green",
    "skipped": "dim",
}


def audit(
    screen: Screen,
    flags: CommandFlags,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK|RUN", help="A task, to attack its evaluator; or a run, to look for signs."
        ),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Attack with this program instead of the initial one."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ATTACK", help="Try this attack only. Repeatable.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Start no attack after this time.")
    ] = 300.0,
    workers: Annotated[int, typer.Option(min=1, help="Evaluations at once.")] = 2,
    require: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="Refuse weaker isolation than this.")
    ] = None,
    model: AskedModels = None,
    models: ModelsFile = None,
    isolation: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="Use this level and no other.")
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(metavar="WAY", help="max or min, without a task.toml.", show_default="max"),
    ] = None,
) -> Answer:
    """Find ways to game a task, or signs of gaming in a run.

    A task's evaluator is attacked with programs made from the initial one, on a copy of its folder.
    Exit code 1 if an attack pays, or if a run has grave signs; 6 if the attacks made from this
    program could not reveal anything.
    """

    def make(task: Task) -> Backend:
        return asking_backend(task, workers, model, models, require, isolation)

    given = None if path is None else Path(path)
    found = flags.find_task(given, direction or "")
    if found is None or (isinstance(found, Path) and not _is_task(path)):
        return _audit_run(path)
    place = option_words({"--direction": direction}) + flags.task_words(given)
    way = direction or ""
    return _audit_task(screen, found, program, way, place, only or (), seconds, make)


def _is_task(path: str | None) -> bool:
    """True if a path is a task rather than a run or a run's name."""
    from culmen.store.address import has_run

    return path is not None and Path(path).exists() and not has_run(Path(path))


def _audit_task(
    screen: Screen,
    found: Path | Task,
    program: Path | None,
    direction: str,
    place: str,
    only: Sequence[str],
    seconds: float,
    make: Callable[[Task], Backend],
) -> Answer:
    """Attack the evaluator of a task, which was given as `place`."""
    from culmen.extensions.audit import audit as attack
    from culmen.run.assemble import run_blocking

    task, parts = _with_program(found, program, direction)

    def print_progress(text: str) -> None:
        if screen.is_live:
            screen.err.print(f"trying: {text}", style="dim")

    try:
        report = run_blocking(
            attack(task, make, parts=parts, only=only, seconds=seconds, tell=print_progress)
        )
    except UserError as error:
        error.fix = error.fix.replace("TASK", place)
        raise
    data = {
        "kind": "task",
        "path": str(found.resolve()) if isinstance(found, Path) else task.root,
        **msgspec.to_builtins(report),
        "gamed": report.gamed,
    }
    data["inconclusive"] = report.inconclusive
    code = FINDINGS if report.gamed else INCONCLUSIVE if report.inconclusive else 0
    # an evaluator alone is searched from the program that it was attacked with
    alone = isinstance(found, Path) and found.is_file() and found.suffix == ".py"
    start = option_words({"--seed-program": program if alone else None}) + place
    return Answer(data, lambda screen: _show_task(screen, report, place, start), code)


def _with_program(
    found: Path | Task, program: Path | None, direction: str
) -> tuple[Task, dict[str, str] | None]:
    """The task, and the parts to attack with (None: its first initial program)."""
    from culmen import tasks as taskfiles

    if isinstance(found, Path):
        task = taskfiles.load(found, goal="audit", direction=direction)
    else:
        task = found
    if program is None:
        return task, None
    if not program.is_file():
        raise UserError(f"there is no program '{program}'", where="--program", fix="check the path")
    text = program.read_text(encoding="utf-8", errors="replace")
    if not task.seeds and isinstance(found, Path):
        parts = {program.name: text}
        return taskfiles.load(found, goal="audit", seeds=[parts], direction=direction), parts
    seed = task.seeds[0]
    return task, {**seed, task.evaluator.module or next(iter(seed)): text}


def _show_task(screen: Screen, report: AuditReport, place: str, start: str) -> None:
    honest = report.honest
    screen.print_heading(report.task, f"{report.form} evaluator, {report.direction}imise")
    screen.print_pairs(
        ("program", honest.candidate),
        (
            "score",
            f"{honest.score!r}, {report.trust}"
            + (f", certified {honest.certified!r}" * (honest.certified is not None)),
        ),
        ("isolation", report.isolation),
        (
            "tried",
            f"{count_text(report.evaluations, 'evaluation')} in {duration_text(report.seconds)}",
        ),
    )
    for note in report.notes:
        screen.print_note(note)
    findings = report.of("gamed", "effect", "look", "inconclusive")
    if findings:
        screen.print_line()
        _show_table(screen, findings)
    alike: dict[tuple[str, ...], list[AttackOutcome]] = {}
    for outcome in findings:
        key = (
            outcome.result,
            outcome.fix,
            *(f"{place.file}:{place.line}" for place in outcome.places),
        )
        alike.setdefault(key, []).append(outcome)
    for outcomes in alike.values():
        screen.print_line()
        _show_outcomes(screen, outcomes)
    screen.print_line()
    _show_others(screen, report)
    screen.print_line()
    screen.print_line(
        _audit_summary(report),
        style="red" if report.gamed else "yellow" if report.inconclusive else "green",
    )
    if report.inconclusive:
        screen.print_next_steps(
            (f"culmen audit --program FILE {place}", "with a program that works")
        )
    elif not report.gamed:
        screen.print_next_steps((f"culmen run {start}", "search"))


def _show_table(screen: Screen, outcomes: Sequence[AttackOutcome]) -> None:
    """Print honest and false scores side by side, and where to look."""
    rows = [
        (
            outcome.result,
            outcome.title,
            *(
                "" if v is None or outcome.scored is None else f"{v:.10g}"
                for v in (outcome.honest, outcome.scored, outcome.certified)
            ),
            ", ".join(f"{place.file}:{place.line}" for place in outcome.places),
        )
        for outcome in outcomes
    ]
    screen.print_table(
        ["result", "attack", "honest", "scored", "certified", "line"],
        rows,
        right="honest scored certified",
    )


def _show_outcomes(screen: Screen, outcomes: Sequence[AttackOutcome]) -> None:
    """Print attacks that the same change stops."""
    first = outcomes[0]
    screen.print_finding(
        first.result,
        join_nonempty(outcome.title for outcome in outcomes),
        "",
        _STYLES[first.result],
    )
    rows = [("shows", outcome.shows) for outcome in outcomes]
    rows += [("evidence", outcome.evidence) for outcome in outcomes]
    for place in first.places:
        mark = " (proven)" if place.proven else ""
        rows.append(("change", f"{place.file}:{place.line}{mark}  {place.text}"))
        rows.append(("", place.why))
    screen.print_pairs(
        *((f"  {label}", escape_controls(text)) for label, text in rows), ("  do", first.fix)
    )


def _show_others(screen: Screen, report: AuditReport) -> None:
    held = [outcome.title.lower() for outcome in report.of("held")]
    skipped: dict[str, list[str]] = {}
    for outcome in report.of("skipped"):
        skipped.setdefault(outcome.evidence, []).append(outcome.title.lower())
    rows = [("held", f"{len(held)}: {join_nonempty(held)}")] if held else []
    rows += [
        ("skipped", f"{len(titles)}: {join_nonempty(titles)} ({why})")
        for why, titles in skipped.items()
    ]
    screen.print_pairs(*rows)


def _audit_summary(report: AuditReport) -> str:
    paid, effects, look = (len(report.of(each)) for each in ("gamed", "effect", "look"))
    false = sum(outcome.false for outcome in report.outcomes)
    tried = len(report.outcomes) - len(report.of("skipped"))
    if not report.gamed:
        more = f"; {look} worth a look" if look else ""
        doubts = [
            *report.doubts,
            *(f"{each.title.lower()}: {each.evidence}" for each in report.of("inconclusive")),
        ]
        if doubts:
            return (
                f"Inconclusive: {'; '.join(doubts)}. None of {tried} attacks paid{more}, which "
                "proves little."
            )
        return f"None of {tried} attacks paid{more}."
    certified = f", {false} of them certified" if report.honest.certified is not None else ""
    texts = [
        f"{count_text(paid, 'attack')} of {tried} paid{certified}" if paid else "",
        f"{count_text(effects, 'side effect')}" if effects else "",
    ]
    return (
        f"{join_nonempty(texts)}. Change the lines above, or raise the level of the score: "
        "culmen docs audit."
    )


class AuditedSign(msgspec.Struct, frozen=True):
    """A sign of gaming in a run: its first place, its number, and its candidate's score."""

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


def _audit_run(name: str | None) -> Answer:
    """Look for signs in a run."""
    from culmen.store import views

    path = find_run(name)
    now, signs = views.run_status(path), find_signs(path)
    data = {
        "kind": "run",
        "run": now.run,
        "path": now.path,
        "integrity": now.integrity,
        "findings": signs,
        "best": now.best,
        "best_before_first_finding": now.best_before_first_finding,
    }
    grave = any(each.grave for each in signs)
    return Answer(
        data, lambda screen: _show_run(screen, now, signs, path), FINDINGS if grave else 0
    )


def find_signs(path: Path) -> list[AuditedSign]:
    """Distinct signs of a run, grave ones first, then in order of appearance."""
    from culmen.evaluate.integrity import signs
    from culmen.store import views

    by_place: dict[tuple[str, str, str], AuditedSign] = {}
    for each in reversed(views.run_integrity(path, limit=1_000_000).findings):
        where = (each.part, each.line, each.seq)
        _add_sign(
            by_place,
            AuditedSign(
                each.sign, "", each.grave, each.candidate, each.evidence, *where, score=each.score
            ),
        )
    meta = views.run_meta(path)
    for each in views.score_changes(path) if meta.task.deterministic else ():
        text = f"{each.count} identical evaluations scored {each.low!r} to {each.high!r}"
        _add_sign(by_place, AuditedSign("moves", "", False, each.candidate, text, score=each.high))
    admissions = _admission_signs(path)
    for each in admissions:
        _add_sign(by_place, each)
    admitted = {
        signs.make_sign("admits", line).evidence
        for each in admissions
        for line in each.evidence.splitlines()[:-1]
    }
    for each in views.stream_prose(path):
        for sign in signs.of_prose(each.text):
            if sign.evidence in admitted and not each.candidate:
                continue
            _add_sign(
                by_place,
                AuditedSign(
                    sign.name,
                    "",
                    sign.grave,
                    each.candidate,
                    sign.evidence,
                    each.source,
                    sign.line,
                    each.seq,
                ),
            )
    for each in _lucky_winner_signs(path):
        _add_sign(by_place, each)
    known = [_sign_with_meaning(path, each) for each in by_place.values()]
    return sorted(known, key=lambda each: (not each.grave, each.seq))


def _admission_signs(path: Path) -> list[AuditedSign]:
    """Admissions of gaming by agents: each once, with the best of the agent's candidates."""
    from culmen.store import views

    signs: list[AuditedSign] = []
    for event in views.note_events(path, ADMISSION):
        body = event.entry.body
        others = len(body["candidates"]) - 1
        whose = f"agent a{body['agent']:02d}, whose best this is" + (
            f", and {others} more" if others else ""
        )
        text = "\n".join([*body["evidence"], whose])
        signs.append(
            AuditedSign("admits", "", True, str(body["candidates"][0]), text, seq=event.seq)
        )
    return signs


def _add_sign(signs: dict[tuple[str, str, str], AuditedSign], sign: AuditedSign) -> None:
    key = (sign.candidate, sign.sign, sign.evidence)
    before = signs.get(key)
    signs[key] = sign if before is None else replace(before, times=before.times + 1)


def _sign_with_meaning(path: Path, each: AuditedSign) -> AuditedSign:
    """A sign with its meaning and, if grave, with the score of its candidate.

    The certified score is the verifier's.
    """
    from culmen.core.evaluation import SIGNS
    from culmen.store import views

    meaning = SIGNS.get(each.sign, (each.grave, ""))[1]
    if not each.candidate or not each.grave:
        return replace(each, meaning=meaning)
    row = views.candidate_detail(path, each.candidate, observations=0, children=0).row
    score = each.score if each.score is not None else row.mean
    return replace(each, meaning=meaning, score=score, certified=row.certified)


def _lucky_winner_signs(path: Path) -> Iterable[AuditedSign]:
    """A sign for a winner with fresh evaluations much worse than those of the search.

    The difference is more than three standard errors.
    """
    from culmen.store import views

    winner, objective = views.final_choice(path), views.run_meta(path).task.objective
    if (
        winner is None
        or not winner.get("confirmed")
        or not winner.get("se")
        or winner.get("search_score") is None
    ):
        return
    fresh, search = float(winner["score"]), float(winner["search_score"])
    if objective.reward(search) - objective.reward(fresh) > 3 * float(winner["se"]):
        text = f"search {search:.6g}, {winner['count']} fresh evaluations {fresh:.6g}"
        yield AuditedSign("lucky", "", False, str(winner["id"]), text, score=search)


def _show_run(screen: Screen, now: RunStatus, signs: Sequence[AuditedSign], path: Path) -> None:
    from culmen.cli.pages import result_pairs

    grave, notes = (
        [each for each in signs if each.grave],
        [each for each in signs if not each.grave],
    )
    screen.print_heading(
        now.run, f"{count_text(len(grave), 'grave sign')}, {count_text(len(notes), 'note')}"
    )
    screen.print_pairs(
        *result_pairs(now, path),
        ("integrity", f"{now.integrity}: {_POLICIES[now.integrity]}"),
    )
    for each in grave[:_SHOWN]:
        screen.print_line()
        screen.print_finding(
            "grave", f"{each.candidate or each.part}  {each.sign}: {each.meaning}", "", "bold red"
        )
        position = f"{each.part}:{each.line}  " if each.line else ""
        worth = [
            (name, value)
            for name, value in (("scored", each.score), ("certified", each.certified))
            if value is not None and repr(value) not in each.evidence
        ]
        screen.print_pairs(
            ("  evidence", escape_controls(position + each.evidence)),
            *((f"  {name}", _exact_number(value)) for name, value in worth),
        )
    if len(grave) > _SHOWN:
        screen.print_line(f"and {len(grave) - _SHOWN} more (--json has all)", style="dim")
    _show_notes(screen, notes)
    screen.print_line()
    if not grave:
        screen.print_line(
            "No grave signs. This does not prove that scores are honest: culmen docs security.",
            style="green",
        )
    run = run_name(path)
    if not grave:
        return screen.print_next_steps((f"culmen best {run}", "print the best"))
    first = (
        [(f"culmen show {run} {grave[0].candidate}", "the first of them")]
        if grave[0].candidate
        else []
    )
    screen.print_next_steps(
        *first,
        (f"culmen runs fork {run} --set integrity=reject", "search again without such candidates"),
    )


_POLICIES = {
    "warn": "signs are noted",
    "reject": "grave signs reject a candidate",
    "stop": "a grave sign ends the search",
}


def _show_notes(screen: Screen, notes: Sequence[AuditedSign]) -> None:
    """Print the signs that are not grave, by kind."""
    kinds: dict[str, list[AuditedSign]] = {}
    for each in notes:
        kinds.setdefault(each.sign, []).append(each)
    if kinds:
        screen.print_line()
    for name, several in kinds.items():
        first = several[0]
        example = (
            f"{first.candidate}{f' line {first.line}' if first.line else ''}: {first.evidence}"
        )
        candidates = len({sign.candidate for sign in several})
        screen.print_finding(
            "note",
            f"{name}: {first.meaning}; {count_text(candidates, 'candidate')}",
            escape_controls(example),
            "dim",
        )


def _exact_number(value: float) -> str:
    return repr(value) if math.isfinite(value) else str(value)


VERBS = VerbTable("Start", (audit,), after="check")
