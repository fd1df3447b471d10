"""The seams, as protocols: pass in a small class of your own wherever one of these is named.

Strategies and proposers live on the deterministic side: everything they learn comes from `Lab`.
Worlds, backends, gateways and embedders live outside and may do anything; what they return is
journaled before a strategy sees it.

A protocol whose name begins with Minimal is what such a class must have. The one derived from it
adds what it may have as well, with the default that holds otherwise; `complete` gives an object the
defaults of what it lacks. Subclass the derived one to inherit them, or write only what is yours.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from random import Random
from typing import Any, ClassVar, Protocol, TypeVar, cast, runtime_checkable

from culmen.core.brief import Brief, HumanInput, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation, Rollout, Scoring
from culmen.core.event import Custom, CustomRequest, Effect, Entry, Event, Request, Result, at_least
from culmen.core.task import Task
from culmen.core.usage import Usage

T = TypeVar("T")

Permit = Callable[[Usage], bool]
"""Whether the budget has room for so much more."""


class Lab(Protocol):
    """What the engine offers a strategy. All awaits are effects; time and randomness come from here
    only.
    """

    task: Task
    seeds: tuple[Candidate, ...]
    rng: Random
    workers: int
    embedder: str  # name of what made the latest vectors, "" before there are any
    evidence: (
        Any  # the run's `culmen.evidence.evidence.Evidence`: what was observed, and what follows
    )

    def find(self, id: str) -> Candidate:
        """A candidate that was evaluated, by its id."""
        ...

    @property
    def progress(self) -> float:
        """Share of the tightest budget that is spent, 0..1, counted in journal order."""
        ...

    def left(self, budget: str) -> float:
        """What remains of one budget (evaluations, calls, tokens, dollars, seconds) for the search;
        infinity without a limit."""
        ...

    @property
    def elapsed(self) -> float:
        """Active seconds of the run, up to the effect that finished last."""
        ...

    def lacks(
        self, evaluations: int = 0, brief: Brief | None = None, role: str = "", **slots: Any
    ) -> str:
        """The budget that has no room now for so many evaluations, this brief, or `write(role,
        **slots)`; "" if all have. A search that asks for what does not fit is ended; one that has
        things to put in order can ask here first.
        """
        ...

    def minibatch(self, n: int) -> tuple[Case | None, ...]:
        """`n` training cases drawn with replacement; without a data set, `n` times None (once if
        deterministic).
        """
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
        """Ask the run's proposer for candidates; what it evaluates itself goes `through` another
        lab, where given.
        """
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
        """An effect of another kind (`session.open`, ...), done by the craft named before the dot;
        plain data.
        """
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Start without waiting; await what is returned for its result (an error is raised there
        and nowhere else).
        """
        ...

    async def gather(self, *coroutines: Coroutine[Any, Any, T]) -> list[T]:
        """Run side by side; results in the order given. The first error ends the others."""
        ...

    def inbox(self) -> tuple[HumanInput, ...]:
        """All that a person has told the search so far, in journal order. Briefs carry the hints by
        themselves, and candidates are evaluated by the engine: a strategy need not look."""
        ...

    def handed(self) -> tuple[Candidate, ...]:
        """Candidates that a person handed in since the last call: to be taken up like a model's."""
        ...

    async def within(
        self, seconds: float | None, *coroutines: Coroutine[Any, Any, T]
    ) -> list[T | None]:
        """Like `gather`, but for at most `seconds` (None: no limit): what is not done then is ended
        and gives None.

        Effects it had in flight go on and count; nobody hears of them.
        """
        ...

    def note(self, kind: str, /, **fields: Any) -> None:
        """Journal something worth seeing (plain data); never read back."""
        ...


class MinimalStrategy(Protocol):
    """What a strategy must have."""

    async def search(self, lab: Lab) -> str | None: ...


class Strategy(MinimalStrategy, Protocol):
    """A search method: a frozen dataclass whose fields are its configuration.

    `search` normally never returns: the budget ends the run. Returning ends it early: "the strategy
    is done", or the short word returned (threshold, plateau, ...) as the reason. What follows are
    class attributes or properties:

    paper          the publication it follows
    ends_at        name of the setting that holds a score at which the strategy ends by itself; it
    then gets `stop_at`,
                   which the engine applies otherwise
    agent_setting  name of the setting that says which agent does the work; "" for strategies
    without agents
    retraces       whether a fork with a larger budget takes the path of its parent, from the
    parent's results. False
                   for what leaves traces outside the journal: a repository, weights
    trains         whether it trains a model while it searches
    writes         whether it can write a first candidate without a model of culmen's, by programs
    whose spending is
                   their own
    crew           who does the work, for people ("3 x claude, 2 at once"); "" for strategies
    without agents
    asides         what it asks models for besides candidates, for people; "" for nothing
    """

    paper: ClassVar[str] = ""
    ends_at: ClassVar[str] = ""
    agent_setting: ClassVar[str] = ""
    retraces: ClassVar[bool] = True
    trains: ClassVar[bool] = False

    @property
    def writes(self) -> bool:
        return False

    @property
    def crew(self) -> str:
        return ""

    @property
    def asides(self) -> str:
        return ""


class MinimalProposer(Protocol):
    """What a proposer must have."""

    async def propose(self, lab: Lab, brief: Brief) -> Proposal: ...


class Proposer(MinimalProposer, Protocol):
    """Turns a brief into candidates, on the deterministic side: it may await effects of the lab,
    also evaluations.

    `free` says that it never asks for anything paid, so that limits of calls, tokens or dollars
    alone would not end a run.
    """

    free: bool = False


class MinimalWorld(Protocol):
    """What a world must have."""

    async def perform(self, effect: Effect) -> Result: ...


class World(MinimalWorld, Protocol):
    """Performs effects. Failures of candidates and models come back as values; only `UserError`s
    and bugs raise.
    """

    def estimate(self, request: Request) -> Usage:
        """The most that performing a request may cost: it is refused where the budget does not hold
        so much.
        """
        return at_least(request)

    def most(self, request: Request) -> Usage:
        """The same, strictly: it may be worked out anew at any time, and is asked for just before a
        model is.
        """
        return self.estimate(request)

    async def close(self) -> None:
        """Called once, after the last effect."""


class Craft(Protocol):
    """Performs the custom effects of one family, those whose kind begins with its name and a dot.

    An effect that was in flight when a process died is performed again by the next one's craft.
    """

    async def perform(self, request: CustomRequest) -> Custom: ...

    async def close(self) -> None: ...


class MinimalBackend(Protocol):
    """What an evaluation backend must have."""

    async def start(self) -> str: ...

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, *, certify: bool = False
    ) -> Observation: ...

    async def close(self) -> None: ...


class Backend(MinimalBackend, Protocol):
    """Runs candidates: the jailed fork-server of this machine, Ray, or your own.

    `start` returns the isolation level in force (`culmen.evaluate.jail.probes.LEVELS`) and raises
    `IsolationError` below the level required. `certify` asks the task's verifier, too; it is only
    passed for tasks that have one.

    workers   evaluations it has room for at once, where nobody says how many; 0: one per core of this machine
    attempts  how often an evaluation is tried before it counts as lost; 1 for a backend that tries again by itself
    scoring   how far its scores can be trusted and why, known after the start
    """

    workers: int = 0
    attempts: int = 2
    scoring: Scoring = Scoring()

    async def renew(self) -> None:
        """From now on judge in processes that saw nothing of the search: the final choice
        begins.
        """


@runtime_checkable
class MinimalGateway(Protocol):
    """What a gateway must have."""

    async def propose(self, brief: Brief, seed: int) -> Proposal: ...

    async def write(self, role: str, slots: dict[str, Any], seed: int) -> Text: ...

    async def close(self) -> None: ...


class Gateway(MinimalGateway, Protocol):
    """Asks models: renders, calls, parses, counts."""

    def begin(self, permit: Permit) -> None:
        """Called once, before the first request: `permit(usage)` is to be asked, by the task that
        makes the request, before a request may cost more than `most` told; `usage` is what it may
        then cost in all, which is reserved."""

    def estimate(self, request: Request) -> Usage:
        """The most that a request is likely to cost if no attempt has to be repeated; pure."""
        return at_least(request)

    def most(self, request: Request) -> Usage:
        """The most that it may cost if no attempt has to be repeated, whatever the provider takes
        for a token.
        """
        return self.estimate(request)


class MinimalEmbedder(Protocol):
    """What an embedder must have."""

    name: str

    def embed(self, texts: Sequence[str]) -> Any: ...


class Embedder(MinimalEmbedder, Protocol):
    """Maps texts to vectors: an array-like of shape (len(texts), width), float32, rows of length
    1.
    """

    def embed_with_usage(self, texts: Sequence[str]) -> tuple[Any, Usage]:
        """The vectors, and what they cost; never called from a running event loop."""
        return self.embed(texts), Usage()


class Journal(Protocol):
    """Append-only. When `append` returns, its entries are durable, all of them or none."""

    def append(self, entries: Sequence[Entry]) -> list[Event]: ...

    def read(self, after: int = 0) -> Iterator[Event]: ...

    def retrace(self) -> Iterator[Event]:
        """All events, for a replay: what it never looks at may be left out, the bodies of
        `started`, `note` and `done` and the results of notes."""
        ...

    def close(self) -> None: ...


class ObservationStore(Protocol):
    """Gives back what was evaluated, so that a search need not keep the texts of all that it met.

    What is asked for was `kept` before, or is durable in the journal behind the store; anything
    else is a `KeyError`.
    """

    def keep(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """An evaluation with this mark was delivered."""
        ...

    def candidate(self, id: str) -> Candidate: ...

    def observation(self, candidate: str, mark: str) -> Observation:
        """The first observation of this candidate under this mark."""
        ...


class MinimalObserver(Protocol):
    """What an observer must have."""

    def see(self, events: Iterable[Event]) -> None: ...


class Observer(MinimalObserver, Protocol):
    """Sees events after they are durable; cannot slow or change the search."""

    def told(self, text: str) -> None:
        """A sentence for people: a provider is down, the disk is full, a cluster has no room.
        Logged by default.
        """
        logging.getLogger("culmen").warning("%s", text)

    def remarked(self, text: str) -> None:
        """A sentence for people that the search has to say: scores are noisy, a filter refuses
        most. Logged by default."""
        logging.getLogger("culmen").info("%s", text)

    def interrupted(self) -> None:
        """Ctrl-C was understood; called each time."""


class _Completed:
    """An object with the defaults of a protocol for what it lacks."""

    def __init__(self, kind: type, thing: object) -> None:
        self._kind, self._thing = kind, thing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if hasattr(self._thing, name):
            return getattr(self._thing, name)
        default = getattr(self._kind, name)
        if isinstance(default, property):
            return default.__get__(self._thing)
        return default.__get__(self) if callable(default) else default


def complete(kind: type[T], thing: object) -> T:
    """The object, with the defaults of the protocol `kind` for what it lacks. Raises `UserError` if
    it lacks more.
    """
    names = _members(kind)
    lacks = [name for name in names if not hasattr(thing, name)]
    required = [name for name in lacks if name in _members(kind.__mro__[1])]
    if required:
        what = (
            f"a {type(thing).__name__} is no {kind.__name__.lower()}: it has no "
            f"{' and no '.join(required)}"
        )
        raise UserError(what, fix="culmen docs extending shows what it takes")
    return cast(T, thing if not lacks else _Completed(kind, thing))


def _members(kind: type) -> list[str]:
    """The public names that a protocol declares, inherited ones included."""
    own = {
        name
        for each in kind.__mro__
        for name in (*vars(each), *vars(each).get("__annotations__", ()))
    }
    return sorted(name for name in own if not name.startswith("_"))
