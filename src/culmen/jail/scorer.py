"""The scorer's process: loads the user's evaluator once and judges plain data.

It never imports a candidate. In: S (JSON: case, seed, parts, seconds) followed by D (the output as
bytes), or by a descriptor of the candidate's channel for the form serve. Out: H after loading, then
one A (JSON) per S; before it M, the evaluator's questions to models, each answered by N.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import json
import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from culmen.core import pictures
from culmen.core.answers import is_mark
from culmen.core.evaluation import OUTPUT, Case
from culmen.core.json import JsonObject
from culmen.jail import kernel, procfs, wire
from culmen.jail.asking import ModelAsk, ask_argument, awaited_result, has_ask_parameter
from culmen.jail.culprit import is_outage
from culmen.jail.plain import (
    answer_texts,
    last_lines,
    load_file,
    metric_or_type,
    number_or_type,
    score_or_type,
    split_pair,
    value_text,
)
from culmen.jail.state import (
    ModuleNames,
    OwnStreams,
    ProcessState,
    import_modules,
)
from culmen.jail.streams import IMPORT_SEED, seed_globals
from culmen.jail.wire import EvaluationTraces

SHOWN = 2_000  # characters of an output that are kept
PRINTED = 20_000  # characters kept of an evaluator's printed output during one judgement
LIMIT = 1 << 30  # frames come from culmen; the candidate's data was bounded before
_KNOWN = ("score", "metrics", "feedback", "artifacts", "images")
_TEXTS = ("exact", "repaired", "feedback")
_CERTIFICATE = dict.fromkeys(("score", "feasible", *_TEXTS)).keys()


PROGRAM = "program"
"""Name of a program's own generators among those that an evaluation drew from."""

_FAREWELL_SECONDS = 1.0  # that a program has to say if it drew; it is not waited for longer


class Invalid(ValueError):
    """The candidate ran, but its output is not acceptable; the text is the feedback.

    Evaluators raise this.
    """


class Printed(io.StringIO):
    """Printed output of an evaluator during one judgement; only its beginning is kept."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, PRINTED - self.tell())])
        return len(text)

    def close(self) -> None:
        """Stay open: an evaluator's prints after it has closed its output are kept, too."""


def main() -> None:
    """Entry point of the scorer's process.

    argv = channel descriptor, lifeline descriptor, path of the file, form, role (score or certify),
    and as JSON the command or URL of an evaluator that is not a Python file, the address of its
    judge, its memory in MB, its metric's module, and True if it keeps state.
    """
    channel = socket.socket(fileno=int(sys.argv[1]))
    kernel.die_with_pipe(int(sys.argv[2]))
    path, form, role = sys.argv[3:6]
    try:
        command, url, address, memory_mb, metric, keeps_state = json.loads(sys.argv[6])
        is_elsewhere = bool(command or url) and role == "score"
        roots: list[tuple[str, object]] = []
        if is_elsewhere:
            judge = spoken_judge(path, command, url, address)
        else:
            module = load_evaluator(path)
            roots.append((module.__name__, module))
            judge = find_judge(module, form, role, metric)
            limit_memory(memory_mb)
    except BaseException as error:  # noqa: BLE001 - the user's file may raise anything while it loads
        wire.send(channel, "H", json.dumps({"error": last_lines(error)}).encode())
        return
    wire.send(channel, "H", b"{}")
    service = Service(channel, form, judge, _READERS[role])
    if is_elsewhere or keeps_state:
        service.serve(OwnStreams(roots), keeps_state=True)
    else:
        serve_copies(service, lambda names: ProcessState(roots, memory_mb, names))


_SPENT = 75  # exit status of a copy that changed its state
_PIPE_BYTES = 1 << 16  # that a pipe holds while nobody reads it


def serve_copies(service: Service, first_state: Callable[[ModuleNames], ProcessState]) -> None:
    """Serve in copies of this process, each until an evaluation changed its state.

    Libraries that the evaluator imported in a call are imported before the next copy is made. A
    process with threads cannot be copied; it serves itself, and its answers say when it is spent.
    """
    while procfs.thread_count() == 1:
        names = ModuleNames()
        read, write = os.pipe()
        copy = os.fork()
        if copy == 0:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # daemons become its children
            last = service.serve(first_state(names), is_copy=True)
            while children := procfs.child_pids(os.getpid()):
                for child in children:
                    procfs.kill_tree(child)
                    os.waitpid(child, 0)
            os.write(write, json.dumps(last.imported).encode()[:_PIPE_BYTES])
            os._exit(0 if last.is_clean else _SPENT)
        status = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        if status != _SPENT:
            os._exit(0 if status == 0 else 1)
        import_modules(_names_in(os.read(read, _PIPE_BYTES)))
        os.close(read)
        os.close(write)
    service.serve(first_state(ModuleNames()))


def _names_in(message: bytes) -> list[str]:
    """Names of modules in a copy's last message; none if it was too long for the pipe."""
    try:
        return json.loads(message)
    except ValueError:
        return []


class Service:
    """Judgements on a channel, one after the other."""

    def __init__(
        self,
        channel: socket.socket,
        form: str,
        judge: Callable[..., object],
        reader: Callable[[object], JsonObject],
    ) -> None:
        self._channel, self._form, self._judge, self._reader = channel, form, judge, reader

    def serve(
        self, state: OwnStreams, *, is_copy: bool = False, keeps_state: bool = False
    ) -> EvaluationTraces:
        """Judge until the channel closes or, in a copy, the state changed; the last traces."""
        channel = self._channel
        while True:
            try:
                _, payload = wire.receive(channel, LIMIT)
                fds, output = self._receive_output()
            except EOFError:
                return EvaluationTraces()
            request = json.loads(payload)
            # a program beside a reference sends a result, as one that is not driven does
            limits = [request["limit"]] * len(fds) if len(fds) > 1 else [SERVED_BYTES]
            sockets = (socket.socket(fileno=fd) for fd in fds)
            programs = [CandidateProgram(each, limit) for each, limit in zip(sockets, limits)]
            state.begin(request["seed"])
            answer = self._judge_printing(request, output, programs)
            traces = state.end()
            if self._form == "serve" and len(programs) == 1 and programs[0].has_drawn():
                traces = traces._replace(drew=(*traces.drew, PROGRAM))
            answer |= {"traces": traces.as_json()}
            is_spent = not traces.is_clean and not keeps_state
            answer |= {"spent": True} if is_spent and not is_copy else {}
            for program in programs:
                program.channel.close()
            wire.send(channel, "A", json.dumps(answer).encode("utf-8", "replace"))
            if is_spent and is_copy:
                return traces

    def _receive_output(self) -> tuple[list[int], wire.Data | None]:
        """Descriptors of the programs' channels in the form serve, else the output."""
        if self._form == "serve":
            return socket.recv_fds(self._channel, 1, 2)[1], None
        return [], wire.receive(self._channel, LIMIT)[1]

    def _judge_printing(
        self, request: JsonObject, output: wire.Data | None, programs: list[CandidateProgram]
    ) -> JsonObject:
        """The answer to a request, with the evaluator's printed output."""
        printed = Printed()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            ask = ModelAsk(self._channel)
            try:
                answer = _judge_request(
                    self._judge, self._form, request, output, programs, self._reader, ask
                )
            except MemoryError:
                answer = {"kind": "memory"}
            ask.refuse_questions()
        raised = next((program.raised for program in programs if program.raised), "")
        answer |= {"raised": raised} if raised else {}
        return answer | ({"printed": printed.getvalue()} if printed.getvalue() else {})


def limit_memory(megabytes: int) -> None:
    """Let this process and its children have so much data beyond what it has now."""
    with contextlib.suppress(OSError, ValueError):  # other systems do not have this limit
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = procfs.data_bytes() + (megabytes << 20)
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))


def load_evaluator(path: str) -> ModuleType:
    """The module of an evaluator or verifier file; its exceptions pass through.

    Numbers that it draws while it loads are the same in every process.
    """
    folder = os.path.dirname(path)
    os.chdir(folder)
    sys.path.insert(0, folder)
    seed_globals(IMPORT_SEED)
    return load_file(path, "evaluator")


def find_judge(
    module: ModuleType, form: str, role: str = "score", metric: str = ""
) -> Callable[..., object]:
    """The function of an evaluator or verifier, or that of a metric's module.

    Raises NameError if the module has no such function.
    """
    if metric:
        return importlib.import_module(metric).make_judge(module)  # it needs this module
    wanted = ("drive", "score") if form == "serve" else (role,)
    for candidate in wanted:
        function = getattr(module, candidate, None)
        if callable(function):
            return function
    raise NameError(f"the evaluator has no function {' or '.join(wanted)}")


def spoken_judge(path: str, command: list[str], url: str, address: str) -> Callable[..., object]:
    """The judge that calls an evaluator in any language, or that of an extension.

    Raises OSError if the evaluator cannot be started or reached.
    """
    from culmen.jail import spoken

    os.chdir(os.path.dirname(path))
    return spoken.make_judge(command, url, address)


def _judge_request(
    judge: Callable[..., object],
    form: str,
    request: JsonObject,
    output: wire.Data | None,
    programs: Sequence[CandidateProgram],
    reader: Callable[[object], JsonObject],
    ask: ModelAsk,
) -> JsonObject:
    """The answer to the orchestrator.

    Its kind is score | invalid | bad_output | too_large | candidate | tripped | gone | raised |
    away | busy | memory. An exception during judgement counts against the candidate; an evaluator
    that exits or returns no valid result is broken. Raises MemoryError.
    """
    try:
        offered = _offered_arguments(form, request, output, programs)
    except wire.TooLarge as error:
        return {"kind": "too_large", "feedback": str(error)}
    except wire.WireError as error:
        return {"kind": "bad_output", "feedback": str(error)}
    answer: JsonObject
    try:
        judged = awaited_result(
            call_judge(
                judge,
                {**offered, "ask": ask_argument(judge, ask)}
                if has_ask_parameter(judge)
                else offered,
            )
        )
    except CandidateGone:
        answer = {"kind": "gone"}
    except (CandidateError, ResultTooLarge) as error:
        kind = "too_large" if isinstance(error, ResultTooLarge) else "candidate"
        answer = {"kind": kind, "feedback": str(error)}
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - the evaluator may raise anything; it becomes an answer
        heard = repr(offered.get("output", ""))
        answer = _exception_answer(error, request["parts"], heard)
    else:
        answer = _read_answer(
            reader, _with_default_score(judged) if request.get("several") else judged
        )
    if request["case"] is not None and "score" in answer:
        shown = offered.get("output")
        texts = answer.setdefault("artifacts", {})
        texts.update({} if OUTPUT in texts or shown is None else {OUTPUT: _shortened_output(shown)})
    return {"kind": "gone"} if programs and programs[0].gone else answer


def _read_answer(reader: Callable[[object], JsonObject], judged: object) -> JsonObject:
    try:
        return reader(judged)
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - reading the evaluator's objects may raise anything
        return {"kind": "raised", "feedback": last_lines(error)}


def _shortened_output(output: object) -> str:
    """An output as a short text."""
    text = output if isinstance(output, str) else repr(output)
    return (
        text
        if len(text) <= SHOWN
        else f"{text[:SHOWN]} [... {len(text) - SHOWN} characters left out]"
    )


def _exception_answer(error: BaseException, parts: dict[str, str], heard: str) -> JsonObject:
    """The answer for an exception of the judge; `heard` is the candidate's output."""
    if type(error).__name__ == "Invalid" and isinstance(error, ValueError):
        return {"kind": "invalid", "feedback": value_text(error)}
    if is_outage(error, parts, heard):
        return {"kind": "away", "feedback": last_lines(error)}
    if isinstance(error, MachineBusy):
        return {"kind": "busy", "feedback": str(error)}
    kind = "tripped" if isinstance(error, Exception) else "raised"
    return {"kind": kind, "feedback": last_lines(error)}


def _offered_arguments(
    form: str, request: JsonObject, output: wire.Data | None, programs: Sequence[CandidateProgram]
) -> JsonObject:
    case = request["case"]
    offered = {
        "case": None if case is None else Case(**case),
        "seed": request["seed"],
        "parts": request["parts"],
        "seconds": request["seconds"],
    }
    if len(programs) > 1:
        timed = {name: request[name] for name in ("core", "allowed")}
        return {"call": programs[0], "rival": programs[1], **timed, **offered}
    if programs:
        return {"call": programs[0], "candidate": programs[0], **offered}
    value: Any = None if not output else wire.decode(output, request["limit"])
    if form != "command":
        return {"output": value, **offered}
    text = value["stdout"]
    return {"output": text, "data": _json_or_none(text), "files": value["files"], **offered}


def _json_or_none(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def call_judge(judge: Callable[..., object], offered: JsonObject) -> object:
    """Call the judge with the arguments in its signature.

    A judge whose signature has other names gets the first two by position.
    """
    offered = dict(offered)
    ask = {"ask": offered.pop("ask")} if "ask" in offered else {}
    if ask:
        judge = functools.partial(judge, **ask)
    parameters = [p for p in inspect.signature(judge).parameters.values() if p.name not in ask]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return judge(**offered)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if all(p.name in offered or p.default is not p.empty for p in named) and len(named) == len(
        parameters
    ):
        return judge(**{p.name: offered[p.name] for p in named if p.name in offered})
    first = next(iter(offered.values())) if "call" in offered or "output" in offered else None
    return judge(
        *[offered.get("call", offered.get("output", first)), offered["case"]][: len(parameters)]
    )


def read_judgement(result: object) -> JsonObject:
    """A judge's result as an answer.

    Raises TypeError for a dict without "score" or with unknown keys.
    """
    result = split_pair(result)
    if not isinstance(result, dict):
        return {"kind": "score", "score": score_or_type(result)}
    if "score" not in result:
        raise TypeError(
            f"the evaluator returned a dict without 'score' (keys: {', '.join(map(str, result))})"
        )
    metrics = dict(result.get("metrics") or {})
    artifacts = dict(result.get("artifacts") or {})
    for key, value in result.items():
        if isinstance(value, str) and is_mark(str(key)):
            artifacts.setdefault(key, value)
        elif key not in _KNOWN:
            metrics[key] = value
    metrics = {str(key): metric_or_type(value) for key, value in metrics.items()}
    numbers = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    strange = [key for key in metrics if key not in numbers]
    if strange:
        raise TypeError(
            f"the evaluator returned metrics that are not numbers: {', '.join(strange)}"
        )
    answer = {
        "kind": "invalid" if result["score"] is None else "score",
        "score": score_or_type(result["score"]),
        "metrics": {key: float(value) for key, value in numbers.items() if math.isfinite(value)},
        "feedback": value_text(result.get("feedback") or ""),
        "artifacts": {str(key): value_text(text) for key, text in artifacts.items()},
        "texts": answer_texts(artifacts),
    }
    if result.get("images"):
        answer["artifacts"] |= pictures.picture_artifacts(result["images"])
    return answer


def _with_default_score(judged: object) -> object:
    """A result of metrics alone, for a task with several objectives.

    A metric that is None counts as not reported.
    """
    if not isinstance(judged, dict):
        return judged
    inner = judged.get("metrics")
    known = {key: value for key, value in judged.items() if value is not None or key == "score"}
    if isinstance(inner, dict):
        known["metrics"] = {key: value for key, value in inner.items() if value is not None}
    return {"score": 0.0, **known}


def read_certificate(result: object) -> JsonObject:
    """A verifier's result as an answer.

    Raises TypeError unless it is a dict of the known keys with a real score.
    """
    if not isinstance(result, dict) or not {"score", "feasible"} <= result.keys() <= _CERTIFICATE:
        raise TypeError(
            "certify() must return a dict with score and feasible, at most "
            f"{', '.join(_CERTIFICATE)}"
        )
    score, texts = (
        number_or_type(result["score"]),
        {key: str(result.get(key) or "") for key in _TEXTS},
    )
    if score is None:
        return {"kind": "invalid", "feedback": texts["feedback"]}
    if (
        isinstance(score, str)
        or type(score) not in (int, float)
        or not math.isfinite(score)
        or type(result["feasible"]) is not bool
    ):
        raise TypeError(
            "certify() must return a finite number as score and True or False as feasible"
        )
    return {"kind": "certified", "score": score, "feasible": result["feasible"], **texts}


_READERS: dict[str, Callable[[object], JsonObject]] = {
    "score": read_judgement,
    "certify": read_certificate,
}


if __name__ == "__main__":
    main()


# -- the program, in the form serve -----------------------------------------------------------


class CandidateError(Exception):
    """A function of the candidate raised, or its result is not plain data.

    Evaluators may catch this.
    """


class CandidateGone(BaseException):
    """The candidate's process has ended (time, memory, crash).

    Evaluators must not catch this: the evaluation is over.
    """


class ResultTooLarge(BaseException):
    """A result of the candidate is longer than the task allows.

    Evaluators must not catch this: the evaluation is over.
    """


class MachineBusy(BaseException):
    """The machine's load decides the result: neither candidate nor evaluator is at fault."""


SERVED_BYTES = 1 << 26  # of one answer of a program that an evaluator drives


class CandidateProgram:
    """The candidate's program; arguments and results are plain data.

    `program(*args)` calls the entry, `program.named(name, *args)` another function. Tuples arrive
    as lists on both sides, except with `program.unchanged(*args)`.
    """

    def __init__(self, channel: socket.socket, limit: int = SERVED_BYTES) -> None:
        channel.setblocking(True)
        self.channel, self.limit, self.gone = channel, limit, False
        self.raised = ""  # the last line of the first exception

    def __call__(self, *args: object) -> Any:
        """Call the entry."""
        return self.named(None, *args)

    def has_drawn(self) -> bool:
        """True if the program reports, after its last call, that it drew random numbers."""
        if self.gone:
            return False
        try:
            self.channel.settimeout(_FAREWELL_SECONDS)
            wire.send(self.channel, "D")
            return wire.receive(self.channel, self.limit)[0] == "D"
        except (OSError, EOFError, wire.TooLarge):
            return False

    def call(self, name: str | None, args: Sequence[object] = ()) -> Any:
        """Call a function by name with a list of arguments."""
        return self.named(name, *args)

    def named(self, name: str | None, *args: object) -> Any:
        """Call a function of the program.

        Raises CandidateError if it raises, CandidateGone if the process ends.
        """
        return self._exchange("C", wire.encode([name, list(args), {}]))

    def unchanged(self, *args: object, **named: object) -> object:
        """Call the entry as `named`, with tuples that stay tuples and arguments with names."""
        return self._exchange("U", wire.encode([None, list(args), named], keeps_tuples=True))

    def _exchange(self, kind: str, payload: bytes) -> object:
        """Send a call and return its result; see `named`."""
        if self.gone:
            raise CandidateGone
        try:
            wire.send(self.channel, kind, payload)
            kind, answer = wire.receive(self.channel, self.limit)
        except (OSError, EOFError, wire.TooLarge):
            self.gone = True
            raise CandidateGone from None
        if kind == "R":
            try:
                return wire.decode(answer, self.limit)
            except wire.WireError as error:
                raise CandidateError(f"bad output: {error}") from None
        text = traceback_text(answer)
        self.raised = self.raised or text.strip().rpartition("\n")[2]
        raise CandidateError(text)


def traceback_text(payload: wire.Data) -> str:
    """The traceback in an exception frame, which a hostile program may have forged."""
    try:
        report = json.loads(payload)
        return str(report["trace"])[-6000:]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "the candidate sent an invalid answer"
