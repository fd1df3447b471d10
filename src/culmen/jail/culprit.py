"""Culprits of exceptions that an evaluator let through.

The culprit is the evaluator, its candidate, or a service that the evaluator uses.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator, Mapping

from culmen.core import errors
from culmen.core.foreign import lazy_pattern

AWAY = {
    "ConnectionError",
    "ConnectError",
    "ConnectTimeout",
    "ReadTimeout",
    "ReadError",
    "RemoteProtocolError",
    "Timeout",
    "URLError",
    "gaierror",
    "APIConnectionError",
    "APITimeoutError",
    "RateLimitError",
    "InternalServerError",
    "ServiceUnavailableError",
    "AuthenticationError",
    "PermissionDeniedError",
    "RemoteDisconnected",
}
# status codes for a fault of the account or a temporary one, not of the question
_TEMPORARY_STATUS = (401, 402, 403, 408, 409, 425, 429)
_CODE = r"(?:40[1-389]|425|429|5\d\d)\b"
_OUTAGE_TEXT = lazy_pattern(
    rf"\berror code: {_CODE}|\b(?:http|status)(?:[ _-]?(?:status|error))?(?:[ _-]?code)?[ "
    rf":=]+{_CODE}"
    r"|\b(?:is|are|currently|temporarily|model|server) "
    r"overloaded\b|\boverloaded_error\b|^overloaded\b"
    r"|\brate[ _-]?limit(?:ed|s)?(?: was| is)? (?:reached|exceeded|error)|\btoo many requests\b"
    r"|\b(?:service|temporarily) unavailable\b|\bbad gateway\b|\bgateway time-?out\b"
    r"|\b(?:read|write|connect|connection|handshake|request)(?: operation)? timed out\b"
    r"|\bconnection (?:reset by peer|refused|aborted)\b|\bserver disconnected\b"
    r"|\bremote end closed connection\b",
    re.IGNORECASE,
)
_LOST_CONNECTION = lazy_pattern(
    r"\bconnection\b.*\b(?:lost|reset|refused|closed|aborted|dropped|failed)\b", re.I | re.S
)
_SERVICE = lazy_pattern(
    r"\b(?:model (?:server|service|provider|api|endpoint)|language "
    r"model|llm|api|provider|endpoint|openai|anthropic)\b"
    r"|https?://",
    re.IGNORECASE,
)
_DATA_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    NameError,
    SyntaxError,
)
_TEXT_CHARS = 20_000  # of an exception's text, in which an outage is looked for
_NETWORK = lazy_pattern(
    r"[/\\](?:socket|ssl|http[/\\]client|urllib[/\\]\w+)\.py$"
    r"|[/\\](?:httpx|httpcore|urllib3|requests)[/\\]"
)


def is_outage(error: BaseException, parts: Mapping[str, str], heard: str = "") -> bool:
    """True if an exception reports a service, such as a model, that is not available now.

    Recognised by its class or status code or, unless it is an error about data, by its text, if
    that is found neither in the `parts` of the candidate nor in its output `heard`. What cannot be
    read reports nothing.
    """
    try:
        return _is_away(error, parts, heard)
    except BaseException:  # noqa: BLE001 - a user's class may raise anything; long chains recurse
        return False


def _is_away(error: BaseException, parts: Mapping[str, str], heard: str) -> bool:
    if _raised_by(error, parts):
        return False
    status = next(
        (
            s
            for name in ("status_code", "code", "status")
            if isinstance(s := getattr(error, name, None), int)
        ),
        0,
    )
    if status:
        return status in _TEMPORARY_STATUS or status >= 500
    if any(kind.__name__ in AWAY for kind in type(error).__mro__) or _reports_outage(
        error, (*parts.values(), heard)
    ):
        return True
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return earlier is not None and _is_away(earlier, parts, heard)


def _reports_outage(error: BaseException, candidates: tuple[str, ...]) -> bool:
    if not isinstance(error, Exception) or isinstance(error, _DATA_ERRORS):
        return False
    text = str(error)[:_TEXT_CHARS]
    if isinstance(error, TimeoutError) and text == "timed out":
        return any(_NETWORK.search(file) for file in _traceback_files(error))
    match = _OUTAGE_TEXT.search(text) or (_SERVICE.search(text) and _LOST_CONNECTION.search(text))
    return bool(match) and not any(match[0].lower() in own.lower() for own in candidates)


def _traceback_files(error: BaseException) -> list[str]:
    return [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]


def _raised_by(error: BaseException, parts: Mapping[str, str]) -> bool:
    """True if the candidate's text raised it, or was cut off by a signal handler that did."""
    own = [
        file
        for file in _traceback_files(error)
        if not errors.is_culmen_file(file) and not errors.is_library(file)
    ]
    if isinstance(error, TimeoutError):
        return any(is_candidate_file(file, parts) for file in own)
    return bool(own) and is_candidate_file(own[-1], parts)


def is_candidate_file(file: str, parts: Mapping[str, str]) -> bool:
    """True if a traceback's file is the candidate's.

    That is: executed text, a file in a jail, a file that begins or ends with a part, or a file
    that has been removed.
    """
    if file.startswith(("<string", "<program", "<candidate", "<unknown")) or errors.is_jailed(file):
        return True
    if file.startswith("<") or "ipykernel" in file or file.endswith((".pyx", ".pxd")):
        return False
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            content = opened.read().strip()
    except OSError:
        return not os.path.exists(file)
    texts = [text.strip() for text in parts.values() if text.strip()]
    return any(content.startswith(text) or content.endswith(text) for text in texts)


# The same for a traceback's text: the only trace of an exception in another process.

_FRAME = lazy_pattern(r'File "([^"]+)", line \d+')
_CAUSED = "\nThe above exception was the direct cause of the following exception:\n"
_MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n"
_IN_PROGRAM = "\nin the program:\n"  # added by a proxy to an exception of the program
_BROKEN = lazy_pattern(
    r"^(?:NameError|UnboundLocalError|SyntaxError|IndentationError|TabError"
    r"|ModuleNotFoundError: No module named '([\w.]+)'"
    r"|FileNotFoundError: .*No such file or directory: '([^']+)')",
    re.MULTILINE,
)


def culprit_of_trace(trace: str, parts: Mapping[str, str], folder: str = "") -> str:
    """Culprit of an exception that left an evaluator: candidate, scorer or "" (undecided).

    The candidate's text raised it or its direct cause; or the evaluator, in `folder` ("": a
    function), has a name, an import or a file of its own wrong, which no candidate causes.
    """
    own_trace, _, in_program = trace.partition(_IN_PROGRAM)
    *causes, last = _traceback_blocks(own_trace)
    if in_program or any(_is_candidate_block(block, parts) for block in (*causes, last)):
        return "candidate"
    return "scorer" if _is_broken(last, parts, folder) else ""


def _traceback_blocks(trace: str) -> Iterator[str]:
    """The last exception's traceback, after those of its direct causes."""
    yield from trace.split(_MEANWHILE)[-1].split(_CAUSED)


def _user_files(block: str) -> list[str]:
    files = _FRAME.findall(block)
    return [
        file for file in files if not errors.is_culmen_file(file) and not errors.is_library(file)
    ]


def _is_candidate_block(block: str, parts: Mapping[str, str]) -> bool:
    own = _user_files(block)
    if re.search(r"^(?:\w+\.)*TimeoutError\b", block, re.MULTILINE):
        return any(is_candidate_file(file, parts) for file in own)
    return bool(own) and is_candidate_file(own[-1], parts)


def _is_broken(block: str, parts: Mapping[str, str], folder: str) -> bool:
    match, files, own = _BROKEN.search(block), _FRAME.findall(block), _user_files(block)
    if match is None or not own:
        return False
    module, file = match.groups()
    if module:
        return module.partition(".")[0] not in {
            os.path.splitext(os.path.basename(name))[0] for name in parts
        }
    if file:
        path = os.path.normpath(os.path.join(folder, file))
        return bool(folder) and path.startswith(os.path.join(folder, ""))
    return files[-1] == own[-1]
