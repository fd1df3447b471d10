"""Shared pieces of the model tests."""

from __future__ import annotations

import asyncio

import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case
from culmen.core.task import Evaluator, Objective, Surface, Task

SECRET = "sk-test-0123456789abcdefSECRET"


class FakeClock:
    """Time that passes only by sleeping; a sleeper lets the others run first."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        wake = self.time + seconds
        await asyncio.sleep(0)
        self.time = max(self.time, wake)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "OPENAI_BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEST_KEY", SECRET)


@pytest.fixture
def task() -> Task:
    return Task(
        name="circles",
        goal="Place circles in the unit square so that the sum of their radii grows.",
        seeds=({"main.py": "def run(n):\n    return [1 / n] * n\n"},),
        evaluator=Evaluator(form="call", entry="run", module="main.py"),
        objective=Objective(direction="max", target=2.6, bounds=(0.0, None)),
        cases=(Case("a", {"n": 3}), Case("b", {"n": 26}), Case("secret", {"n": 5}, split="test")),
    )


@pytest.fixture
def pair() -> Task:
    """A task whose candidates have two parts that may change and one that may not."""
    parts = {"a.py": "A = 1\n", "b.txt": "hello\nworld\n", "fixed.py": "F = 0\n"}
    return Task(name="pair", goal="Improve.", seeds=(parts,), surface=Surface(frozen=("fixed.py",)))


@pytest.fixture
def parent(task: Task) -> Candidate:
    return task.initial_candidates()[0]
