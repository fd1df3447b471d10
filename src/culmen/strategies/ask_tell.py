"""Adapter for optimisers with ask() and tell()."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Protocol

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.core.task import Task
from culmen.strategies.settings import About, Cases, check

Asked = Brief | Candidate | Sequence[Brief | Candidate]


class Optimizer(Protocol):
    """An optimiser of your own: plain synchronous methods, state in plain attributes.

    `ask` returns the next step: a `Candidate` to evaluate, a `Brief` whose proposals are evaluated,
    or a sequence of these, all run side by side; an empty sequence ends the search. `tell` gets one
    `Rollout` per evaluated candidate, in the order asked, before the next `ask`. Draw random
    numbers only from the generator passed in: a resumed run calls the same methods again and
    expects the same answers.
    """

    def ask(self) -> Asked: ...

    def tell(self, rollouts: Sequence[Rollout]) -> None: ...


@dataclass(frozen=True)
class AskTell:
    """A search by your own optimiser, by alternate calls of `ask` and `tell`.

    `AskTell(MyOptimizer)` builds it as `MyOptimizer(task, seeds, rng)`. The optimiser need not save
    or restore anything: a resumed run builds it afresh and replays the recorded rollouts. From the
    command line: `--set make=module:MyOptimizer` or `--set make=path/to/file.py:MyOptimizer`.
    """

    paper = "adapter for your own optimiser"

    make: Annotated[
        Callable[[Task, Sequence[Candidate], Random], Optimizer] | None,
        About("class or function to build it"),
    ] = None
    batch: Cases = None

    def __post_init__(self) -> None:
        check(self)
        if self.make is None:
            raise UserError(
                "ask_tell needs an optimiser to run",
                where="setting 'make'",
                fix="--set make=module:Class, a class with ask() and tell()",
            )

    async def search(self, lab: Lab) -> None:
        """Alternate ask and tell until the budget or the optimiser ends it."""
        assert self.make is not None  # checked on construction
        optimizer = self.make(lab.task, lab.seeds, lab.rng)
        while asked := _as_list(optimizer.ask()):
            cases = None if self.batch is None else lab.minibatch(self.batch)
            groups = await lab.gather(*(_candidates_of(lab, item) for item in asked))
            programs = [program for group in groups for program in group]
            optimizer.tell(
                await lab.gather(*(lab.evaluate(program, cases) for program in programs))
            )


def _as_list(asked: Asked) -> list[Brief | Candidate]:
    return [asked] if isinstance(asked, Brief | Candidate) else list(asked)


async def _candidates_of(lab: Lab, item: Brief | Candidate) -> tuple[Candidate, ...]:
    return (item,) if isinstance(item, Candidate) else (await lab.propose(item)).candidates
