"""Python callables as evaluators."""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import culmen
from culmen import evaluate
from culmen.core.candidate import Candidate
from culmen.core.errors import IsolationError
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.function import FunctionBackend, takes_case
from culmen.jail.scorer import Invalid

TASK = Task(
    "f",
    evaluator=Evaluator(form="function"),
    limits=Limits(seconds=1.5, memory_mb=512, processes=16),
)


@pytest.fixture
def call() -> Iterator[Callable[..., list[Observation]]]:
    with asyncio.Runner() as runner:

        def run(
            fn: Callable[..., Any],
            *texts: str | dict[str, str],
            case: Case | None = None,
            workers: int = 2,
            task: Task = TASK,
            renew_before: int = 10**9,
        ) -> list[Observation]:
            async def work() -> list[Observation]:
                backend = FunctionBackend(task, fn, workers)
                assert await backend.start() == "limits"
                try:
                    candidates = [
                        Candidate.of({"text": t} if isinstance(t, str) else t) for t in texts
                    ]
                    if workers > 1:
                        return list(
                            await asyncio.gather(
                                *(backend.evaluate(c, case, 3) for c in candidates)
                            )
                        )
                    found = []
                    for number, candidate in enumerate(candidates):
                        if number == renew_before:
                            await backend.renew()
                        found.append(await backend.evaluate(candidate, case, 3))
                    return found
                finally:
                    await backend.close()

            return runner.run(work())

        yield run


def test_results_of_every_shape(call: Callable[..., list[Observation]]) -> None:
    shapes = {
        "number": 2,
        "pair": (3.0, {"feedback": "good", "size": 7, "note": "x"}),
        "text": (4.0, "fine"),
        "dict": {"score": 5.0, "loss": 0.5},
        "combined": {"combined_score": 6.0, "artifacts": {"plot": "..."}},
    }
    number, pair, text, plain, combined = call(lambda name: shapes[name], *shapes)
    assert [o.score for o in (number, pair, text, plain, combined)] == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert pair.metrics == {"size": 7.0} and pair.feedback == "good\nnote: x"
    assert (
        text.feedback == "fine"
        and plain.metrics == {"loss": 0.5}
        and combined.artifacts == {"plot": "..."}
    )
    assert number.trust != "verified"


def test_closures_cases_and_parts(call: Callable[..., list[Observation]]) -> None:
    factor = [10]

    def fn(candidate: Any, case: Case) -> float:
        return factor[0] * (len(candidate) + case.info)

    (observation,) = call(fn, {"a": "x", "b": "y"}, case=Case("1", None, info=3))
    assert (observation.score, observation.case) == (50.0, "1")


def test_failures_end_one_evaluation_only(call: Callable[..., list[Observation]]) -> None:
    def fn(text: str) -> Any:
        if text == "hang":
            while True:
                pass
        if text == "die":
            os._exit(1)
        if text == "hoard":
            return len(bytearray(1 << 33))
        if text == "refuse":
            raise Invalid("not this one")
        return {"nan": float("nan"), "word": "high", "flag": True, "none": None}.get(
            text, 1 / (len(text) - 5)
        )

    names = ["hang", "die", "hoard", "refuse", "nan", "word", "flag", "none", "raise", "fine 1"]
    observations = call(fn, *names)
    assert [o.reason for o in observations] == [
        "timeout",
        "no_output",
        "memory_limit",
        "invalid",
        "score_nan",
        "score_not_a_number",
        "",
        "score_missing",
        "exception",
        "",
    ]
    assert observations[-1].score == 1.0 and "ZeroDivisionError" in observations[-2].feedback


def test_coroutine_functions_and_prints(call: Callable[..., list[Observation]]) -> None:
    async def fn(text: str) -> float:
        await asyncio.sleep(0)
        print("seen", text)
        return 1.0

    (observation,) = call(fn, "a")
    assert observation.score == 1.0 and observation.artifacts == {"log": "seen a\n"}


# -- one process for many calls
# --------------------------------------------------------------------------------------

Call = Callable[..., list[Observation]]


class Counting:
    """A function that returns the number of its calls in this process, and the process.

    It counts where no state of the evaluator's is looked for: as a new name in a library's module.
    """

    def __init__(self, act: Callable[[str], Any] = lambda _: None) -> None:
        self.act = act

    def __call__(self, text: str) -> Any:
        counts = vars(statistics).setdefault("calls_in_this_process", [0])
        counts[0] += 1
        self.act(text)
        return float(counts[0]), f"{os.getpid()}"


class Stateful:
    """A function with a state of its own: the number of its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> Any:
        self.calls += 1
        return float(self.calls)


def calls(observations: list[Observation]) -> list[float | None]:
    return [o.score for o in observations]


KEEPS = msgspec.structs.replace(TASK, evaluator=Evaluator(form="function", keeps_state=True))


def test_a_process_serves_call_after_call(call: Call) -> None:
    seen = call(Counting(), *"abcd", workers=1)
    assert calls(seen) == [1, 2, 3, 4] and len({o.feedback for o in seen}) == 1


def test_state_is_kept_only_by_an_evaluator_that_says_so(call: Call) -> None:
    seen = call(Stateful(), *"abcd", workers=1, renew_before=2)
    assert calls(seen) == [1, 1, 1, 1] and seen[0].left == ("data evaluator.calls",)
    assert calls(call(Stateful(), *"abcd", workers=1, renew_before=2, task=KEEPS)) == [1, 2, 3, 4]


def test_the_state_of_the_users_own_process_is_never_changed(call: Call) -> None:
    function = Stateful()
    call(function, *"abc", workers=1, task=KEEPS)
    assert function.calls == 0
    assert calls(call(function, *"ab", workers=1, task=KEEPS)) == [1, 2]


def test_a_process_is_replaced_after_so_many_calls(call: Call) -> None:
    few = msgspec.structs.replace(TASK, limits=Limits(seconds=1.5, memory_mb=512, calls=3))
    assert calls(call(Counting(), *"abcdefg", workers=1, task=few)) == [1, 2, 3, 1, 2, 3, 1]
    alone = msgspec.structs.replace(TASK, limits=Limits(seconds=1.5, memory_mb=512, calls=1))
    assert calls(call(Counting(), *"abc", workers=1, task=alone)) == [1, 1, 1]


def test_the_final_choice_gives_every_call_a_process_of_its_own(call: Call) -> None:
    assert calls(call(Counting(), *"abcde", workers=1, renew_before=2)) == [1, 2, 1, 1, 1]


def _hang(_: str) -> None:
    while True:
        pass


def _sleeping_child(_: str) -> None:
    subprocess.Popen(["sleep", "60"])


def _leave_a_thread(_: str) -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def _raise(error: BaseException) -> Callable[[str], None]:
    def act(_: str) -> None:
        raise error

    return act


def _patch(_: str) -> None:
    math.sqrt = abs  # type: ignore[assignment]


def _import_text(_: str) -> None:
    sys.modules["made_here"] = type(os)("made_here")


def _crash(_: str) -> None:
    faulthandler.disable()  # the tests' own, whose descriptor is open here, too
    os.kill(os.getpid(), signal.SIGSEGV)


def _close_everything(_: str) -> None:
    os.closerange(3, 1 << 16)


def _answer_twice(_: str) -> None:
    from culmen.jail import wire

    answer = wire.encode({"score": 99.0, "metrics": {}, "feedback": "", "artifacts": {}})
    channel = max(map(int, os.listdir("/proc/self/fd")))  # far above the user's descriptors
    about = (2).to_bytes(4, "little") + (2).to_bytes(4, "little") + b"{}"
    socket.socket(fileno=os.dup(channel)).sendall(wire.frame_bytes("R", about + answer))


HARM: dict[str, tuple[Callable[[str], Any], str]] = {
    "hangs": (_hang, "timeout"),
    "leaves": (lambda _: os._exit(3), "no_output"),
    "dies": (lambda _: os.kill(os.getpid(), signal.SIGKILL), "crash"),
    "segfault": (_crash, "crash"),
    "interrupt": (_raise(KeyboardInterrupt()), "exception"),
    "exit": (_raise(SystemExit(1)), "exit"),
    "hoard": (lambda _: bytearray(1 << 33), "memory_limit"),
    "closes": (_close_everything, "no_output"),
    "spins": (lambda _: signal.raise_signal(signal.SIGXCPU), "cpu_limit"),
}


@pytest.mark.parametrize("name", HARM)
def test_harm_ends_one_call_and_the_next_has_a_fresh_process(call: Call, name: str) -> None:
    act, reason = HARM[name]

    def once(text: str) -> None:
        if text == "bad":
            act(text)

    first, harmed, *after = call(Counting(once), "a", "bad", "b", "c", workers=1)
    assert (first.score, harmed.reason, harmed.score) == (1.0, reason, None)
    assert calls(after) == [1, 2] and after[0].feedback != first.feedback


def test_an_answer_too_many_is_not_taken_for_the_next_calls(call: Call) -> None:
    def once(text: str) -> None:
        if text == "bad":
            _answer_twice(text)

    _, forged, *after = call(Counting(once), "a", "bad", "b", "c", workers=1)
    assert forged.score == 99.0  # as self-reported as any other
    assert calls(after) == [1, 2]


LEFT: dict[str, Callable[[str], Any]] = {
    "thread": _leave_a_thread,
    "child": _sleeping_child,
    "folder": lambda _: os.chdir("/"),
    "environment": lambda _: os.environ.update(LEFT_BEHIND="1"),
    "path": lambda _: sys.path.insert(0, "/nowhere"),
    "patch": _patch,
    "module": _import_text,
    "timer": lambda _: signal.setitimer(signal.ITIMER_REAL, 60),
    "descriptors": lambda _: [os.dup(0) for _ in range(40)],
    "memory": lambda _: vars(KEPT).setdefault("it", b"x" * (200 << 20)),
}
KEPT = type("Kept", (), {})()


@pytest.mark.parametrize("name", LEFT)
def test_what_a_call_leaves_behind_never_reaches_the_next(call: Call, name: str) -> None:
    def once(text: str) -> None:
        if text == "bad":
            LEFT[name](text)

    first, leaving, *after = call(Counting(once), "a", "bad", "b", "c", workers=1)
    assert (first.score, leaving.score) == (1.0, 2.0)  # the call itself counts
    assert calls(after) == [1, 2]


def test_a_failure_that_earlier_calls_may_have_caused_is_tried_again_in_a_fresh_process(
    call: Call,
) -> None:
    def worn(text: str) -> float:
        KEPT.count = getattr(KEPT, "count", 0) + 1
        if KEPT.count > 1:
            os._exit(1)
        return 5.0

    assert calls(call(worn, *"abc", workers=1)) == [5.0, 5.0, 5.0]


def test_a_candidate_written_to_a_file_and_imported_is_never_an_earlier_one(
    call: Call, tmp_path: Path
) -> None:
    """The usual evaluator that imports what it wrote.

    With one process, the first module would stay for all.
    """

    def evaluate(text: str) -> float:
        (tmp_path / "culmen_written.py").write_text(text)
        sys.path.insert(0, str(tmp_path))
        sys.dont_write_bytecode = True
        return float(importlib.import_module("culmen_written").VALUE)

    texts = [f"VALUE = {value}\n" for value in (3, 1, 2)]
    assert calls(call(evaluate, *texts, workers=1)) == [3, 1, 2]


def test_what_is_printed_belongs_to_its_own_call(call: Call) -> None:
    def fn(text: str) -> float:
        print(text * 3)
        os.write(2, b"to the descriptor\n")
        return 1.0

    seen = call(fn, "a", "b" * 400_000, "c", workers=1)
    logs = [o.artifacts["log"] for o in seen]
    assert logs[0] == "aaa\nto the descriptor\n" and logs[2] == "ccc\nto the descriptor\n"
    assert logs[1].startswith("bbb") and logs[1].endswith("[cut: the log was longer]")


def test_random_numbers_depend_on_the_evaluation_alone(call: Call) -> None:
    import random

    assert len({o.score for o in call(lambda text: random.random(), *"abc", workers=1)}) == 1


def test_orphans_of_a_call_end(call: Call, tmp_path: Path) -> None:
    mark = tmp_path / "alive"

    def fn(text: str) -> float:
        subprocess.run(
            ["sh", "-c", f"(while true; do date > {mark}; sleep 0.05; done) & echo $! > {mark}.pid"]
        )
        return 1.0

    call(fn, "a", "b", workers=1)
    assert not Path(f"/proc/{Path(f'{mark}.pid').read_text().strip()}").exists()


def test_cases_and_workers_side_by_side(call: Call) -> None:
    seen = call(lambda text: (float(text), str(os.getpid())), *map(str, range(40)))
    assert calls(seen) == list(range(40)) and len({o.feedback for o in seen}) == 2


def test_no_stronger_level_can_be_required() -> None:
    with pytest.raises(IsolationError):
        asyncio.run(FunctionBackend(TASK, len, 1, "restricted").start())


def test_which_functions_take_a_case() -> None:
    assert (
        takes_case(lambda a, b: 0)
        and takes_case(lambda a, case=None: 0)
        and takes_case(lambda a, example=None: 0)
    )
    assert (
        not takes_case(lambda a: 0)
        and not takes_case(lambda a, verbose=False: 0)
        and not takes_case(lambda a, *, b=1: 0)
    )
    assert Status.OK == "ok"


def _refused(program):
    raise ConnectionError("the judge does not answer")


def _limited(program):
    error = RuntimeError("slow down")
    error.status_code = 429  # pyright: ignore[reportAttributeAccessIssue] - as SDKs have it
    raise error


def _asked_wrongly(program):
    error = RuntimeError("no such thing")
    error.status_code = 400  # pyright: ignore[reportAttributeAccessIssue]
    raise error


def _executing(program):
    exec(program, {})
    return 1.0


@pytest.mark.parametrize(
    ("evaluator", "program", "status"),
    [
        (_refused, "x = 1", Status.LOST),
        (_limited, "x = 1", Status.LOST),
        (_asked_wrongly, "x = 1", Status.ERROR),
        (_executing, "raise ConnectionError('no network')", Status.ERROR),
    ],
)
def test_a_provider_that_is_away_is_never_held_against_a_candidate(evaluator, program, status):
    found = culmen.check(program, evaluator).seeds[0].observations[0]
    assert found.status is status
    assert (found.reason == "provider_away") == (status is Status.LOST)


def test_what_an_evaluator_prints_is_kept():
    def chatty(program):
        print("looked at", program)
        return 1.0

    report = culmen.check("x = 1", chatty, times=2)
    assert report.seeds[0].printed == "looked at x = 1\n" and "looked at x = 1" in repr(report)


def test_the_exception_of_scorers_is_one_by_all_its_names():
    assert culmen.Invalid is evaluate.Invalid is Invalid
