"""`culmen judge`: is an edit better? `culmen receipt`: what a stranger needs to check it."""

from __future__ import annotations

import json
import shlex
import shutil
import statistics
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import CommandFlags, VerbTable, find_run
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.task import parse_direction
from culmen.extensions.judge import referee, verify
from culmen.extensions.judge.run_receipts import run_receipt
from culmen.jail.command import Command, is_confined
from culmen.report.figures import count_text, escape_controls, number_text

CODES = {verify.BETTER: 0, verify.WORSE: 1, verify.EQUAL: 2, verify.UNTOLD: 3}
"""Exit codes of verdicts; errors have others."""
_STYLES = {verify.BETTER: "green", verify.WORSE: "red"}


def judge(
    screen: Screen,
    flags: CommandFlags,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="REV|FOLDER",
            help="The files before the edit: a git revision or a folder.",
            show_default="HEAD",
        ),
    ] = None,
    direction: Annotated[
        str, typer.Option(metavar="WAY", help="max or min: what is better.")
    ] = "max",
    gain: Annotated[
        str,
        typer.Option(
            metavar="N|N%", help="Smallest gain that matters.", show_default="1%; 0.05 of exit"
        ),
    ] = "",
    pairs: Annotated[int, typer.Option(min=1, max=500, help="Most runs of each side.")] = 60,
    error: Annotated[
        float,
        typer.Option(min=1e-6, max=0.5, help="Chance of a false gain, of all asks of a session."),
    ] = 0.01,
    confirm: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Hold-out that must find the edit better, too."),
    ] = None,
) -> Answer:
    """Judge an edit by a command: culmen judge --edit FILE -- COMMAND.

    Runs the command in copies of this folder, with and without the edit, in pairs of random order.
    Exit code 0 better, 1 worse, 2 no difference that matters, 3 cannot tell; others are errors.
    """
    asked = referee.JudgeRequest(parse_direction(direction, "--direction"), gain, error, pairs)
    command = flags.as_command()
    before = referee.texts_before(against, command.edit)
    after = referee.texts_in(Path(), command.edit)
    if before == after:
        raise UserError(
            "the files are the same before and after",
            where=f"--edit {' '.join(command.edit)}",
            fix="edit them first, or name another revision: --against",
        )
    held_out = msgspec.structs.replace(command, words=tuple(shlex.split(confirm or "")))
    commands = [command, held_out] if confirm else [command]
    file, document = _settle(screen, asked, commands, before, after)
    data = _answer_data(document, file, command, asked)
    return Answer(data, lambda s: _show(s, data), CODES[data["verdict"]])


def _settle(
    screen: Screen,
    asked: referee.JudgeRequest,
    commands: list[Command],
    before: referee.Texts,
    after: referee.Texts,
) -> tuple[Path, JsonObject]:
    """Compare by each command as long as the edit is better; the judgement and its file."""
    referee.make_bar(asked, commands[0], before, after, 1)  # its errors spend no ask
    referee.check_session(referee.SESSION, asked.error)
    file = referee.open_judgement(referee.SESSION)
    comparisons: list[JsonObject] = []
    for command in commands:
        bar = referee.make_bar(asked, command, before, after, int(file.stem))
        if not screen.as_json:
            what = "hold-out" if comparisons else "bar"
            screen.print_note(f"{what} fixed before the first run: {verify.digest(bar)}")
        try:
            found = referee.compare(bar, command, before, after, _progress(screen))
        except UserError as error:
            raise (_hidden_error() if comparisons else error) from None
        comparisons.append({**found, "failure": ""} if comparisons else found)
        if found["verdict"] != verify.BETTER:
            break
    document = referee.seal_document("judgement", comparisons, referee.NO_JOURNAL)
    referee.write_document(document, file)
    return file, document


def _hidden_error() -> UserError:
    """The error of a hold-out, without its words."""
    return UserError(
        "the hold-out fails without the edit",
        where="--confirm",
        fix="whoever gave it can run it by itself",
    )


def _progress(screen: Screen) -> referee.Tell:
    """A line on a terminal after every pair."""

    def tell(number: int, before: float | None, after: float | None) -> None:
        if screen.is_live and not screen.as_json:
            values = f"{number_text(before)} before, {number_text(after)} after"
            screen.err.print(f"pair {number}: {values}", style="dim", markup=False)

    return tell


def _answer_data(
    document: JsonObject, file: Path, command: Command, asked: referee.JudgeRequest
) -> JsonObject:
    """The document of `--json`."""
    first = document["comparisons"][0]
    values = [(pair["before"], pair["after"]) for pair in first["pairs"]]
    known = [pair for pair in values if None not in pair]
    told = document["verdict"]
    return {
        "verdict": told,
        "gain": first["interval"],
        "unit": "share of the value before" if first["bar"]["relative"] else "the metric",
        "before": statistics.fmean(b for b, _ in known) if known else None,
        "after": statistics.fmean(a for _, a in known) if known else None,
        "pairs": len(values),
        "failed": {
            "before": sum(b is None for b, _ in values),
            "after": sum(a is None for _, a in values),
        },
        "failure": first["failure"],
        "more_pairs": referee.pairs_to_go(first) if told == verify.UNTOLD else None,
        "held_out": len(document["comparisons"]) > 1,
        "session": {
            "asks": first["bar"]["ask"],
            "error": asked.error,
            "error_of_this_ask": first["bar"]["alpha"],
        },
        "isolation": "bubblewrap" if is_confined() else "none",
        "judgement": str(file),
        "command": shlex.join(command.words),
    }


def _show(screen: Screen, data: JsonObject) -> None:
    verdict = str(data["verdict"])
    more = data["more_pairs"]
    needs = f" (needs about {count_text(2 * more, 'more run')})" if more else ""
    if verdict == verify.UNTOLD and not more:
        needs = " (and more runs of this noise would not help much)"
    low, high = (number_text(each) if each is not None else "?" for each in data["gain"])
    session = data["session"]
    screen.print_line(f"{verdict}{needs}", style=_STYLES.get(verdict, "yellow"))
    screen.print_pairs(
        ("gain", f"within {low} .. {high} ({data['unit']})"),
        ("mean", f"{number_text(data['before'])} before, {number_text(data['after'])} after"),
        ("runs", f"{count_text(data['pairs'], 'pair')}, {_failed_text(data)}"),
        ("failure", escape_controls(data["failure"])),
        ("hold-out", "asked, too" if data["held_out"] else ""),
        (
            "session",
            f"ask {session['asks']} in {referee.SESSION}; a false gain in all of its asks has a "
            f"chance of {session['error']:g} at most, of which {session['error_of_this_ask']:.2g} "
            "were for this one",
        ),
        ("isolation", f"{data['isolation']}"),
    )
    screen.print_next_steps((f"culmen receipt {data['judgement']}", "for a stranger to check"))


def _failed_text(data: JsonObject) -> str:
    failed = data["failed"]
    if not any(failed.values()):
        return "none failed"
    return f"failed: {failed['before']} before, {failed['after']} after"


def receipt(
    screen: Screen,
    path: Annotated[
        str, typer.Argument(metavar="RUN|JUDGEMENT", help="A judgement's file or number, or a run.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The receipt.", show_default="NAME.receipt.json"),
    ] = None,
) -> Answer:
    """Write what a stranger needs to check a verdict: one JSON file.

    python3 verify.py RECEIPT computes it anew, without culmen; the program is written beside it.
    """
    named = referee.SESSION / f"{path}.json" if path.isdigit() else Path(path)
    if named.suffix == ".json" and named.is_file():
        document = json.loads(named.read_text(encoding="utf-8") or "{}")
    else:
        named = find_run(path)
        document = run_receipt(named)
    try:
        fault = next(verify.faults(document), "")
    except (KeyError, TypeError, ValueError) as error:
        fault = f"it is no judgement: {error!r}"
    if fault:
        raise UserError(f"it cannot be checked: {fault}", where=str(named), fix="judge again")
    file = out or Path(f"{named.stem}.receipt.json")
    referee.write_document(document, file)
    program = file.with_name("verify.py")
    shutil.copyfile(Path(verify.__file__), program)
    check = f"python3 {shlex.quote(str(program))} {shlex.quote(str(file))}"
    data = {"receipt": str(file), "verify": str(program), "verdict": document["verdict"]}

    def show(screen: Screen) -> None:
        screen.print_line(f"Wrote {file}: {document['verdict']}")
        screen.print_next_steps((check, "on any machine with Python"))

    return Answer({**data, "next": check}, show)


VERBS = VerbTable("Start", (judge,), after="audit")
RECEIPTS = VerbTable("Look at a run", (receipt,))
