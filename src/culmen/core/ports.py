"""The seams, as protocols: pass in a small class of your own wherever one of these is named.

Strategies and proposers live on the deterministic side: everything they learn comes from `Lab`. Worlds, backends,
gateways and embedders live outside and may do anything; what they return is journaled before a strategy sees it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

from culmen.core.brief import Brief, HumanInput, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Rollout
from culmen.core.event import Custom, CustomRequest, Effect, Entry, Event, Result
from culmen.core.task import Task

T = TypeVar("T")


class Lab(Protocol):
    """What the engine offers a strategy. All awaits are effects; time and randomness come from here only."""

    task: Task
    seeds: tuple[Candidate, ...]
    rng: Random
    workers: int

    @property
    def progress(self) -> float:
        """Share of the tightest budget that is spent, 0..1, counted in journal order."""
        ...

    def left(self, budget: str) -> float:
        """What remains of one budget (evaluations, calls, tokens, dollars, seconds) for the search; infinity without a
        limit."""
        ...

    @property
    def elapsed(self) -> float:
        """Active seconds of the run, up to the effect that finished last."""
        ...

    def lacks(self, evaluations: int = 0, brief: Brief | None = None, role: str = "", **slots: Any) -> str:
        """The budget that has no room now for so many evaluations, this brief, or `write(role, **slots)`; "" if all
        have. A search that asks for what does not fit is ended; one that has things to put in order can ask here first.
        """
        ...

    def minibatch(self, n: int) -> tuple[Case | None, ...]:
        """`n` training cases drawn with replacement; without a data set, `n` times None (once if deterministic)."""
        ...

    async def evaluate(
        self,
        candidate: Candidate,
        cases: Sequence[Case | None] | None = None,
        repeats: int = 1,
        *,
        certify: bool = False,
    ) -> Rollout:
        """Run the candidate on each case (None: all training cases), `repeats` times each.

        `certify` asks the task's verifier, too, where it has one.
        """
        ...

    async def propose(self, brief: Brief, through: Lab | None = None) -> Proposal:
        """Ask the run's proposer for candidates; what it evaluates itself goes `through` another lab, where given."""
        ...

    async def ask(self, brief: Brief) -> Proposal:
        """Ask the model behind `brief.role` directly (what a model proposer does)."""
        ...

    async def write(self, role: str, **slots: Any) -> Text:
        """Ask the model behind `role` for prose."""
        ...

    async def embed(self, candidates: Sequence[Candidate]) -> tuple[tuple[float, ...], ...]:
        """Map candidates to vectors of one length."""
        ...

    async def edit(self, tool: str, candidates: Sequence[Candidate], **options: Any) -> Any:
        """Heavy pure work outside the loop; returns `Edits`."""
        ...

    async def effect(self, kind: str, /, **payload: Any) -> Custom:
        """An effect of another kind (`session.open`, ...), done by the craft named before the dot; plain data."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Start without waiting; await what is returned for its result (an error is raised there and nowhere else)."""
        ...

    async def gather(self, *coroutines: Coroutine[Any, Any, T]) -> list[T]:
        """Run side by side; results in the order given. The first error ends the others."""
        ...

    def inbox(self) -> tuple[HumanInput, ...]:
        """All that a person has told the search so far, in journal order. Briefs carry the hints by themselves, and
        candidates are evaluated by the engine: a strategy need not look."""
        ...

    def handed(self) -> tuple[Candidate, ...]:
        """Candidates that a person handed in since the last call: to be taken up like a model's."""
        ...

    async def within(self, seconds: float | None, *coroutines: Coroutine[Any, Any, T]) -> list[T | None]:
        """Like `gather`, but for at most `seconds` (None: no limit): what is not done then is ended and gives None.

        Effects it had in flight go on and count; nobody hears of them.
        """
        ...

    def note(self, kind: str, /, **fields: Any) -> None:
        """Journal something worth seeing (plain data); never read back."""
        ...


class Strategy(Protocol):
    """A search method: a frozen dataclass whose fields are its configuration.

    `search` normally never returns: the budget ends the run. Returning ends it early: "the strategy is done", or the
    short word returned (threshold, plateau, ...) as the reason.
    """

    async def search(self, lab: Lab) -> str | None: ...


class Proposer(Protocol):
    """Turns a brief into candidates, on the deterministic side: it may await effects of the lab, also evaluations."""

    async def propose(self, lab: Lab, brief: Brief) -> Proposal: ...


class World(Protocol):
    """Performs effects. Failures of candidates and models come back as values; only `UserError`s and bugs raise."""

    async def perform(self, effect: Effect) -> Result: ...


class Craft(Protocol):
    """Performs the custom effects of one family, those whose kind begins with its name and a dot.

    An effect that was in flight when a process died is performed again by the next one's craft.
    """

    async def perform(self, request: CustomRequest) -> Custom: ...

    async def close(self) -> None: ...


class Backend(Protocol):
    """Runs candidates: the jailed fork-server of this machine, Ray, or your own.

    `start` returns the isolation level in force (namespaces | restricted | limits | none) and raises
    `IsolationError` below the level required. `certify` asks the task's verifier, too; it is only passed for tasks that
    have one. A backend that knows how far its scores can be trusted has it in `scoring` (`core.trust`) after the start.
    """

    async def start(self) -> str: ...

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, *, certify: bool = False
    ) -> Observation: ...

    async def close(self) -> None: ...


class Gateway(Protocol):
    """Asks models: renders, calls, parses, counts."""

    async def propose(self, brief: Brief, seed: int) -> Proposal: ...

    async def write(self, role: str, slots: dict[str, Any], seed: int) -> Text: ...

    async def close(self) -> None: ...


class Embedder(Protocol):
    """Maps texts to vectors: an array-like of shape (len(texts), width), float32, rows of length 1."""

    name: str

    def embed(self, texts: Sequence[str]) -> Any: ...


class Journal(Protocol):
    """Append-only. When `append` returns, its entries are durable, all of them or none."""

    def append(self, entries: Sequence[Entry]) -> list[Event]: ...

    def read(self, after: int = 0) -> Iterator[Event]: ...

    def close(self) -> None: ...


class Shelf(Protocol):
    """Gives back what was evaluated, so that a search need not keep the texts of all that it met.

    What is asked for was `kept` before, or is durable in the journal behind the shelf; anything else is a `KeyError`.
    """

    def keep(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """An evaluation with this mark was delivered."""
        ...

    def candidate(self, id: str) -> Candidate: ...

    def observation(self, candidate: str, mark: str) -> Observation:
        """The first observation of this candidate under this mark."""
        ...


class Observer(Protocol):
    """Sees events after they are durable; cannot slow or change the search."""

    def see(self, events: Iterable[Event]) -> None: ...
