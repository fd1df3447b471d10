"""Guards for foreign words: texts of models, candidates, evaluators and files of others.

A function that reads such words is a `boundary`: docs/threats.md lists them, tests fuzz each.
"""

from __future__ import annotations

import ast
import csv
import functools
import re
import struct
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import ParamSpec, TypeVar, cast

import msgspec

from culmen.core.errors import CulmenError, UserError

UNREADABLE = "unreadable"  # the fault of a reply or candidate whose words could not be read

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

# what our code can raise for words it did not expect; errors of the system and of users pass
_RAISED = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NameError),
    *(RuntimeError, SyntaxError, SystemError, TypeError, ValueError, StopIteration, re.error),
    *(csv.Error, EOFError, msgspec.MsgspecError, struct.error),
)


class Unreadable(UserError):
    """Words that a boundary could not read: `boundary` is its name, `kind` the error's class."""

    def __init__(self, boundary: str, kind: str, detail: str) -> None:
        self.boundary, self.kind = boundary, kind
        what = f"{UNREADABLE}: {kind} in {boundary}: {' '.join(detail.split())[:200]}"
        super().__init__(what, fix="shorten or simplify that text")


def boundary(
    most: int = 1 << 24,  # as many bytes of a reply are read at most (docs/threats.md)
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Make a function a boundary: it returns, or raises `Unreadable` or another `CulmenError`.

    Texts, bytes and mappings of texts among its positional arguments may have `most` characters in
    all; more is not read. Its own limits of nesting apply inside: deeper words end in a
    `RecursionError`, which is caught like other errors of its code.
    """

    def decorate(read: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        name = f"{read.__module__.removeprefix('culmen.')}.{read.__qualname__}"

        @functools.wraps(read)
        def guarded(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            if (size := sum(map(_count_characters, args))) > most:
                raise Unreadable(name, "TooLong", f"{size:,} characters, at most {most:,} are read")
            try:
                return read(*args, **kwargs)
            except CulmenError:
                raise
            except _RAISED as error:
                raise Unreadable(name, type(error).__name__, str(error)) from error

        return guarded

    return decorate


def _count_characters(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if not isinstance(value, Mapping):
        return 0
    texts = cast("Mapping[object, object]", value).values()
    return sum(len(text) for text in texts if isinstance(text, str | bytes))


# CPython 3.11.2 to 3.11.7 count the depth of a tree for all threads together (gh-106905): a parse
# beside another one raises SystemError for a correct program.
_PARSER = threading.Lock()


def parse_python(text: str) -> ast.Module:
    """The syntax tree of a Python text; raise `SyntaxError` for any that cannot be parsed."""
    problem = ""
    for _ in range(3):  # since a thread of the user's own may parse without the lock
        try:
            with _PARSER, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(text)
        except SystemError as error:
            problem = f"SystemError: {error}"
        except (ValueError, RecursionError, MemoryError, OverflowError) as error:
            problem = str(error) or type(error).__name__
            break
    raise SyntaxError(problem)


def parse_python_or_none(text: str) -> ast.Module | None:
    """The syntax tree of a Python text; None for any that cannot be parsed.

    Readers of one text share the tree: it must not be changed.
    """
    return _parse_once(text if text.endswith("\n") else f"{text}\n")


@functools.lru_cache(maxsize=16)  # few: the garbage collector visits all nodes of a tree
def _parse_once(text: str) -> ast.Module | None:
    try:
        return parse_python(text)
    except SyntaxError:
        return None


@boundary(150_000)  # characters, of which about 100,000 are read in a second
def yaml_value(text: str) -> object:
    """The value of a YAML text; also raises `yaml.YAMLError`."""
    import yaml

    return yaml.safe_load(text)


def without_surrogates(text: str) -> str:
    """The text with a question mark for each lone surrogate, which has no UTF-8 form."""
    return text.encode("utf-8", "replace").decode("utf-8")


# Python programs in pieces, one for each function or class at the margin.

ODD_LINES = re.compile(r"[\r\f]")  # Python's parser may count lines differently there
SHORT = 10_000  # characters of the longest piece that is remembered, and pieces

_HEAD = re.compile(r"^(?:@.*\n)*(?:async +)?(?:def|class)\b", re.M)


@lru_cache(maxsize=16)
def split_pieces(text: str) -> tuple[str, ...]:
    """The text in pieces that are programs by themselves; () if it is not Python.

    Pieces that parse are Python together as well, statement by statement: each begins at the
    margin, with nothing left open before it. If one does not parse (a string holds such a line, an
    `else` follows), the text is one piece.
    """
    if "\r" not in text and "\f" not in text:
        places = [0, *(start for head in _HEAD.finditer(text) if (start := head.start()))]
        pieces = tuple([text[low:high] for low, high in pairwise([*places, len(text)])])
        if all(_can_parse(piece) for piece in pieces if piece not in _PARSED):
            return pieces
    return (text,) if _can_parse(text) else ()


def parses(text: str) -> bool:
    """True if a text is Python."""
    return bool(split_pieces(text))


_PARSED: set[str] = set()  # pieces that are Python


def _can_parse(text: str) -> bool:
    can = text in _PARSED or parse_python_or_none(text) is not None
    if can and len(text) <= SHORT:
        if len(_PARSED) > SHORT:
            _PARSED.clear()
        _PARSED.add(text)
    return can
