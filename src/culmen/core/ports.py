"""The interfaces as protocols: pass a small class of your own wherever one is named.

Strategies and proposers live on the deterministic side: all their information comes from `Lab`.
Worlds, backends, gateways and embedders live outside and may do anything; their results are
journaled before a strategy sees them.

A protocol whose name begins with Minimal has the required members of such a class. The one derived
from it adds the optional members, with their defaults; `complete` gives an object the defaults of
the members it lacks. Subclass the derived one to inherit them, or write only your own.
"""

from __future__ import annotations

import logging
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol, TypeVar, cast, runtime_checkable

import msgspec

from culmen.core.brief import Brief, HumanInput, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import BackendNote, Case, Observation, Rollout, Scoring
from culmen.core.event import (
    Custom,
    CustomRequest,
    Edits,
    Effect,
    Entry,
    Event,
    Request,
    Result,
    at_least,
)
from culmen.core.json import JsonObject
from culmen.core.result import RunResult
from culmen.core.task import Task
from culmen.core.usage import Usage

T = TypeVar("T")

Permit = Callable[[Usage], bool]
"""A predicate: True if the budget has room for this usage on top."""


class Promise(Protocol[T]):
    """A value to come that a strategy settles itself; awaiting it waits until then."""

    def resolve(self, value: T) -> None:
        """Settle with a value; later calls are ignored."""
        ...

    def __await__(self) -> Generator[object, None, T]: ...


class LabEvidence(Protocol):
    """The observations of one run, and the conclusions from them."""

    def result(self) -> RunResult | None:
        """The result of the run at present; None without a score."""
        ...

    def leader(self) -> str | None:
        """The candidate that the run would report now; None without a score."""
        ...


class Lab(Protocol):
    """The interface of the engine for a strategy.

    All awaits are effects; time and randomness come from the lab only.
    """

    task: Task
    seeds: tuple[Candidate, ...]
    rng: Random
    workers: int
    embedder: str  # name of the embedder of the latest vectors, "" before the first

    @property
    def evidence(self) -> LabEvidence:
        """The observations of the run and their statistics.

        It is an `Evidence`; `culmen.evidence.evidence.evidence_of` gives a lab's as such.
        """
        ...

    def find(self, id: str) -> Candidate:
        """The evaluated candidate with this id."""
        ...

    @property
    def progress(self) -> float:
        """Share of the tightest budget that is spent, 0..1, counted in journal order."""
        ...

    def left(self, budget: str) -> float:
        """The remainder of one budget for the search; infinity without a limit.

        Budgets are evaluations, calls, tokens, dollars and seconds.
        """
        ...

    def session_limit(self, budget: str) -> float:
        """Most of a budget that one agent may use; infinity where agents have the run alone."""
        ...

    @property
    def elapsed(self) -> float:
        """Active seconds of the run, up to the effect that finished last."""
        ...

    def lacks(
        self, evaluations: int = 0, brief: Brief | None = None, role: str = "", **slots: object
    ) -> str:
        """The budget without room now for a request; "" if all have room.

        The request is a number of evaluations, a brief, or `write(role, **slots)`. A search that
        makes a request beyond its budget is ended; a strategy that has work to finish can ask here
        first.
        """
        ...

    def minibatch(self, n: int) -> tuple[Case | None, ...]:
        """`n` training cases drawn with replacement.

        Without a data set, `n` times None (once if deterministic).
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

        `certify` asks the task's verifier, too, if it has one.
        """
        ...

    async def propose(self, brief: Brief, through: Lab | None = None) -> Proposal:
        """Ask the run's proposer for candidates.

        Evaluations of the proposer itself go `through` another lab, if one is given.
        """
        ...

    async def ask(self, brief: Brief) -> Proposal:
        """Ask the model behind `brief.role` directly, as a model proposer does."""
        ...

    async def write(self, role: str, **slots: object) -> Text:
        """Ask the model behind `role` for prose."""
        ...

    async def embed(self, candidates: Sequence[Candidate]) -> tuple[tuple[float, ...], ...]:
        """Map candidates to vectors of one length."""
        ...

    async def edit(self, tool: str, candidates: Sequence[Candidate], **options: object) -> Edits:
        """Run heavy pure work outside the loop."""
        ...

    async def effect(self, kind: str, /, **payload: object) -> Custom:
        """Perform a custom effect (`session.open`, ...) by the craft named before the dot.

        Payload and result are plain data.
        """
        ...

    def spawn(self, coroutine: Coroutine[object, None, T]) -> Awaitable[T]:
        """Start a coroutine without waiting; await the returned object for its result.

        An error of the coroutine is raised there and nowhere else.
        """
        ...

    async def gather(self, *coroutines: Coroutine[object, None, T]) -> list[T]:
        """Run coroutines side by side; results in the order given.

        The first error ends the others.
        """
        ...

    def promise(self) -> Promise[None]:
        """A new promise, for one coroutine of the strategy to wait for another."""
        ...

    def inbox(self) -> tuple[HumanInput, ...]:
        """All human input to the search so far, in journal order.

        A strategy need not use it: briefs carry the hints, and the engine evaluates the candidates.
        """
        ...

    def handed(self) -> tuple[Candidate, ...]:
        """Candidates that a person submitted since the last call, to be treated like a model's."""
        ...

    async def within(
        self, seconds: float | None, *coroutines: Coroutine[object, None, T]
    ) -> list[T | None]:
        """Like `gather`, with a time limit in `seconds` (None: no limit); unfinished: None.

        In-flight effects finish and are charged; their results are discarded.
        """
        ...

    def note(self, kind: str, /, **fields: object) -> None:
        """Journal plain data worth seeing; never read back."""
        ...

    @property
    def restored(self) -> object | None:
        """The state of the checkpoint from which this search goes on; None from the beginning."""
        ...

    async def checkpoint(self, state: object) -> None:
        """Let the engine store the search, so that a resume replays only later events.

        To be awaited by each lane between two turns, where it holds nothing but `state`, one object
        that all lanes share; it may refer to the lab. A search with `restored` begins its lanes
        with that object, and does nothing else before. Optional: without it a resume replays all.
        """
        ...


class MinimalStrategy(Protocol):
    """The required members of a strategy."""

    async def search(self, lab: Lab) -> str | None: ...


class Strategy(MinimalStrategy, Protocol):
    """A search method: a frozen dataclass whose fields are its configuration.

    `search` normally never returns: the budget ends the run. Returning ends it early: "the strategy
    is done", or the short word returned (threshold, plateau, ...) as the reason. The members below
    are class attributes or properties:

    paper          the publication it follows
    ends_at        name of the setting for a score at which the strategy ends by itself; it then
                   gets `stop_at`, which the engine applies otherwise
    agent_setting  name of the setting for the agent that does the work; "" for strategies without
                   agents
    retraces       True if a fork with a larger budget takes the path of its parent, from the
                   parent's results; False for strategies that leave traces outside the journal: a
                   repository, weights
    trains         True if it trains a model while it searches
    writes         True if it can write a first candidate without a model of culmen's, by programs
                   with their own spending
    crew           description of the agents for people ("3 x claude, 2 at once"); "" for
                   strategies without agents
    asides         description for people of its requests to models for anything but candidates;
                   "" if there are none
    parts          strategies that it runs in turn; their versions count, too
    version        raised whenever it decides otherwise than before under the same settings: a run
                   of another version is not resumed
    changes        a sentence for people by version: what is decided otherwise since
    """

    paper: ClassVar[str] = ""
    ends_at: ClassVar[str] = ""
    agent_setting: ClassVar[str] = ""
    retraces: ClassVar[bool] = True
    trains: ClassVar[bool] = False
    version: ClassVar[int] = 1
    changes: ClassVar[Mapping[int, str]] = {}

    @property
    def parts(self) -> tuple[MinimalStrategy, ...]:
        return ()

    @staticmethod
    def require_agent(kind: str) -> str:
        """The agent's name as it holds in any folder; raise `UserError` if it cannot work here."""
        return kind

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
    """The required members of a proposer."""

    async def propose(self, lab: Lab, brief: Brief) -> Proposal: ...


class Proposer(MinimalProposer, Protocol):
    """Turns a brief into candidates, on the deterministic side.

    It may await effects of the lab, evaluations included. `free` is True if it never asks for
    anything paid, so that limits of calls, tokens or dollars alone would not end a run. `version`
    and `changes` are as in `Strategy`.
    """

    free: bool = False
    version: ClassVar[int] = 1
    changes: ClassVar[Mapping[int, str]] = {}


class MinimalWorld(Protocol):
    """The required members of a world."""

    async def perform(self, effect: Effect) -> Result: ...


class World(MinimalWorld, Protocol):
    """Performs effects.

    Failures of candidates and models are returned as values; only `UserError`s and bugs raise.
    """

    def estimate(self, request: Request) -> Usage:
        """The largest cost of a request, which is refused if the budget does not hold it."""
        return at_least(request)

    def most(self, request: Request) -> Usage:
        """A strict upper bound of the cost.

        It may be computed again at any time, and is read just before a model is asked.
        """
        return self.estimate(request)

    def result_at_once(self, effect: Effect) -> Result | None:
        """The result of an effect that costs neither money nor time; None for all others."""
        return None

    async def close(self) -> None:
        """Close all resources; called once, after the last effect."""


class Craft(Protocol):
    """Performs the custom effects of one family: kinds that begin with its name and a dot.

    An effect that was in flight when a process died is performed again by the next process's craft.
    """

    async def perform(self, request: CustomRequest) -> Custom: ...

    async def close(self) -> None: ...


class CraftContext(msgspec.Struct, frozen=True):
    """Input of a craft's maker: `run` is the run's folder.

    `settings` are those of the strategy; `model` and `models_file` the run's models (None: none
    given). `has_room` is True if the budget has room for this usage on top, `is_searching` False
    once the final choice has begun. `past_payloads` holds the payloads of the effects of a kind
    that were finished before the craft was made, in order. `render` makes the system and user
    message of a prompt by its role and slots.
    """

    run: Path
    task: Task
    settings: Mapping[str, object]
    model: str | Mapping[str, object] | None
    models_file: str | None
    has_room: Callable[[Usage], bool]
    is_searching: Callable[[], bool]
    past_payloads: Callable[[str], Sequence[Mapping[str, Any]]]
    render: Callable[[str, JsonObject], tuple[str, str]]


class MinimalBackend(Protocol):
    """The required members of an evaluation backend."""

    async def start(self) -> str: ...

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, *, certify: bool = False
    ) -> Observation: ...

    async def close(self) -> None: ...


class Backend(MinimalBackend, Protocol):
    """Runs candidates: the jailed fork-server of this machine, Ray, or your own.

    `start` returns the isolation level in force (`culmen.jail.probes.LEVELS`) and raises
    `IsolationError` below the level required. `certify` asks the task's verifier, too; it is only
    passed for tasks that have one.

    workers   evaluations it has room for at once, if the run states no number; 0: one per core of
              this machine
    attempts  attempts at an evaluation before it counts as lost; 1 for a backend that retries by
              itself
    scoring   level of trust in its scores, with the reason; known after the start
    notes     remarks on its evaluator, for people; known after the start
    """

    workers: int = 0
    attempts: int = 2
    scoring: Scoring = Scoring()
    notes: tuple[BackendNote, ...] = ()

    async def renew(self) -> None:
        """Judge from now on in processes that saw nothing of the search.

        Called when the final choice begins.
        """

    async def vary_processes(self, hash_seed: int) -> tuple[str, ...]:
        """Evaluate from now on in new processes, in which sets have another order.

        Returns the names of the changes, of "process" and "hash seed"; () if there is none.
        """
        return ()


@runtime_checkable
class MinimalGateway(Protocol):
    """The required members of a gateway."""

    async def propose(self, brief: Brief, seed: int) -> Proposal: ...

    async def write(self, role: str, slots: JsonObject, seed: int) -> Text: ...

    async def close(self) -> None: ...


class Gateway(MinimalGateway, Protocol):
    """Asks models: renders, calls, parses, counts.

    A gateway whose `estimate` of a request with a `limit` is lower gets that limit as a keyword of
    `propose` and `write`.
    """

    def begin(self, permit: Permit) -> None:
        """Take the permit to reserve budget; called once, before the first request.

        The task that makes a request calls `permit(usage)` before the request may cost more than
        `most` returned; `usage` is its largest cost in all, which is reserved.
        """

    def estimate(self, request: Request) -> Usage:
        """The largest likely cost of a request if no attempt has to be repeated; pure."""
        return at_least(request)

    def most(self, request: Request) -> Usage:
        """The largest cost of a request if no attempt has to be repeated.

        It holds however the provider counts tokens.
        """
        return self.estimate(request)


class MinimalEmbedder(Protocol):
    """The required members of an embedder."""

    name: str

    def embed(self, texts: Sequence[str]) -> Any: ...


class Embedder(MinimalEmbedder, Protocol):
    """Maps texts to vectors.

    `embed` returns an array-like of shape (len(texts), width), float32, with rows of length 1.
    It may be called on the event loop if it `is_instant`.
    """

    is_instant: ClassVar[bool] = False

    def embed_with_usage(self, texts: Sequence[str]) -> tuple[Any, Usage]:
        """The vectors and their cost; never called from a running event loop."""
        return self.embed(texts), Usage()


class Journal(Protocol):
    """Append-only log; when `append` returns, its entries are durable, all of them or none."""

    def append(self, entries: Sequence[Entry]) -> list[Event]: ...

    def read(self, after: int = 0) -> Iterator[Event]: ...

    def retrace(self, after: int = 0) -> Iterator[Event]:
        """Events with seq > `after`, for a replay.

        Data that no replay reads may be left out: the bodies of `started`, `note` and `done`, and
        the results of notes.
        """
        ...

    def close(self) -> None: ...


class ObservationStore(Protocol):
    """Store of evaluations, so that a search need not keep the texts of all its candidates.

    A value that is read was `kept` before, or is durable in the journal behind the store; anything
    else is a `KeyError`.
    """

    def keep(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """Keep a delivered evaluation with this mark."""
        ...

    def candidate(self, id: str) -> Candidate: ...

    def observation(self, candidate: str, mark: str) -> Observation:
        """The first observation of this candidate under this mark."""
        ...


class MinimalObserver(Protocol):
    """The required members of an observer."""

    def see(self, events: Iterable[Event]) -> None: ...


class Observer(MinimalObserver, Protocol):
    """Sees events after they are durable; cannot slow or change the search."""

    def told(self, text: str) -> None:
        """Take a sentence for people about an outage; log a warning by default.

        A provider is down, the disk is full, a cluster has no room.
        """
        logging.getLogger("culmen").warning("%s", text)

    def remarked(self, text: str) -> None:
        """Take a sentence for people about the search; log it by default.

        Scores are noisy, a filter refuses most candidates.
        """
        logging.getLogger("culmen").info("%s", text)

    def interrupted(self) -> None:
        """Acknowledge Ctrl-C; called each time."""


class _Completed:
    """An object completed by the defaults of a protocol."""

    def __init__(self, kind: type, implementation: object) -> None:
        self._kind, self._implementation = kind, implementation

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        if hasattr(self._implementation, name):
            return getattr(self._implementation, name)
        default = getattr(self._kind, name)
        if isinstance(default, property):
            return default.__get__(self._implementation)
        return default.__get__(self) if callable(default) else default


def with_protocol_defaults(kind: type[T], implementation: object) -> T:
    """The object, completed by the defaults of the protocol `kind`.

    Raises `UserError` if it lacks a required member.
    """
    names = _public_members(kind)
    lacks = [name for name in names if not hasattr(implementation, name)]
    required = [name for name in lacks if name in _public_members(kind.__mro__[1])]
    if required:
        what = (
            f"a {type(implementation).__name__} is not a valid {kind.__name__.lower()}: it has no "
            f"{' and no '.join(required)}"
        )
        raise UserError(what, fix="culmen docs extending shows what it takes")
    return cast(T, implementation if not lacks else _Completed(kind, implementation))


@cache
def _public_members(kind: type) -> list[str]:
    """The public names that a protocol declares, inherited ones included."""
    own = {
        name
        for each in kind.__mro__
        for name in (*vars(each), *vars(each).get("__annotations__", ()))
    }
    return sorted(name for name in own if not name.startswith("_"))
