"""The `culmen` command: runs one verb, turns errors into messages and exit codes.

`PANELS` has the addresses of the verbs of each panel of the help; extensions add tables of theirs.
A verb's module has the name of its panel or of the verb, and is imported when the verb is used.

Exit codes: 0 done; 1 findings, such as a task that fails its check; 2 a mistake the user can fix; 3
the run is being written by another process; 4 the journal does not fit or is damaged; 5 the
isolation asked for is not in force; 70 a bug in culmen; 75 something outside gave up, the run can
be resumed; 130 interrupted.
"""

from __future__ import annotations

import difflib
import io
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from culmen.cli.screen import Screen
from culmen.cli.verbs import Verb, VerbTable, declare_tables
from culmen.core import errors
from culmen.core.errors import CulmenError, UserError
from culmen.core.extensions import all_parts, find_part, import_part

BUG = 70
_UsageError: type[Exception] = typer.BadParameter.__mro__[
    1
]  # click's, wherever this version of typer keeps it

PANELS = {  # of the help, in its order
    "Start": "start:demo start:new start:check",
    "Search": "search:run search:resume search:fork",
    "Look at a run": (
        "look:status look:best look:story look:show look:diff look:lineage explain:explain look:log"
    ),
    "Attend to a run": "attend:watch attend:stop attend:tell",
    "Compare runs": "",
    "Keep a run": "keep:export keep:replay keep:recover keep:archive keep:vacuum",
    "About": "about:strategies about:templates about:doctor about:docs",
}
GROUPS = {"pool": ("Keep a run", "culmen.cli.keep:POOL")}


def _print_version(asked: bool) -> None:
    if asked:
        from culmen.core import VERSION

        sys.stdout.write(f"culmen {VERSION}\n")
        raise typer.Exit


def _culmen(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None: ...


@cache
def make_app(word: str = "") -> typer.Typer:
    """The command line; made once.

    It has all verbs, those of extensions included, unless `word` is `--version` or leads to one
    verb or group: then it has this one alone, and what the others need is not imported.

    Raises `UserError` for an extension that cannot be used.
    """
    app = typer.Typer(
        name="culmen",
        help="Improve any text - a program, a prompt, a configuration - against any evaluator.",
        epilog="Start with: culmen demo",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_culmen)
    if word != "--version":
        declare_tables(app, _find_tables(word) or (*_own_tables(), *all_parts("verbs").values()))
    return app


def _own_tables() -> Iterator[VerbTable]:
    """The tables of the core."""
    for panel, addresses in PANELS.items():
        groups = {name: import_part(group) for name, (own, group) in GROUPS.items() if own == panel}
        yield VerbTable(panel, tuple(map(_import_verb, addresses.split())), groups)


def _find_tables(word: str) -> tuple[VerbTable, ...]:
    """A table with the verb or group of this name alone; none if all have to be asked for it."""
    for panel, addresses in PANELS.items():
        for address in addresses.split():
            if address.endswith(f":{word}"):
                return (VerbTable(panel, (_import_verb(address),)),)
    if word in GROUPS:
        panel, group = GROUPS[word]
        return (VerbTable(panel, groups={word: import_part(group)}),)
    table = find_part("verbs", word)
    if not isinstance(table, VerbTable):
        return ()
    verbs = tuple(verb for verb in table.verbs if verb.__name__ == word)
    groups = {name: group for name, group in table.groups.items() if name == word}
    return (VerbTable(table.panel, verbs, groups),) if verbs or groups else ()


def _import_verb(address: str) -> Verb:
    return import_part(f"culmen.cli.{address}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    The console script passes the exit code to the system.
    """
    words = _expand_aliases(list(sys.argv[1:] if arguments is None else arguments) or ["--help"])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run_verb(words, Screen("--json" in words))
    except BrokenPipeError:  # the reader has gone (culmen log | head): end without a message
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run_verb(words: list[str], screen: Screen) -> int:
    try:
        code = make_app(words[0])(args=words, prog_name="culmen", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except UserError as error:
        screen.print_error(_error_kind(error), error.what, error.where, error.fix)
        return error.exit_code
    except CulmenError as error:
        screen.print_error(_error_kind(error), str(error))
        return error.exit_code
    except _UsageError as error:
        return _report_misuse(screen, error)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost frame: a bug is shown whole, with a code of its own
        if (theirs := errors.as_user_code_error(error)) is not None:
            screen.print_error(_error_kind(theirs), theirs.what, theirs.where, theirs.fix)
            return theirs.exit_code
        traceback.print_exc()
        screen.print_error(
            "bug",
            f"{type(error).__name__}: {error}",
            fix="this is a bug in culmen; nothing journaled is lost",
        )
        return BUG


def _report_misuse(screen: Screen, error: Any) -> int:
    """Report an unknown verb or option, or a value of the wrong kind; the exit code."""
    command = error.ctx.command_path if error.ctx else "culmen"
    message = error.format_message().replace("\n", " ").partition(" (Possible options:")[0]
    screen.print_error("usage", message, command, _suggested_command(error, command))
    return int(error.exit_code)


def _error_kind(error: CulmenError) -> str:
    """`RunLocked` -> `run_locked`."""
    name = type(error).__name__
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


_OTHER_WORDS = {  # names of these verbs in other programs, and guesses of users
    "check": ("eval", "evaluate", "test", "validate", "try"),
    "best": ("result", "results", "winner"),
    "fork": ("extend", "branch"),
    "log": ("logs", "events", "history", "tail"),
    "new": ("init", "create"),
    "resume": ("continue", "restart"),
    "run": ("evolve", "optimize", "optimise", "search", "start", "train"),
    "status --all": ("list", "ls", "runs", "ps"),
    "stop": ("kill", "cancel", "pause"),
    "ui": ("dashboard", "serve", "web", "gui", "visualize"),
    "vacuum": ("clean", "gc"),
}
_VERBS = {word: verb for verb, words in _OTHER_WORDS.items() for word in words}
_TASKS = ("task.toml", "evaluator.py")


def _expand_aliases(words: list[str]) -> list[str]:
    """The arguments, with `help VERB`, `version` and `-V` as the options that they stand for."""
    if words[0] == "help":
        return [*words[1:], "--help"]
    return ["--version", *words[1:]] if words[0] in ("version", "-V") else words


_OTHER_OPTIONS = {  # names of these options in other programs, and guesses of users
    "--budget evaluations=N": (
        "--iterations",
        "--max-iterations",
        "--num-iterations",
        "--n-iterations",
        "--n-trials",
        "--trials",
        "--generations",
        "--num-generations",
        "--evaluations",
        "--max-metric-calls",
        "--max-evals",
        "--max-evaluations",
        "--evals",
        "--n-evals",
    ),
    "--budget dollars=N": ("--dollars", "--max-cost", "--cost", "--max-dollars"),
    "--budget calls=N": ("--calls", "--max-calls"),
    "--budget seconds=10m": ("--seconds", "--time", "--timeout", "--max-time", "--minutes"),
    "--run-dir DIR": ("--output", "--output-dir", "--out", "-o", "--save-dir", "--results-dir"),
    "--seed-program FILE": ("--initial-program", "--init-program", "--program", "--initial"),
    "--model NAME": ("--llm", "--lm", "--primary-model"),
    "--models FILE": ("--config", "-c"),
    "--direction min": ("--minimize", "--minimise"),
    "--direction max": ("--maximize", "--maximise"),
}
_OPTIONS = {word: option for option, words in _OTHER_OPTIONS.items() for word in words}


def _suggested_command(error: Any, command: str) -> str:
    """The command to type instead; `command` is the part that was understood."""
    wrong = getattr(error, "option_name", None)
    if wrong in _OPTIONS:
        return f"{_OPTIONS[wrong]}; all options: {command} --help"
    if near := getattr(error, "possibilities", None):
        option = next(iter(difflib.get_close_matches(wrong or "", near, n=1)), "")
        return (
            f"did you mean {option}? all options: {command} --help"
            if option
            else f"{command} --help"
        )
    words = error.format_message().split("'")
    if words[0] == "No such command " and words[1].lower() in _VERBS:
        return f"culmen {_VERBS[words[1].lower()]}; all verbs: culmen --help"
    if words[0] == "Missing argument " and words[1] == "TASK":
        here = any(Path(name).is_file() for name in _TASKS)
        return (
            f"{command} ."
            if here
            else f"{command} FOLDER, or write a task to start from: culmen new mytask"
        )
    return f"{command} --help"


if __name__ == "__main__":
    raise SystemExit(main())
