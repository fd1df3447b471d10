"""The verb `mine`: past sessions of coding agents as cases of a skill."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbTable
from culmen.core.errors import UserError
from culmen.report.figures import count_text, join_nonempty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from culmen.extensions.skills.mining.proposals import MiningReport

Logs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="SESSIONS",
        help="Logs of Claude Code, Codex and OpenCode, ATIF trajectories, or folders of them. "
        "Sub-agents are left out.",
        show_default="where these programs keep them",
    ),
]


def mine(
    screen: Screen,
    sessions: Logs = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of proposed and confirmed cases.")
    ] = Path("mined"),
    least: Annotated[
        int, typer.Option(metavar="N", min=2, help="Sessions that make a fault a recurring one.")
    ] = 3,
    accept: Annotated[
        list[str] | None,
        typer.Option(metavar="FAULT", help="Confirm a proposed fault: its tasks are cases then."),
    ] = None,
    quote: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Confirm that an [unjudged] text is no secret."),
    ] = None,
) -> Answer:
    """Find recurring faults in past sessions of coding agents, and propose cases of them.

    Keys and personal data are cut first. Nothing is a case before a person has confirmed it, and a
    text that looks random and has no known form is [unjudged] until then.
    """
    from culmen.extensions.skills.mining.proposals import (
        accept_proposals,
        hold_folder,
        mine_sessions,
    )

    if accept:
        if sessions:
            raise UserError(
                "one call either reads sessions or confirms faults",
                where="--accept",
                fix="leave out the sessions",
            )
        with hold_folder(out):
            moved = accept_proposals(out, accept)
        return Answer({"confirmed": moved}, lambda screen: _show_accepted(screen, moved, out))
    places = log_places(sessions)
    with hold_folder(out):
        report = mine_sessions(places, out, least, quote or ())
    return Answer(msgspec.to_builtins(report), lambda screen: _show_report(screen, report, out))


def log_places(given: Sequence[Path] | None) -> list[Path]:
    """The given places, or those of the programs that are there."""
    from culmen.extensions.skills.mining.logs import PLACES

    if given:
        for place in given:
            if not place.expanduser().exists():
                raise UserError(
                    "there are no sessions: no such file or folder",
                    where=str(place),
                    fix="name a log, or the folder of the logs",
                )
        return [place.expanduser() for place in given]
    found = [place for each in PLACES.values() if (place := Path(each).expanduser()).exists()]
    if not found:
        raise UserError(
            "no coding agent has left sessions here",
            where=", ".join(PLACES.values()),
            fix="name the folder of the logs: culmen skill mine FOLDER",
        )
    return found


def _show_report(screen: Screen, report: MiningReport, out: Path) -> None:
    """Print a mining's report."""
    total = sum(report.sessions.values())
    formats = join_nonempty(f"{count} {name}" for name, count in report.sessions.items())
    unread = join_nonempty(f"{name} ({why})" for name, why in list(report.unread.items())[:5])
    more = f" and {len(report.unread) - 5} more" if len(report.unread) > 5 else ""
    screen.print_pairs(
        ("sessions", f"{total} ({formats})" if total else "none"),
        ("unread", f"{count_text(len(report.unread), 'file')}: {unread}{more}" * bool(unread)),
        ("damaged", count_text(report.damaged, "line") * bool(report.damaged)),
        ("cut", join_nonempty(f"{count} {kind}" for kind, count in report.cut.items())),
    )
    rows = [
        (each.name, str(each.sessions), each.why_not or each.state)
        for each in sorted(report.faults, key=lambda each: (bool(each.why_not), -each.sessions))
    ]
    if rows:
        screen.print_table(["fault", "sessions", "state"], rows, right="sessions")
    proposed = [each.name for each in report.faults if each.state == "proposed"]
    if proposed:
        folder = shlex.quote(str(out))
        screen.print_next_steps(
            (f"cat {folder}/proposed/{proposed[0]}/evidence.md", "the evidence"),
            (f"culmen skill mine --out {folder} --accept {proposed[0]}", "make it a case"),
        )


def _show_accepted(screen: Screen, moved: Sequence[str], out: Path) -> None:
    folder = shlex.quote(str(out))
    screen.print_line(f"{count_text(len(moved), 'task')} confirmed: {', '.join(moved)}")
    screen.print_next_steps(
        (f"culmen run --skill SKILL --tasks {folder}/tasks --agent NAME", "search")
    )


VERBS = VerbTable(
    "Skills",
    groups={
        "skill": (
            "Skills of coding agents: from past sessions to a better one.",
            {"mine": mine},
        )
    },
)
