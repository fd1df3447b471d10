"""Evaluators in any language: a program or a server that answers questions in JSON.

A program gets them by lines on its standard input, a server by HTTP on the loopback. This runs in
the scorer's process, which no candidate's code enters, and replaces a Python function `score`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from urllib.parse import urlsplit

from culmen.core.errors import IsolationError, TaskError
from culmen.core.evaluation import Scoring
from culmen.core.extensions import find_part, import_part, part_addresses
from culmen.core.json import JsonObject
from culmen.core.task import IMAGE_PREFIX, Evaluator

if TYPE_CHECKING:
    from http.client import HTTPConnection
    from types import ModuleType

LIMIT = 16 << 20  # bytes of an answer
_KEPT = 20_000  # bytes kept of a program's standard error
CONTRACT = (
    'the contract: each question is one JSON object with an "id"; its answer is one JSON '
    "object on one line with the "
    'same "id" and a "score" (a number, or null if the candidate is not acceptable), or with an '
    '"error" (culmen docs tasks)'
)
Judge = Callable[..., JsonObject]


class ContractViolated(BaseException):
    """The evaluator broke the contract, or ended; the candidate is not at fault."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; {CONTRACT}")


class Refused(Exception):
    """The evaluator answered with an error of its own."""


class JudgeType(Protocol):
    """A judge of an extension (slot `judges`), for commands that begin with `NAME:`.

    It runs in the scorer's process and may run the candidate itself.
    """

    scoring: ClassVar[Scoring]
    """The trust in its scores, and the reason."""
    level: ClassVar[str]
    """The level of isolation that candidates have."""
    starts_containers: ClassVar[bool]
    """True if it needs the environment of podman or docker."""

    def __init__(self, words: list[str]) -> None: ...

    def score(self, parts: dict[str, str]) -> JsonObject:
        """The answer for a candidate; may take any arguments that `score` of a task may take."""
        ...


def judge_address(program: Sequence[str]) -> str:
    """The address of the judge that a command names; "" for a program or an image."""
    scheme, colon, _ = next(iter(program), "").partition(":")
    return part_addresses("judges").get(scheme, "") if colon else ""


def judge_folder(address: str) -> str:
    """The folder that a judge's package is imported from; "" without a judge."""
    package = address.partition(":")[0].partition(".")[0]
    spec = find_spec(package) if package else None
    if spec is None or not spec.origin:
        return ""
    file = Path(spec.origin)
    return str(file.parents[1] if spec.submodule_search_locations else file.parent)


def judge_type(program: Sequence[str]) -> type[JudgeType] | None:
    """The judge that a command names; None for a program or an image."""
    address = judge_address(program)
    return import_part(address) if address else None


def starts_containers(program: Sequence[str]) -> bool:
    """True if the evaluator is an image, or its judge starts containers."""
    judge = judge_type(program)
    return judge.starts_containers if judge else next(iter(program), "").startswith(IMAGE_PREFIX)


def container_level() -> ModuleType:
    """The module of the level `container`; raise `IsolationError` if no package adds it."""
    found = find_part("jails", "container")
    if found is None:
        raise IsolationError(
            "no installed package runs containers", fix="pip install --force-reinstall culmen"
        )
    return found


def make_judge(program: list[str], url: str, address: str = "") -> Judge:
    """The judge that asks the program, or the server at `url`, or that of an extension.

    Raises OSError if it cannot be reached.
    """
    if address:
        return import_part(address)(program).score
    ask = ServerEvaluator(url).ask if url else ProgramEvaluator(program).ask
    number = 0

    def score(**offered: object) -> JsonObject:
        nonlocal number
        number += 1
        case = offered.get("case")
        known = (
            {key: getattr(case, key) for key in ("id", "input", "info", "split")}
            if case is not None
            else None
        )
        try:
            question = _encode_question({"id": number, **offered, "case": known})
        except (ValueError, TypeError, RecursionError) as error:
            return {"score": None, "feedback": f"the output cannot be written as JSON: {error}"}
        return _parse_answer(ask(question), number)

    return score


def url_fault(url: str) -> str:
    """The reason that a URL cannot be asked, "" for plain HTTP on the loopback."""
    from ipaddress import ip_address

    try:
        parts = urlsplit(url)
        local = parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback
        port = parts.port
    except ValueError:
        local, port = False, None
    if parts.scheme == "http" and local and port:
        return ""
    return (
        "it must be http://127.0.0.1:PORT/PATH (or localhost): culmen does not send candidates' "
        "outputs to other hosts"
    )


def _encode_question(question: JsonObject) -> bytes:
    def plain(value: Any) -> object:
        if type(value).__module__ == "numpy":
            return value.tolist()
        raise TypeError(f"it holds a {type(value).__name__}")

    return json.dumps(question, default=plain, allow_nan=False).encode() + b"\n"


def _parse_answer(line: bytes, number: int) -> JsonObject:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        raise ContractViolated(f"the evaluator's answer is not JSON: {_quote_line(line)}") from None
    if not isinstance(answer, dict):
        raise ContractViolated(f"the evaluator's answer is not an object: {_quote_line(line)}")
    if answer.pop("id", None) != number:
        raise ContractViolated(f"the evaluator's answer lacks the id {number}: {_quote_line(line)}")
    if "error" in answer:
        raise Refused(str(answer["error"])[:_KEPT])
    if "score" not in answer:
        raise ContractViolated(f"the evaluator's answer has no score: {_quote_line(line)}")
    for key in ("metrics", "artifacts"):
        if not isinstance(answer.get(key, {}), dict):
            raise ContractViolated(f"the evaluator's {key} are not an object: {_quote_line(line)}")
    return answer


def _quote_line(line: bytes) -> str:
    return repr(line[:200].decode("utf-8", "replace"))


class ProgramEvaluator:
    """A program that is started once and asked line by line.

    It is started anew after it ended or sent a line that is not an answer.
    """

    def __init__(self, command: list[str]) -> None:
        self._command, self._container = command, None
        if command[0].startswith(IMAGE_PREFIX):
            self._container = container_level().EvaluatorContainer(command)
        self._start_process()

    def ask(self, question: bytes) -> bytes:
        """The answer, one line; raise ContractViolated if there is none.

        The program's standard error is printed.
        """
        if self._process.poll() is not None:
            self._start_process()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        line = b""
        with contextlib.suppress(OSError):
            stdin.write(question)
            stdin.flush()
            line = stdout.readline(LIMIT + 1)
        if line.endswith(b"\n") and _is_answer_to(line, question):
            self._print_standard_error()
            return line
        # any later line would count as the answer to another question
        self._process.kill()
        status = self._process.wait()
        self._print_standard_error()
        if len(line) > LIMIT:
            raise ContractViolated(f"the evaluator's answer is longer than {LIMIT} bytes")
        if not line:
            raise ContractViolated(f"the evaluator ended without an answer (status {status})")
        return line

    def _start_process(self) -> None:
        pipe = subprocess.PIPE
        line = self._command if self._container is None else self._container.new_container_command()
        self._process = subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe)
        self._errors = _StandardError(self._process)

    def _print_standard_error(self) -> None:
        """Print the program's standard error since the last question."""
        sys.stdout.write(self._errors.take_text().decode("utf-8", "replace"))


class _StandardError:
    """The standard error of a process, read continuously so that the process never waits.

    Text written before an answer is taken with that answer: it is in the pipe by then, and `take`
    empties the pipe.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        self._pipe, self._buffer, self._lock = process.stderr, bytearray(), threading.Lock()
        os.set_blocking(self._pipe.fileno(), False)
        threading.Thread(target=self._read_continuously, daemon=True).start()

    def take_text(self) -> bytes:
        """The text since the last call, at most 20,000 bytes."""
        with self._lock:
            self._drain_pipe()
            text = bytes(self._buffer)
            self._buffer.clear()
        return text

    def _read_continuously(self) -> None:
        waiting = select.poll()  # not select.select: it refuses a descriptor of 1,024 and more
        waiting.register(self._pipe, select.POLLIN)
        open_ = True
        while open_:
            waiting.poll()
            with self._lock:
                open_ = self._drain_pipe()

    def _drain_pipe(self) -> bool:
        """Read all available bytes; return True if the pipe is still open at the other end."""
        try:
            while piece := os.read(self._pipe.fileno(), 1 << 16):
                self._buffer += piece[: max(0, _KEPT - len(self._buffer))]
        except BlockingIOError:
            return True
        return False


def _is_answer_to(line: bytes, question: bytes) -> bool:
    """True if a line is an answer to this question."""
    try:
        return json.loads(line)["id"] == json.loads(question)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


class ServerEvaluator:
    """A server on the loopback: each question is a POST, an answer has status 200."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connect().close()

    def _connect(self) -> HTTPConnection:
        from http.client import HTTPConnection

        connection = HTTPConnection(self._host, self._port)
        connection.connect()
        return connection

    def ask(self, question: bytes) -> bytes:
        """The body of the answer.

        Raises ContractViolated, and OSError if the server cannot be reached.
        """
        from http.client import HTTPException

        with contextlib.closing(self._connect()) as connection:
            try:
                connection.request(
                    "POST", self._path, question, {"Content-Type": "application/json"}
                )
                response = connection.getresponse()
                body = response.read(LIMIT + 1)
            except HTTPException as error:
                raise ContractViolated(
                    f"the evaluator's server does not speak HTTP: {type(error).__name__}"
                ) from None
        if response.status != 200:
            raise ContractViolated(
                f"the evaluator's server answered with status {response.status}: "
                f"{_quote_line(body)}"
            )
        if len(body) > LIMIT:
            raise ContractViolated(f"the evaluator's answer is longer than {LIMIT} bytes")
        return body


class ProgramMeasure(Protocol):
    """A measure of programs that takes the place of `score` (`[evaluator] metric`)."""

    judge: str
    """Module whose `make_judge(evaluator)` is the scorer's function."""
    functions: Mapping[str, tuple[str, ...]]
    """Functions that the evaluator must define, and their arguments."""
    jail_function: str
    """Address of the function that serves the program inside the jail."""
    jail_modules: tuple[str, ...]
    """Modules that the fork-server imports before it forks children."""
    jail_sources: tuple[str, ...]
    """Packages whose sources a container needs."""
    evaluation: type
    """The class of its evaluations, a `jail.evaluation.JailedEvaluation`."""


def require_metric(evaluator: Evaluator) -> ProgramMeasure:
    """The metric of an evaluator; raise `TaskError` if no installed package adds it."""
    found = find_part("metrics", evaluator.metric)
    if found is None:
        raise TaskError(
            f"no installed package has the metric {evaluator.metric}",
            where=evaluator.path,
            fix="the extension timing has speedup: pip install --force-reinstall culmen",
        )
    return found
