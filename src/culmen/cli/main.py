"""The `culmen` command: reads the arguments, runs one verb, turns what went wrong into words and an exit code.

Exit codes: 0 done; 1 findings, such as a task that fails its check; 2 a mistake the user can fix; 3 the run is being
written by another process; 4 the journal does not fit or is damaged; 5 the isolation asked for is not in force; 70 a
bug in culmen; 75 something outside gave up, the run can be resumed; 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from culmen.cli import (
    about,
    advisor,
    analysing,
    archiving,
    attending,
    auditing,
    comparing,
    db,
    misread,
    pool,
    reading,
    running,
    starting,
    taking,
)
from culmen.cli.screen import Screen
from culmen.core.errors import CulmenError, UserError

BUG, INTERRUPTED = 70, 130
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # click's, wherever this version of typer keeps it

app = typer.Typer(
    name="culmen",
    help="Improve any text - a program, a prompt, a configuration - against any evaluator.",
    epilog="Start with: culmen demo",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from culmen.core import VERSION

        sys.stdout.write(f"culmen {VERSION}\n")
        raise typer.Exit


@app.callback()
def _culmen(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None: ...


for group in (
    starting,
    auditing,
    running,
    reading,
    attending,
    analysing,
    comparing,
    taking,
    archiving,
    db,
    pool,
    advisor,
    about,
):
    group.add_to(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; the console script passes it to the system."""
    given = misread.meant(list(sys.argv[1:] if arguments is None else arguments) or ["--help"])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(given, Screen("--json" in given))
    except BrokenPipeError:  # the reader left (culmen log | head): nothing more to say to anyone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(given: list[str], screen: Screen) -> int:
    try:
        code = app(args=given, prog_name="culmen", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except UserError as error:
        screen.error(_kind(error), error.what, error.where, error.fix)
        return error.exit_code
    except CulmenError as error:
        screen.error(_kind(error), str(error))
        return error.exit_code
    except _UsageError as error:
        return _misused(screen, error)
    except KeyboardInterrupt:
        screen.error("interrupted", "interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost frame: a bug is shown whole, with a code of its own
        traceback.print_exc()
        screen.error(
            "bug", f"{type(error).__name__}: {error}", fix="this is a bug in culmen; nothing journaled is lost"
        )
        return BUG


def _misused(screen: Screen, error: Any) -> int:
    """An unknown verb or option, a value of the wrong kind."""
    command = error.ctx.command_path if error.ctx else "culmen"
    screen.error("usage", misread.what(error), command, misread.fix(error, command))
    return int(error.exit_code)


def _kind(error: CulmenError) -> str:
    """`RunLocked` -> `run_locked`."""
    name = type(error).__name__
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


if __name__ == "__main__":
    raise SystemExit(main())
