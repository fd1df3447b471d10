"""The error tree, and the attribution of errors to culmen's or to the user's code.

A candidate's failure is a value (`Status`), never one of these errors. `UserError` and its children
are mistakes or circumstances that the user can fix: they state the problem, its place and the next
command, and the CLI prints them without a traceback. Any other exception is a bug.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

# of words of others: an interpreter prints an error's text to the terminal as it is
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f]")
# a command of a shell, or an option with its value
_OPTION = re.compile(
    r"\b(?:culmen|pip) [^;]*|--(?:set )?(?!set\b)([a-z]\w*)[ =]"
    r"((?!(?:and|or)\b)(?:[^\s;,()]|\([^)]*\))+)"
)


def _as_keyword(name: str, value: str) -> str:
    return f"{name}={'True' if value == 'on' else value if value.isdecimal() else repr(value)}"


class CulmenError(Exception):
    """Base of every error culmen raises on purpose."""

    exit_code = 1


class UserError(CulmenError):
    """A mistake or circumstance the user can fix.

    `what` is the problem, `where` its place (a file, a key, a run) and `fix` the next command or
    edit, each one plain sentence.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: object = "", fix: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.fix = what, str(where), fix

    def __str__(self) -> str:
        """The three in lines, as Python shows them; options of the command line also as keywords.

        The keywords have a line of their own: what is quoted of a user's text stays as it is.
        """
        keywords = ", ".join(_as_keyword(*each) for each in _OPTION.findall(self.fix) if each[0])
        labels = {"  where: ": self.where, "  next:  ": self.fix, "  Python: ": keywords}
        text = "\n".join([self.what, *(label + line for label, line in labels.items() if line)])
        return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class TaskError(UserError):
    """The task folder, its `task.toml`, its cases or its evaluator cannot be used."""


def missing_extra(who: str, package: str, extra: str, where: str = "") -> UserError:
    """The error for a `package` that `who` needs and that is not installed.

    `extra` is the extra of culmen that brings it.
    """
    fix = f"pip install 'culmen[{extra}]', in the environment culmen runs in"
    what = f"{who} needs the package {package}, which is not installed"
    return UserError(what, where=where, fix=fix)


class NothingScored(UserError):
    """A search has ended without a score; the message has the evaluator's own traceback."""

    exit_code = 1


class NoAnswer(NothingScored):
    """No answer of a model could be used, so nothing but initial programs has a score."""


class RunLocked(UserError):
    """Another process is writing this run."""

    exit_code = 3


class JournalMismatch(UserError):
    """The replayed strategy asked for an effect other than the one in the journal."""

    exit_code = 4


class JournalDamaged(UserError):
    """The journal cannot be read in its present state."""

    exit_code = 4


class IsolationError(UserError):
    """The isolation level asked for with `--require` is not in force on this machine."""

    exit_code = 5


class Unavailable(UserError):
    """An outside resource failed (disk full, provider down); the run can be resumed."""

    exit_code = 75


# Attribution of lines: the places in tracebacks that are the user's own, neither culmen's nor a
# library's.

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TASKS = os.path.join(_OURS, "extensions", "builtin") + os.sep  # written like a user's
_LIBRARY = re.compile(r"[/\\]lib[/\\]python\d|[/\\]site-packages[/\\]|^<frozen ")
_JAILED = re.compile(r"^/w/|[/\\]culmen-jail-")
_IN_TEXT = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?')


class Place(NamedTuple):
    """A line of a file, and the function that contains it ("" outside any)."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        inside = (
            f", in {self.function}" if self.function and not self.function.startswith("<") else ""
        )
        return f"{self.file} line {self.line}{inside}"

    @property
    def file_and_line(self) -> str:
        """`evaluator.py line 12`."""
        return f"{os.path.basename(self.file)} line {self.line}"


def is_culmen_file(file: str) -> bool:
    """True if a file is part of culmen, the built-in tasks excepted."""
    return file.startswith(_OURS) and not file.startswith(_TASKS)


def is_library(file: str) -> bool:
    """True if a file belongs to Python itself or to an installed package."""
    return bool(_LIBRARY.search(file))


def is_jailed(file: str) -> bool:
    """True if a file is in a work folder made by a jail: a candidate's file, or one it wrote."""
    return bool(_JAILED.search(file))


def place_in_text(trace: str) -> Place | None:
    """The innermost place of a traceback's text that is the user's own."""
    found = [Place(file, int(line), name) for file, line, name in _IN_TEXT.findall(trace)]
    own = [
        place for place in found if not is_culmen_file(place.file) and not is_library(place.file)
    ]
    named = [place for place in own if not place.file.startswith("<")]
    return named[-1] if named else None


def user_code_place(error: BaseException) -> Place | None:
    """The innermost place of the user's own code that culmen had called when this was raised.

    None if the error is culmen's own.
    """
    if isinstance(error, SyntaxError) and error.filename and not is_culmen_file(error.filename):
        return Place(error.filename, error.lineno or 1)
    place, inside = None, False
    for frame in _iter_tracebacks(error.__traceback__):
        file = frame.tb_frame.f_code.co_filename
        inside = inside or is_culmen_file(file)
        if (
            inside
            and not is_culmen_file(file)
            and not is_library(file)
            and not file.startswith("<")
        ):
            place = Place(file, frame.tb_lineno, frame.tb_frame.f_code.co_name)
    return place


def as_user_code_error(error: Exception, kept: str = "") -> UserError | None:
    """The error as a `UserError` about the user's own code, with the places in that code.

    None if culmen had not called the user's code. `kept` completes the fix: the results that are
    not lost.
    """
    place = user_code_place(error)
    if place is None:
        return None
    shown = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not is_culmen_file(frame.filename)
    ]
    inner = next((i for i, frame in enumerate(shown) if frame.filename == place.file), len(shown))
    report = "".join(
        [*traceback.format_list(shown[inner:]), *traceback.format_exception_only(error)]
    )
    indented = "\n".join(f"  {line}" for line in report.rstrip().splitlines())
    return UserError(
        f"your code raised {type(error).__name__}\n\n{indented}\n",
        where=str(place),
        fix=f"correct {place.file_and_line}{kept}",
    )


@contextmanager
def reraise_user_code_errors() -> Generator[None]:
    """Re-raise errors of the user's own code as a `UserError` that names the place."""
    try:
        yield
    except CulmenError:
        raise
    except Exception as error:
        if (
            theirs := as_user_code_error(error, "; what was finished is kept: culmen resume RUN")
        ) is None:
            raise
        raise theirs from error


def _iter_tracebacks(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next
