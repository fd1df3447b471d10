"""The `culmen` command: runs one verb, turns errors into messages and exit codes.

`OWN` has the addresses of the core's verbs; extensions add tables of theirs. A verb's module is
imported when the verb is used.

Exit codes: 0 done; 1 findings, such as a task that fails its check; 2 a mistake the user can fix; 3
the run is being written by another process; 4 the journal does not fit or is damaged; 5 the
isolation asked for is not in force; 70 a bug in culmen; 75 something outside gave up, the run can
be resumed; 130 interrupted. Those of `judge` are verdicts up to 3, and its errors of the user 64.
"""

from __future__ import annotations

import difflib
import errno
import io
import os
import shlex
import sys
import traceback
from collections.abc import Container, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import typer

from culmen.cli import first_page
from culmen.cli.screen import Screen
from culmen.cli.verbs import VerbTable, declare_tables
from culmen.core import errors
from culmen.core.errors import CulmenError, UserError
from culmen.core.extensions import import_part, part_addresses

BUG = 70
MISUSE = 64
_VERDICTS = 3  # largest exit code that is a verdict of `judge`
GAVE_UP = 75
_UsageError: type[Exception] = typer.BadParameter.__mro__[
    1
]  # click's, wherever this version of typer keeps it

OWN = {  # verbs of the core by group and panel, in the order of the help
    "": {
        "Start": "start:demo start:new start:check",
        "Search": "search:run search:resume",
        "Look at a run": "look:status look:best look:story look:show",
        "About": "about:doctor about:docs guide:help about:strategies about:templates",
    },
    "runs": {
        "Follow a run": "attend:watch attend:stop attend:tell",
        "Go on from a run": "search:fork",
        "Keep a run": "keep:export keep:replay keep:recover keep:archive keep:vacuum keep:POOL",
    },
}
_RUNS = "Follow runs, go on from them, keep them and take them elsewhere."


def _culmen() -> None: ...


@cache
def make_app(*words: str) -> typer.Typer:
    """The command line; made once for the same words.

    It has all verbs, those of extensions included, unless the words lead to one verb or group:
    then it has what begins with them alone, and what the others need is not imported.

    Raises `UserError` for an extension that cannot be used.
    """
    app = typer.Typer(
        name="culmen",
        help=first_page.ABOUT,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_culmen)
    declare_tables(app, _find_tables(words))
    return app


def _find_tables(words: Sequence[str]) -> Iterator[VerbTable]:
    """The tables with the verb or group that the words begin with; all if there is none."""
    wanted = next((key for key in (" ".join(words), *words[:1]) if key in _own_verbs()), "")
    if wanted:  # also if an extension is broken
        yield from _own_tables({wanted})
        return
    added = part_addresses("verbs")
    if " ".join(words) in added:
        named = {" ".join(words)}
    else:
        keys = {*_own_verbs(), *added}
        named = {key for key in keys if words and key.split()[0] == words[0]} or keys
    yield from _own_tables(named)
    yield from map(import_part, dict.fromkeys(a for key, a in added.items() if key in named))


@cache
def _own_verbs() -> dict[str, tuple[str, str]]:
    """Panel and address of each verb of the core, by its words."""
    return {
        f"{group} {address.partition(':')[2].lower()}".strip(): (panel, f"culmen.cli.{address}")
        for group, panels in OWN.items()
        for panel, addresses in panels.items()
        for address in addresses.split()
    }


def _own_tables(named: Container[str]) -> Iterator[VerbTable]:
    """The tables of the named verbs of the core."""
    for words, (panel, address) in _own_verbs().items():
        if words in named:
            in_runs, _, name = words.rpartition(" ")
            part = import_part(address)
            yield (
                VerbTable(panel, groups={in_runs: (_RUNS, {name: part})})
                if in_runs
                else VerbTable(panel, (part,))
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    The console script passes the exit code to the system.
    """
    words = _expand_aliases(list(sys.argv[1:] if arguments is None else arguments) or ["--help"])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")  # a file gets the text itself, whatever the locale
    if first_page.is_answered_here(words):
        sys.stdout.write(first_page.answer(words))
        return 0
    try:
        return _run_verb(words, Screen("--json" in words))
    except BrokenPipeError:  # the reader has gone (culmen show --log | head): end without a message
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run_verb(words: list[str], screen: Screen) -> int:
    if moved := describe_move(words):
        screen.print_error("usage", moved[0], fix=moved[1])
        return UserError.exit_code
    try:
        completes = "_CULMEN_COMPLETE" in os.environ  # any word may come
        app = make_app(*([] if completes else words[:2]))
        code = app(args=words, prog_name="culmen", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except UserError as error:
        screen.print_error(_error_kind(error), error.what, error.where, error.fix)
        return _error_code(words, error.exit_code)
    except CulmenError as error:
        screen.print_error(_error_kind(error), str(error))
        return _error_code(words, error.exit_code)
    except _UsageError as error:
        return _error_code(words, _report_misuse(screen, error))
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost frame: a bug is shown whole, with a code of its own
        if (theirs := errors.as_user_code_error(error)) is not None:
            screen.print_error(_error_kind(theirs), theirs.what, theirs.where, theirs.fix)
            return theirs.exit_code
        if (limit := _limit_met(error)) is not None:
            what, fix, code = limit
            screen.print_error("limit", what, fix=fix)
            return code
        traceback.print_exc()
        screen.print_error(
            "bug",
            f"{type(error).__name__}: {error}",
            fix="this is a bug in culmen; nothing journaled is lost",
        )
        return BUG


def _error_code(words: Sequence[str], code: int) -> int:
    """The exit code of an error; another one where the small codes are verdicts."""
    return MISUSE if words[0] == "judge" and 0 < code <= _VERDICTS else code


def _limit_met(error: BaseException) -> tuple[str, str, int] | None:
    """Message, next command and exit code of a limit of the system behind an error, or None."""
    again = "then culmen resume RUN, if a run was begun"
    chain: BaseException | None = error
    while chain is not None:
        number = chain.errno if isinstance(chain, OSError) else None
        if isinstance(chain, MemoryError) or number == errno.ENOMEM:
            return (
                "the memory limit of this process is met",
                f"ulimit -v unlimited; {again}",
                GAVE_UP,
            )
        if number in (errno.EMFILE, errno.ENFILE):
            return "too many files are open for this process", f"ulimit -n 1024; {again}", GAVE_UP
        if number == errno.ENAMETOOLONG and isinstance(chain, OSError):
            name = max(os.fsdecode(chain.filename or "").split("/"), key=len)
            what = f"a name is too long for a file: {name[:40]}..."
            return what, "use at most 255 bytes a name", UserError.exit_code
        if isinstance(chain, ValueError) and str(chain).startswith("embedded null"):
            return "a name holds a NUL character", "name files in letters", UserError.exit_code
        if isinstance(chain, RuntimeError) and str(chain).startswith("Symlink loop"):
            return str(chain), "remove that link", UserError.exit_code
        chain = chain.__cause__ or chain.__context__
    return None


def _report_misuse(screen: Screen, error: Any) -> int:
    """Report an unknown verb or option, or a value of the wrong kind; the exit code."""
    command = error.ctx.command_path if error.ctx else "culmen"
    message = error.format_message().replace("\n", " ").partition(" (Possible options:")[0]
    if not message:  # a group without a verb: its help has been shown
        return 0
    screen.print_error("usage", message, command, _suggested_command(error, command))
    return int(error.exit_code)


def _error_kind(error: CulmenError) -> str:
    """`RunLocked` -> `run_locked`."""
    name = type(error).__name__
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


_OTHER_WORDS = {  # names of these verbs in other programs, and guesses of users
    "check": "eval evaluate test validate try",
    "best": "result results winner",
    "runs fork": "extend branch",
    "show --log": "logs events history tail",
    "new": "init create",
    "resume": "continue restart",
    "run": "evolve optimize optimise search start train",
    "status --all": "list ls ps",
    "runs stop": "kill cancel pause",
    "ui": "dashboard serve web gui visualize",
    "runs vacuum": "clean gc",
}
_VERBS = {word: verb for verb, words in _OTHER_WORDS.items() for word in words.split()}
EXTENSION_OF = {
    "advisor": "train",
    "audit": "audit",
    "compare": "bench",
    "db": "cluster",
    "import": "importers",
    "judge": "judge",
    "mcp": "mcp",
    "paper": "bench",
    "prompt": "prompt",
    "receipt": "judge",
    "report": "web",
    "skill": "skills",
    "track": "trackers",
    "ui": "web",
}
"""Verbs and groups of culmen's own extensions, for an installation without their folder."""
_TASKS = ("task.toml", "evaluator.py")
_WITH_COMMAND = ("judge", "check", "run", "audit", "compare power")
"""Verbs that take a command after `--`."""


def _expand_aliases(words: list[str]) -> list[str]:
    """The arguments, with `help VERB`, `version` and `-V` as the options that they stand for.

    So is a command after `--`.
    """
    if "--" in words[1:] and " ".join(words).startswith(_WITH_COMMAND):
        place = words.index("--")
        return [*words[:place], "--command", shlex.join(words[place + 1 :])]
    about = words[1] if len(words) > 1 else ""
    if words[0] == "help" and about != "settings" and not about.startswith("-"):
        return [*words[1:], "--help"]
    return ["--version", *words[1:]] if words[0] in ("version", "-V") else words


_OTHER_OPTIONS = {  # names of these options in other programs, and guesses of users
    "--budget evaluations=N": (
        "--iterations --max-iterations --num-iterations --n-iterations --n-trials "
        "--trials --generations --num-generations --evaluations --max-metric-calls "
        "--max-evals --max-evaluations --evals --n-evals"
    ),
    "--budget dollars=N": "--dollars --max-cost --cost --max-dollars",
    "--budget calls=N": "--calls --max-calls",
    "--budget seconds=10m": "--seconds --time --timeout --max-time --minutes",
    "--run-dir DIR": "--output --output-dir --out -o --save-dir --results-dir",
    "--seed-program FILE": "--initial-program --init-program --program --initial",
    "--model NAME": "--llm --lm --primary-model",
    "--models FILE": "--config -c",
    "--direction min": "--minimize --minimise",
    "--direction max": "--maximize --maximise",
}
_OPTIONS = {word: option for option, words in _OTHER_OPTIONS.items() for word in words.split()}


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
    if words[0] == "No such command " and words[1] in EXTENSION_OF:
        own = f"the extension '{EXTENSION_OF[words[1]]}' has it, which is not installed here"
        return f"{own}: pip install --force-reinstall culmen"
    if words[0] == "No such command " and words[1].lower() in _VERBS:
        return f"culmen {_VERBS[words[1].lower()]}; all verbs: culmen help --all"
    if words[0] == "Missing argument " and words[1] == "TASK":
        here = any(Path(name).is_file() for name in _TASKS)
        return (
            f"{command} ."
            if here
            else f"{command} FOLDER, or write a task to start from: culmen new mytask"
        )
    return "culmen help --all" if command == "culmen" else f"{command} --help"


# Verbs and options that had another name before: the command line to type instead.

_MOVED = {
    "runs": "watch stop tell fork export track replay recover archive vacuum db pool advisor",
    "skill": "mine tools nightly",
    "compare": "analyze score power",
    "compare --suite": "bench",
    "paper": "reproduce",
    "show": "explain lineage log diff",
}
VERBS = {verb: group for group, verbs in _MOVED.items() for verb in verbs.split()}
"""Verbs by name, and the group that has them today, or the verb whose view they are."""

GONE = {
    "worker": ("Ray and Slurm do what workers did", "culmen docs scaling"),
    "queue": ("Ray and Slurm do what the queue did", "culmen docs scaling"),
    "skill nightly": (
        "'skill nightly' is two commands now",
        "culmen skill mine --out HOUSE, then culmen run HOUSE",
    ),
    "import alphaevolve": (
        "culmen no longer reads notebooks, few of which hold all that a task needs",
        "culmen new FOLDER, and paste the notebook's evaluator",
    ),
    "import frontier-cs": (
        "a problem of Frontier-CS is a task folder whose evaluator calls its checker",
        "culmen new FOLDER; culmen docs tasks",
    ),
    "runs advisor chat": (
        "an exported advisor is asked through the server that serves it",
        "culmen runs advisor export RUN",
    ),
    "runs db migrate": ("a database needs no migration", "culmen runs db list URL"),
    "report --card": ("the card is gone; --pdf prints the page", "culmen report RUN --pdf FILE"),
    "compare power --aa": (
        "programs are no longer compared with themselves",
        "culmen compare power TASK",
    ),
    "paper reproduce --page": (
        "the page of all places is written by bench/make_reproduce.py of the repository",
        "culmen paper reproduce PLACE",
    ),
    "paper wording": (
        "wordings are compared by bench/bench_wording.py of the repository",
        "culmen paper reproduce",
    ),
    "show --starts": ("--all has the starts of effects", "culmen show RUN --log --all"),
}
"""Verbs and options that are no more: a sentence, and the command to type."""

SETTINGS = {
    "--embedder": "embedder",
    "--templates": "templates",
    "--integrity": "integrity",
    "--prior": "prior",
    "--pool-share": "pool_share",
    "--allow-failing": "allow_failing",
    "--proxy": "proxy",
    "--ray-address": "backend.address",
    "--backend-set": "backend.",
}
"""Options of the verbs that search, and the name that `--set` gives them today."""

_SEARCHING = (["run"], ["resume"], ["prompt"], ["runs", "fork"])
_FLAG = "--allow-failing"  # the only one without a value
_FOLLOW = {"--follow", "-f"}
_BENCH_RUNS = Path("bench"), Path("runs/bench")  # `compare bench` may name a run


def current_words(words: Sequence[str]) -> list[str]:
    """The words of a command line by today's names; the same words if nothing has moved."""
    verb, rest = words[0], list(words[1:])
    if verb == "compare" and rest[:1] == ["bench"] and not any(map(Path.exists, _BENCH_RUNS)):
        verb, rest = "bench", rest[1:]
    group = VERBS.get(verb, "").split()
    found = [*group, *rest] if verb == "bench" else [*group, verb, *rest]
    if group == ["show"] or (verb == "show" and _FOLLOW.intersection(rest)):
        found = _view_words(verb, rest)
    searches = any(found[: len(each)] == each for each in _SEARCHING)
    return list(_words_with_settings(found)) if searches else found


def describe_move(words: Sequence[str]) -> tuple[str, str] | None:
    """A sentence on what has moved or gone, and the command to type; None if nothing has.

    The command has all arguments if the words have another name alone.
    """
    today = current_words(words)
    options = {word.partition("=")[0] for word in today}
    for gone, answer in GONE.items():
        verb = gone.partition(" --")[0].split()
        if today[: len(verb)] == verb and options.issuperset(gone.split()):
            return answer
    if today == list(words):
        return None
    moved = [option for word in words if (option := word.partition("=")[0]) in SETTINGS]
    what = "this command has another name now"
    if words[0] in VERBS:
        what = f"'culmen {words[0]}' has another name now"
    elif moved:
        what = f"{', '.join(dict.fromkeys(moved))} is a setting now: --set NAME=VALUE"
    return what, f"culmen {shlex.join(today)}"


def _view_words(view: str, rest: Sequence[str]) -> list[str]:
    """The words of `show` for one of the verbs that are its views today."""
    count = next((i for i, word in enumerate(rest) if word.startswith("-")), len(rest))
    names, options = rest[:count], rest[count:]
    if view in ("log", "show") and _FOLLOW.intersection(options):
        return ["runs", "watch", *names]
    if view == "diff":
        run, first, second = names[:1], names[1:2] or ["seed"], names[2:]
        return ["show", *run, *second, "--diff", *first, *options]
    return ["show", *names, f"--{view}", *options]


def _words_with_settings(words: Sequence[str]) -> Iterator[str]:
    """The words with today's `--set` in place of the options that became settings."""
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        name = SETTINGS.get(option)
        if name is None:
            yield word
            continue
        value = "on" if option == _FLAG else value if equals else next(rest, "VALUE")
        pairs = value.split(",") if name.endswith(".") else [f"={value}"]
        for pair in pairs:
            yield from ("--set", f"{name}{pair}")


if __name__ == "__main__":
    raise SystemExit(main())
