"""Effects: their performers, the message where there is none, and a fork's knowledge.

A fork knows the results of its parent.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from culmen.core.brief import Brief, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import (
    WAIT,
    Custom,
    CustomRequest,
    EditRequest,
    Edits,
    Effect,
    EmbedRequest,
    EvaluateRequest,
    ProposeRequest,
    Request,
    Vectors,
    WriteRequest,
    request_mark,
)
from culmen.core.ports import Craft, Embedder, Gateway, World
from culmen.core.task import Evaluator
from culmen.core.usage import Usage
from culmen.engine.lab import unpack_vectors
from culmen.engine.world import LiveWorld, RememberingWorld

from .worlds import TASK

ONE, TWO = Candidate.of({"x": "one"}), Candidate.of({"x": "seven"})
ABOUT = msgspec.structs.replace(TASK, evaluator=Evaluator(verifier="/v.py"))
MODELS = (ProposeRequest(Brief(ONE), 7), WriteRequest("critic", {"n": 3}, 8))
FREE = (EmbedRequest((ONE,)), EditRequest("cut", (ONE,), {}, 1), CustomRequest("a.b", {}, 1))


class Plain:
    """A backend that knows of no verifier.

    It notes its arguments beside candidate, case and seed.
    """

    asked: dict[str, Any]

    async def start(self) -> str:
        return "none"

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, **more: Any
    ) -> Observation:
        self.asked = more
        return Observation(candidate.id, Status.OK, 0.5, case=case.id if case else "", seed=seed)

    async def close(self) -> None:
        pass


class Models(Gateway):
    async def propose(self, brief: Brief, seed: int) -> Proposal:
        return Proposal((), f"{brief.role} {seed}")

    async def write(self, role: str, slots: dict[str, Any], seed: int) -> Text:
        return Text(f"{role} {slots} {seed}")

    def estimate(self, request: Request) -> Usage:
        return Usage(calls=1, dollars=0.5)

    def most(self, request: Request) -> Usage:
        return Usage(calls=1, dollars=2.0)

    async def close(self) -> None:
        pass


class Lengths(Embedder):
    name = "lengths"

    def embed(self, texts: Any) -> list[list[float]]:
        return [[len(text), 0.5, -1.0] for text in texts]


class Cutter:
    async def perform(self, request: EditRequest) -> Edits:
        return Edits(({"x": request.tool},))

    async def close(self) -> None:
        pass


@dataclass
class Sessions(Craft):
    performed: list[str] = field(default_factory=list)

    async def perform(self, request: CustomRequest) -> Custom:
        self.performed.append(request.kind)
        return Custom({"kind": request.kind})

    async def close(self) -> None:
        self.performed.append("closed")


def world(crafts: Any = None, bare: bool = False) -> LiveWorld:
    gateway, editor = (None, None) if bare else (Models(), Cutter())
    frozen = lambda _, candidate: "frozen_text" if candidate == TWO else ""  # noqa: E731
    return LiveWorld(ABOUT, Plain(), gateway, Lengths(), editor, frozen, crafts)  # pyright: ignore[reportArgumentType]


def performed(by: World | LiveWorld, *requests: Request) -> list[Any]:
    async def main() -> list[Any]:
        return [
            await by.perform(Effect(n, request_mark(each), each)) for n, each in enumerate(requests)
        ]

    return asyncio.run(main())


def test_models_and_tools_are_asked_with_all_that_the_request_says() -> None:
    proposal, text, edits, waited = performed(
        world(), *MODELS, EditRequest("cut", (ONE,), {}, 1), CustomRequest(WAIT, {"seconds": 0}, 0)
    )
    assert proposal.hypothesis == "proposer 7" and text.text == "critic {'n': 3} 8"
    assert edits.parts == ({"x": "cut"},) and waited == Custom()


def test_without_models_and_editor_it_says_so_and_prose_is_no_fault() -> None:
    proposal, text, edits = performed(world(bare=True), *MODELS, EditRequest("cut", (ONE,), {}, 1))
    assert (proposal.fault, edits.fault) == ("no_model", "no_editor")
    assert (text.text, text.fault, text.model) == ("", "", "offline")


def test_a_backend_hears_of_verifier_and_checks_only_where_they_are_wanted() -> None:
    for request, more in (
        (EvaluateRequest(ONE, None, 1), {}),
        (EvaluateRequest(ONE, Case("a"), 2, certify=True), {"certify": True}),
        (EvaluateRequest(ONE, None, 3, checks=2, above=0.25), {"checks": 2, "above": 0.25}),
        (EvaluateRequest(ONE, None, 4, True, 1), {"certify": True, "checks": 1, "above": None}),
    ):
        backend = Plain()
        by = LiveWorld(ABOUT, backend, None, Lengths(), None, lambda *_: "")  # pyright: ignore[reportArgumentType]
        (seen,) = performed(by, request)
        assert backend.asked == more and seen.seed == request.seed and seen.score == 0.5


@pytest.mark.parametrize("case", [None, Case("hard")])
def test_what_may_not_run_is_rejected_with_its_reason_and_not_run(case: Case | None) -> None:
    (seen,) = performed(world(), EvaluateRequest(TWO, case, 9))
    assert (seen.candidate, seen.status, seen.reason) == (TWO.id, Status.REJECTED, "frozen_text")
    assert (seen.case, seen.seed, seen.score) == ("hard" if case else "", 9, None)
    assert seen.feedback == "Not run: frozen text." and seen.evaluator == ABOUT.evaluator.digest


def test_vectors_come_row_by_row_with_the_name_of_their_embedder() -> None:
    (vectors,) = performed(world(), EmbedRequest((ONE, TWO)))
    assert isinstance(vectors, Vectors) and vectors.embedder == "lengths"
    assert unpack_vectors(vectors) == ((3.0, 0.5, -1.0), (5.0, 0.5, -1.0))


def test_a_family_of_effects_has_one_craft_made_when_first_needed_and_closed_with_the_world() -> (
    None
):
    made: list[Sessions] = []

    def make() -> Sessions:
        made.append(Sessions())
        return made[-1]

    by = world({"session": make, "train": make})
    assert not made
    results = performed(
        by, *(CustomRequest(kind, {}, 1) for kind in ("session.open", "session.end", "train"))
    )
    assert [each.data["kind"] for each in results] == ["session.open", "session.end", "train"]
    asyncio.run(by.close())
    assert [each.performed for each in made] == [
        ["session.open", "session.end", "closed"],
        ["train", "closed"],
    ]
    for nobody in (by, world()):
        with pytest.raises(UserError, match=r"open\.session"):
            performed(nobody, CustomRequest("open.session", {}, 1))


def test_the_gateway_says_what_a_model_call_may_cost_and_all_else_costs_what_it_is() -> None:
    for request in MODELS:
        assert (world().estimate(request).dollars, world().most(request).dollars) == (0.5, 2.0)
        assert world(bare=True).estimate(request) == world(bare=True).most(request) == Usage()
    checked = EvaluateRequest(ONE, None, 1, checks=2)
    for each in (world(), world(bare=True)):
        assert each.estimate(checked) == each.most(checked) == Usage(evaluations=3)
        assert all(each.estimate(request) == each.most(request) == Usage() for request in FREE)


def test_a_fork_gets_what_its_parent_finished_and_performs_the_rest() -> None:
    known, other = EvaluateRequest(ONE, None, 1), EvaluateRequest(ONE, None, 2)
    parents = Observation(ONE.id, Status.OK, 0.125)
    fork = RememberingWorld(world(), {request_mark(known): parents})
    assert [seen.score for seen in performed(fork, known, other)] == [0.125, 0.5]
    assert (fork.estimate(MODELS[0]).dollars, fork.most(MODELS[0]).dollars) == (0.5, 2.0)
