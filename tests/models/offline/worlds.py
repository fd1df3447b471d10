"""A simulated world for the offline proposer.

Real tools in this process, candidates judged by a given function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from culmen.core.brief import Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import (
    EditRequest,
    Effect,
    EmbedRequest,
    EvaluateRequest,
    Result,
    WriteRequest,
)
from culmen.engine.lab import pack_vectors
from culmen.models.embed import make_embedder
from culmen.models.offline.tools import run_tool

ROUTE = """import numpy as np

def start():
    return np.array([3.0, -2.0, 4.0])

def height(point):
    return -((point - 1.0) ** 2)

def run():
    return float(np.sum(height(start())))
"""


class Workshop:
    """A world in which every effect takes one virtual second.

    `judge(parts, case)` gives a score, or None for a failure; an evaluation
    reports that it took `seconds`.
    """

    def __init__(
        self, judge: Callable[[dict[str, str], Case | None], float | None], seconds: float = 0.1
    ) -> None:
        self._judge, self._seconds = judge, seconds
        self._embedder = make_embedder("hashing")

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        request = effect.request
        if isinstance(request, EvaluateRequest):
            return 1.0, self._observe(request.candidate, request.case)
        if isinstance(request, EmbedRequest):
            return 1.0, pack_vectors(
                self._embedder.embed([c.text for c in request.candidates]).tolist(),
                self._embedder.name,
            )
        if isinstance(request, WriteRequest):
            return 1.0, Text(fault="no_model")
        assert isinstance(request, EditRequest)
        return 1.0, run_tool(request)

    def _observe(self, candidate: Candidate, case: Case | None) -> Observation:
        score, name = self._judge(candidate.parts, case), case.id if case else ""
        status = Status.ERROR if score is None else Status.OK
        return Observation(
            candidate.id, status, score, case=name, seconds=self._seconds, trust="verified"
        )


def run(text: str, name: str) -> object:
    """The result of function `name` of a Python text, or None if it raises.

    For small harmless programs only.

    The guard of inserted loops, seconds of processor time, is lifted: a simulated world has no
    processor, and a loaded machine would end a loop early.
    """
    space: dict[str, object] = {}
    text = re.sub(r"\bseconds=[\d.e+-]+(?=, seed=)", "seconds=1e9", text)
    try:
        exec(compile(text, "candidate", "exec"), space)
        return space[name]()  # pyright: ignore[reportCallIssue, reportGeneralTypeIssues, reportIndexIssue]
    except Exception:  # noqa: BLE001  (arbitrary edited programs raise arbitrary errors)
        return None
