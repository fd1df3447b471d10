"""The evaluator's process of the form legacy, inside the jail: OpenEvolve's `evaluate`.

The candidate is behind a stub (`run_proxied`) or in the same process (`run_legacy`).

Conventions of such folders: the program lies in a writable folder under a unique identifier with
its suffix, the evaluator's folder is on `sys.path`, results are a number, a dict or an
EvaluationResult, also from a coroutine.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import inspect
import json
import linecache
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from culmen.core.json import JsonObject
from culmen.extensions.compat import shinka_process
from culmen.extensions.compat.openevolve import scoring
from culmen.extensions.compat.openevolve.proxy import stub
from culmen.extensions.compat.openevolve.proxy.session import NOTES, SETTINGS, SOCKET
from culmen.jail import wire
from culmen.jail.confine import LINE
from culmen.jail.kernel import checked_result, libc
from culmen.jail.plain import (
    answer_texts,
    load_file,
    metric_or_type,
    score_or_type,
    split_pair,
)
from culmen.jail.state import OwnStreams, ProgramStreams, read_settings
from culmen.jail.streams import IMPORT_SEED, seed_globals

_STANDINS = str(Path(__file__).parent / "standins")
# `core.evaluation.DIFFERENCE`, whose module needs packages that a container may lack
_DIFFERENCE = "difference"
SHINKA = "shinka"  # the contract of an evaluator that is not OpenEvolve's


def run_check(channel: socket.socket, request: JsonObject, work: Path) -> None:
    """Load the evaluator and check that it has its function, without evaluating.

    The answer names settings that the import made and that another thread would not have.
    """
    module = _load_evaluator(request)
    if request["contract"] == SHINKA:
        shinka_process.check_evaluator(module, request["evaluator"])
    elif not any(callable(getattr(module, name, None)) for name in ("evaluate", "evaluate_stage1")):
        raise NameError("the evaluator has no function evaluate(path)")
    else:
        _check_arguments(module, request["arguments"])
    wire.send(channel, "R", wire.encode(_settings_of_this_thread()))


def _settings_of_this_thread() -> list[str]:
    here, elsewhere = read_settings(), JsonObject()
    other = threading.Thread(target=lambda: elsewhere.update(read_settings()))
    other.start()
    other.join()
    return [name for name, value in here.items() if elsewhere.get(name, value) != value]


def run_legacy(channel: socket.socket, request: JsonObject, work: Path) -> None:
    """Evaluate one program in this process; the report is self-reported."""
    (work / request["module"]).replace(work / request["program"])
    wire.send(channel, "R", wire.encode(_evaluation_report(request, work)))


def run_proxied(channel: socket.socket, request: JsonObject, work: Path) -> None:
    """Evaluate one program that runs in another process: a stub takes its place here."""
    try:
        folder = ProxyFolder(work, request)
    except OSError as error:  # no socket or no watch: culmen's failure
        return wire.send(channel, "J", str(error).encode())
    try:
        report = _evaluation_report(request, work)
    finally:
        wire.send(channel, "N", wire.encode(folder.read_account()))
    wire.send(channel, "R", wire.encode(report))


def _evaluation_report(request: JsonObject, work: Path) -> JsonObject:
    program = str(work / request["program"])
    sys.path.insert(0, str(work))
    module = _load_evaluator(request)
    state = OwnStreams([(module.__name__, module)])
    state.begin(request["seed"])
    ProgramStreams(str(work), request["seed"], state.streams)
    (metrics, artifacts), added = evaluate_program(module, program, request)
    for value in metrics.values():  # both packages fail where they print them
        _ = float(value) if isinstance(value, int) else 0.0
    texts = answer_texts(metrics, artifacts)  # a failed stage counts in the score alone
    metrics, artifacts = {**metrics, **added[0]}, {**artifacts, **added[1]}
    return {
        "traces": state.end().as_json(),
        "score": _score_of(metrics, request),
        "metrics": {
            str(key): number
            for key, value in metrics.items()
            if _is_number(number := metric_or_type(value))
        },
        "feedback": "\n".join(
            f"{key}: {value}" for key, value in metrics.items() if isinstance(value, str)
        ),
        "texts": texts,
        "artifacts": {str(key): _artifact_text(value) for key, value in artifacts.items()},
    }


def evaluate_program(
    module: ModuleType, program: str, request: JsonObject
) -> tuple[scoring.Answer, scoring.Answer]:
    """The evaluator's answer for a program, and what counts besides for a failed stage.

    Raises what the evaluator raises.
    """
    if request["contract"] == SHINKA:
        found = shinka_process.evaluate_program(module, request["evaluator"], program)
    elif request["thresholds"] is not None and hasattr(module, "evaluate_stage1"):
        return _run_cascade(module, program, request)
    else:
        found = _run_direct(module, program, request)
    return found, ({}, {})


def _load_evaluator(request: JsonObject) -> ModuleType:
    path = request["evaluator"]
    sys.path.insert(0, os.path.dirname(path))
    if importlib.util.find_spec("openevolve") is None:
        sys.path.append(_STANDINS)
        os.environ["PYTHONPATH"] = _STANDINS  # evaluators start interpreters of their own
    if request["contract"] == SHINKA:
        shinka_process.install_stand_in()
    seed_globals(IMPORT_SEED)
    return load_file(path, "evaluator")


def _run_cascade(
    module: ModuleType, program: str, request: JsonObject
) -> tuple[scoring.Answer, scoring.Answer]:
    """Evaluate in stages; those that the evaluator lacks are None."""

    def stage(number: int) -> Callable[[str], scoring.Answer] | None:
        name = f"evaluate_stage{number}"
        if not hasattr(module, name):
            return None
        return lambda path: _metrics_and_artifacts(getattr(module, name)(path))

    flags = request["contract"] == scoring.SKYDISCOVER
    last = scoring.SKYDISCOVER_STAGES if flags else scoring.STAGES
    stages = [stage(number) for number in range(1, last + 1)]
    limits = request["thresholds"], request["stage_seconds"]
    return scoring.run_stages(stages, program, *limits, flags)


def _run_direct(module: ModuleType, program: str, request: JsonObject) -> scoring.Answer:
    """Call `evaluate` with the arguments of the configuration."""

    def once() -> scoring.Answer:
        return _metrics_and_artifacts(module.evaluate(program, **request["arguments"]))

    return scoring.evaluate_with_retries(once, request["retries"], request["stage_seconds"])


def _check_arguments(module: ModuleType, arguments: JsonObject) -> None:
    """Raise TypeError if `evaluate` does not take the arguments of the configuration."""
    if not arguments:
        return
    try:
        signature = inspect.signature(module.evaluate)
    except ValueError:  # a builtin that does not state one
        return
    try:
        signature.bind(object(), **arguments)
    except TypeError as error:
        raise TypeError(
            f"evaluate{signature} does not take evaluator.evaluator_args "
            f"({', '.join(arguments)}): {error}"
        ) from None


def _metrics_and_artifacts(result: Any) -> scoring.Answer:
    """One of the accepted results as (metrics, artifacts).

    OpenEvolve accepts dicts and its own class alone; another one is scored, and named.
    """
    kind = type(result).__name__
    if isinstance(result, dict):
        return _split_artifacts(result)
    if _is_of_package(type(result)) and isinstance(result.metrics, dict):
        return dict(result.metrics), dict(result.artifacts or {})
    if inspect.isawaitable(result):
        result = asyncio.run(_await_result(result))
    result = split_pair(result, "combined_score")
    told = f"evaluate returned a {kind}: its score counts, but not in OpenEvolve and SkyDiscover"
    if hasattr(result, "metrics") and isinstance(result.metrics, dict):
        result = {"artifacts": getattr(result, "artifacts", None), **result.metrics}
    answer = result if isinstance(result, dict) else {"combined_score": result}
    metrics, artifacts = _split_artifacts(answer)
    return metrics, {**artifacts, **({} if result is None else {_DIFFERENCE: told})}


def _is_of_package(kind: type) -> bool:
    """True for a package's own class of results, or one that derives from it."""
    packages = ("openevolve", "skydiscover")
    return any(
        each.__name__ == "EvaluationResult" and each.__module__.partition(".")[0] in packages
        for each in kind.__mro__
    )


def _split_artifacts(answer: JsonObject) -> scoring.Answer:
    """Metrics and artifacts of one dict, in which OpenEvolve finds only metrics."""
    artifacts = answer.get("artifacts")
    if artifacts is not None and not isinstance(artifacts, dict):
        return dict(answer), {}
    return {key: value for key, value in answer.items() if key != "artifacts"}, artifacts or {}


async def _await_result(result: Awaitable[object]) -> object:
    return await result


def _score_of(metrics: JsonObject, request: JsonObject) -> object:
    if request["contract"] == SHINKA:  # which knows no other score
        return score_or_type(metrics.get("combined_score"))
    flags = request["contract"] == scoring.SKYDISCOVER
    return combined_fitness(metrics, request["features"], flags)


def combined_fitness(metrics: JsonObject, features: list[str], flags: bool = False) -> object:
    """The score by `scoring.fitness`; without any number what stands for it, or None."""
    score = scoring.fitness(metrics, features, flags)
    if score is not None:
        return score
    kind = score_or_type(metrics.get("combined_score"))
    return kind if isinstance(kind, str) else None  # what is no number there is none here


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _artifact_text(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:20_000].encode("utf-8", "replace").decode()


# -- behind a proxy: stubs in place of the program, and crossings
# -------------------------------------------------

_IN_OPEN, _IN_CLOSE = 0x20, 0x18
_NONBLOCK = 0x800  # inotify's IN_NONBLOCK


class ProxyFolder:
    """The evaluator's work folder.

    It has stubs in place of the program, a socket to the candidate, and notes of crossings.
    """

    def __init__(self, work: Path, request: JsonObject) -> None:
        self._folder = (
            work / f".program-{os.urandom(8).hex()}"
        )  # no other process can guess the socket's path
        self._folder.mkdir(mode=0o700)
        settings = {"accept": request["accept"], "learn": request["learn"]}
        (self._folder / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
        self._send_listener()
        self._watch = checked_result(libc.inotify_init1(_NONBLOCK), "inotify_init1")
        package = str(Path(__file__).resolve().parents[3])
        for name in request["programs"]:
            path = work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(stub.stub_text(package, str(self._folder), name), encoding="utf-8")
            linecache.cache[str(path)] = (0, None, [], str(path))  # traces need not open it
            watched = libc.inotify_add_watch(
                self._watch, os.fsencode(path), ctypes.c_uint32(_IN_OPEN | _IN_CLOSE)
            )
            checked_result(watched, "inotify_add_watch")
        stub.install_hooks()

    def _send_listener(self) -> None:
        """Send the candidate's process a listening socket.

        Every process of the evaluator can reach the socket.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._folder / SOCKET))
        listener.listen(4096)  # connections not yet taken; a full queue would refuse the next one
        with listener, socket.socket(fileno=LINE) as line:
            wire.send_descriptors(line, b"L", [listener.fileno()])

    def read_account(self) -> JsonObject:
        """The notes of the evaluator's processes: values that crossed, were refused, or ended.

        Also the number of reads of the program's text, beyond those of imports.
        """
        notes = list(_read_notes(self._folder / NOTES))

        def texts(kind: str) -> list[str]:
            return [text for what, text, _, _ in notes if what == kind]

        gone = [pid for what, _, _, pid in notes if what == "gone"]
        imports = sum(map(int, texts("import")))
        return {
            "used": list(dict.fromkeys(texts("used"))),
            "raised": "".join(texts("raised")[:1]),
            "refused": [[reason, text] for what, text, reason, _ in notes if what == "refused"],
            "unsupported": texts("unsupported"),
            "gone": os.getpid() in gone,
            "lost": bool(gone),
            "reads": max(0, _count_openings(self._watch) - imports),
            "imports": imports,
        }


def _read_notes(path: Path) -> Iterator[tuple[str, str, str, int]]:
    """The notes so far, as `ProxySession.note_event` writes them; a truncated line is ignored."""
    text = path.read_bytes()[: 1 << 20] if path.exists() else b""
    for line in text.decode("utf-8", "replace").splitlines():
        with contextlib.suppress(ValueError):
            what, note, reason, pid = json.loads(line)
            yield what, note, reason, pid


def _count_openings(watch: int) -> int:
    """Number of times that the watched files were opened so far."""
    count = 0
    while True:
        try:
            events = os.read(watch, 1 << 16)
        except BlockingIOError:
            return count
        masks = (
            int.from_bytes(events[at + 4 : at + 8], "little")
            for at in range(0, len(events), 16)  # bytes of an event
        )
        count += sum(1 for mask in masks if mask & _IN_OPEN)
