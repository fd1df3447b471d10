"""The lab: the effects that a strategy may ask for (`core.ports.Lab`).

The search supplies the function that issues them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import NamedTuple, Protocol, TypeVar, overload

import msgspec

from culmen.core.brief import Brief, HumanInput, Proposal, Text, resolve_format
from culmen.core.candidate import Candidate, key_of
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation, Rollout
from culmen.core.event import (
    WAIT,
    Custom,
    CustomRequest,
    EditRequest,
    Edits,
    EmbedRequest,
    EvaluateRequest,
    ProposeRequest,
    Request,
    TrustChecks,
    Vectors,
    WriteRequest,
    encode_json,
    seed_from_digest,
)
from culmen.core.json import JsonObject
from culmen.core.ports import Lab, MinimalProposer
from culmen.core.task import Task, digest_pieces
from culmen.core.usage import Usage
from culmen.engine.ledger import Ledger
from culmen.engine.loop import Future, Loop
from culmen.evidence.evidence import Evidence

# Number of a strategy's turns: a budget for only a few gives it no chance to learn, and this is
# reported.

# turns that a search should have, in a budget of at least this many evaluations
ENOUGH, SIZEABLE = 10, 100


class TurnCounter:
    """Counts turns by the proposals asked for.

    Proposals without a delivery between them are of one turn.
    """

    def __init__(self) -> None:
        self._begun = self._under_way = 0
        self._together = False

    def count_proposal_request(self) -> None:
        """Count a request for a proposal."""
        self._begun += not self._together
        self._together = True
        self._under_way += 1

    def count_proposal(self) -> None:
        """Count a returned proposal."""
        self._under_way -= 1

    def note_delivery(self) -> None:
        """Note a delivered result: later requests are of another turn."""
        self._together = False

    @property
    def finished_count(self) -> int:
        """Number of turns begun, without the one still under way."""
        return self._begun - (self._under_way > 0)

    def few_turns_note(self, evaluations: int | None, spent: int) -> JsonObject | None:
        """Fields of the note `few_turns` for a search that spent its budget of `evaluations`.

        None if it had enough turns, never asked for a proposal, or had too small a budget to expect
        more.
        """
        if (
            evaluations is None
            or evaluations < SIZEABLE
            or not self._begun
            or self.finished_count >= ENOUGH
        ):
            return None
        needed = math.ceil(evaluations * ENOUGH / max(self.finished_count, 1))
        return {"turns": self.finished_count, "evaluations": spent, "needed": needed}


T = TypeVar("T")
# remembered answers in a row, without a single effect, after which a strategy counts as spinning
_STALL = 100_000


class DirectProposer:
    """The default proposer: asks the model behind the brief's role."""

    async def propose(self, lab: Lab, brief: Brief) -> Proposal:
        return await lab.ask(brief)


class Issue(Protocol):
    """Turns a request into a future; `brief` is its encoded brief, if that is at hand."""

    @overload
    def __call__(self, request: EvaluateRequest) -> Future[Observation]: ...

    @overload
    def __call__(self, request: ProposeRequest, brief: bytes = b"") -> Future[Proposal]: ...

    @overload
    def __call__(self, request: WriteRequest) -> Future[Text]: ...

    @overload
    def __call__(self, request: EmbedRequest) -> Future[Vectors]: ...

    @overload
    def __call__(self, request: EditRequest) -> Future[Edits]: ...

    @overload
    def __call__(self, request: CustomRequest) -> Future[Custom]: ...


class SearchPort(NamedTuple):
    """The search, as its lab uses it.

    `issue` turns a request into a future, `remembered` returns the future of an evaluation that was
    issued before (None: there is none), `find` an evaluated candidate, `remark` journals a note,
    `short` names the budget without room for a request or a usage, `informed` completes a brief
    from the evidence, `turns` counts those of the strategy, `hold_lane` returns the future that a
    lane waits for while a checkpoint is due (None: it is not).
    """

    issue: Issue
    remembered: Callable[[EvaluateRequest], Future[Observation] | None]
    find: Callable[[str], Candidate]
    remark: Callable[[str, JsonObject, tuple[Candidate, ...]], None]
    short: Callable[[Usage | Request], str]
    informed: Callable[[Brief], Brief]
    turns: TurnCounter
    hold_lane: Callable[[object], Future[None] | None]


_STORED = (
    *("rng", "evidence", "embedder", "_proposer", "_ledger", "_turns"),
    *("_known", "_occurrences", "_idle", "_inputs", "_taken"),
)
"""Members of a lab that a checkpoint stores; the others follow from task and settings."""


class EngineLab:
    """The lab of one search."""

    def __init__(
        self,
        task: Task,
        proposer: MinimalProposer,
        ledger: Ledger,
        loop: Loop,
        seed: int,
        workers: int,
        search_port: SearchPort,
        evidence: Evidence,
    ) -> None:
        self.task, self.workers, self.rng = task, workers, Random(seed)
        self.evidence = evidence
        self.seeds = task.starting_candidates()
        self._proposer, self._ledger, self._loop = proposer, ledger, loop
        (
            self._issue,
            self._remembered,
            self._find,
            self._remark,
            self._short,
            self._informed,
            self._turns,
            self._hold_lane,
        ) = search_port
        self.embedder = ""
        self.restored: object | None = None
        self._seed = str(seed)
        self._known: set[int] = set()  # known candidates, by the key of their id
        self._occurrences: dict[int, int] = {}  # number of occurrences of each request
        self._mark_known(self.seeds)
        self._train = task.split("train") or (None,)
        self._idle = 0
        self._inputs: list[HumanInput] = []
        self._taken = 0  # number of these that `handed` has returned

    @property
    def progress(self) -> float:
        """Share of the tightest budget spent, 0..1."""
        return self._ledger.progress

    def left(self, budget: str) -> float:
        """The remainder of one budget for the search; infinity without a limit.

        Reservations count as spent.
        """
        return self._ledger.budget_left(budget)

    def session_limit(self, budget: str) -> float:
        """Most of a budget that one agent may use: no limit."""
        return math.inf

    @property
    def elapsed(self) -> float:
        """Active seconds of the run up to the effect that finished last."""
        return self._ledger.elapsed

    def lacks(
        self, evaluations: int = 0, brief: Brief | None = None, role: str = "", **slots: object
    ) -> str:
        """The budget without room for these evaluations, this brief or this `write`.

        "" if all have room.
        """
        needs: list[Usage | Request] = [Usage(evaluations=evaluations)] if evaluations else []
        if brief is not None:
            brief = self._brief_for_model(brief)
            needs.append(ProposeRequest(brief, self._next_seed("propose", _repeatable_json(brief))))
        if role:
            needs.append(WriteRequest(role, slots, self._next_seed(role, encode_json(slots))))
        return next((name for need in needs if (name := self._short(need))), "")

    def minibatch(self, n: int) -> tuple[Case | None, ...]:
        """`n` training cases with replacement (POLCA, Section 3); n times None without a data set.

        On a task that is evaluated once they are drawn without replacement.
        """
        if self.task.is_evaluated_once:  # repeats teach nothing: draw without replacement
            return tuple(self.rng.sample(self._train, k=min(n, len(self._train))))
        return tuple(self.rng.choices(self._train, k=n))

    async def evaluate(
        self,
        candidate: Candidate,
        cases: Sequence[Case | None] | None = None,
        repeats: int = 1,
        *,
        certify: bool = False,
    ) -> Rollout:
        """One effect per (case, repeat), all in flight together; observations in that order."""
        certify = certify and bool(self.task.evaluator.verifier)
        chosen = self._train if cases is None else cases
        futures = [
            self._observation_future(candidate, case, certify)
            for case in chosen
            for _ in range(repeats)
        ]
        return await self._rollout_of(candidate, futures)

    async def evaluate_afresh(
        self,
        candidate: Candidate,
        cases: Sequence[Case | None],
        checks: TrustChecks | None = None,
    ) -> Rollout:
        """Like `evaluate`, but never answered from memory; for the engine's final choice.

        Certified if the task has a verifier. The first of these is tested by `checks`.
        """
        certify = bool(self.task.evaluator.verifier)
        requests = [self._evaluation_request(candidate, case, certify) for case in cases]
        if checks and requests:
            requests[0] = msgspec.structs.replace(requests[0], **checks._asdict())
        return await self._rollout_of(candidate, [self._issue(request) for request in requests])

    async def _rollout_of(
        self, candidate: Candidate, futures: Sequence[Future[Observation]]
    ) -> Rollout:
        observations = [await future for future in futures]
        rewards = map(self.task.effective_reward, observations)
        return Rollout(candidate, tuple(observations), tuple(rewards))

    def find(self, id: str) -> Candidate:
        """The evaluated candidate with this id; KeyError for any other."""
        return self._find(id)

    def request_evaluation(self, candidate: Candidate, case: Case | None) -> None:
        """Ask for an evaluation whose result is not awaited; for the engine's own looks."""
        self._issue(self._evaluation_request(candidate, case))

    async def propose(self, brief: Brief, through: Lab | None = None) -> Proposal:
        """Ask the run's proposer for candidates.

        Evaluations of the proposer itself go `through` another lab, if one is given.
        """
        self._turns.count_proposal_request()
        proposal = await self._proposer.propose(through or self, brief)
        self._turns.count_proposal()
        self._journal_new_candidates(proposal.candidates)
        return proposal

    async def ask(self, brief: Brief) -> Proposal:
        """Ask the model of `brief.role`.

        The prompt has a person's hints and the statistics of the candidates.
        """
        brief = self._brief_for_model(brief)
        written = encode_json(brief)
        proposal = await self._issue(
            ProposeRequest(brief, self._seed_for("propose", _repeatable_json(brief))), written
        )
        self._mark_known(proposal.candidates)
        return proposal

    async def write(self, role: str, **slots: object) -> Text:
        """Ask the model behind `role` for prose."""
        return await self._issue(
            WriteRequest(role, slots, self._seed_for(role, encode_json(slots)))
        )

    async def embed(self, candidates: Sequence[Candidate]) -> tuple[tuple[float, ...], ...]:
        """One vector per candidate."""
        if not candidates:
            return ()
        vectors = await self._issue(EmbedRequest(tuple(candidates)))
        self.embedder = vectors.embedder
        return unpack_vectors(vectors)

    async def edit(self, tool: str, candidates: Sequence[Candidate], **options: object) -> Edits:
        """Heavy pure work done outside the loop."""
        digest = encode_json([tool, [c.digest for c in candidates], options])
        return await self._issue(
            EditRequest(tool, tuple(candidates), options, self._seed_for("edit", digest))
        )

    async def effect(self, kind: str, /, **payload: object) -> Custom:
        """A custom effect, performed by a custom world."""
        return await self._issue(
            CustomRequest(kind, payload, self._seed_for(kind, encode_json(payload)))
        )

    async def gather(self, *coroutines: Coroutine[object, None, T]) -> list[T]:
        """Run coroutines side by side; results in the order given."""
        return await self._loop.gather(*coroutines)

    def promise(self) -> Future[None]:
        """A new promise, for one coroutine of the strategy to wait for another."""
        return Future()

    async def within(
        self, seconds: float | None, *coroutines: Coroutine[object, None, T]
    ) -> list[T | None]:
        """Run coroutines side by side for at most `seconds`; None for each unfinished one.

        The clock is an effect.
        """
        if not coroutines:
            return []
        limit = (
            Future[Custom]()
            if seconds is None
            else self._issue(CustomRequest(WAIT, {"seconds": seconds}, 0))
        )
        return await self._loop.within(limit, *coroutines)

    def spawn(self, coroutine: Coroutine[object, None, T]) -> Future[T]:
        """Start a coroutine without waiting for it; await the returned future for its result."""
        return self._loop.spawn(coroutine)

    def note(self, kind: str, /, **fields: object) -> None:
        """Journal plain data as a note."""
        self._remark(kind, fields, ())

    def inbox(self) -> tuple[HumanInput, ...]:
        """All input from a person so far, in journal order."""
        return tuple(self._inputs)

    def handed(self) -> tuple[Candidate, ...]:
        """A person's candidates since the last call."""
        fresh, self._taken = self._inputs[self._taken :], len(self._inputs)
        return tuple(
            human_input.candidate for human_input in fresh if human_input.candidate is not None
        )

    async def take_input(self, human_input: HumanInput) -> None:
        """Take a person's input; evaluate a candidate.

        It runs on as many training cases as the budget has room for.
        """
        self._inputs.append(human_input)
        evaluations_left = self._ledger.budget_left("evaluations")
        cases = (
            self._train
            if evaluations_left >= len(self._train)
            else self._train[: int(evaluations_left)]
        )
        if human_input.candidate is not None and cases:
            self._mark_known((human_input.candidate,))
            await self.evaluate(human_input.candidate, cases)

    async def checkpoint(self, state: object) -> None:
        """Wait while a checkpoint is due, until one is taken or the patience is over."""
        held = self._hold_lane(state)
        if held is not None:
            await held

    @property
    def proposer(self) -> MinimalProposer:
        """The run's proposer."""
        return self._proposer

    def stored_members(self) -> dict[str, object]:
        """The members that a checkpoint stores."""
        return {name: getattr(self, name) for name in _STORED}

    def restore_members(self, members: Mapping[str, object], strategy: object) -> None:
        """Take the members and the strategy's state of a checkpoint."""
        for name in _STORED:
            setattr(self, name, members[name])
        self.restored = strategy

    def reset_idle_count(self) -> None:
        """Note that the search issued an effect: the strategy is not spinning."""
        self._idle = 0

    def _brief_for_model(self, brief: Brief) -> Brief:
        """The brief for a model: its format resolved, with the evidence and a person's hints."""
        form = resolve_format(brief.format, brief.parent, self.task.surface.frozen)
        return self._with_hints(msgspec.structs.replace(self._informed(brief), format=form))

    def _with_hints(self, brief: Brief) -> Brief:
        """The brief with the hints so far before its context."""
        hints = [f"- {human_input.hint}" for human_input in self._inputs if human_input.hint]
        if not hints:
            return brief
        context = "\n".join(["Hints from the person who watches this search:", *hints])
        return msgspec.structs.replace(brief, context=f"{context}\n\n{brief.context}".strip())

    def _observation_future(
        self, candidate: Candidate, case: Case | None, certify: bool
    ) -> Future[Observation]:
        request = self._evaluation_request(candidate, case, certify)
        remembered = self._remembered(request) if self.task.is_evaluated_once else None
        if remembered is None:
            return self._issue(request)
        self._count_idle()
        return remembered

    def _evaluation_request(
        self, candidate: Candidate, case: Case | None, certify: bool = False
    ) -> EvaluateRequest:
        self._journal_new_candidates((candidate,))
        name = case.id if case else ""
        if self.task.is_evaluated_once:
            seed = seed_from_digest(digest_pieces("evaluate", name))
        else:
            seed = self._seed_for("evaluate", f"{candidate.digest}/{name}".encode())
        return EvaluateRequest(candidate, case, seed, certify)

    def _journal_new_candidates(self, candidates: Sequence[Candidate]) -> None:
        fresh = self._mark_known(candidates)
        if fresh:
            self._remark("candidates", {}, fresh)

    def _mark_known(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Mark these as known; returns the new ones."""
        fresh: list[Candidate] = []
        for candidate in candidates:
            name = key_of(candidate.id)
            if name not in self._known:
                self._known.add(name)
                fresh.append(candidate)
        return tuple(fresh)

    def _seed_for(self, kind: str, content: bytes) -> int:
        """A random seed from the run's, the request, and the number of times it was made.

        It is the same in a fork of the run.
        """
        name = digest_pieces(kind, content)
        key = key_of(name)
        times = self._occurrences[key] = self._occurrences.get(key, 0) + 1
        return self._nth_seed(name, times)

    def _next_seed(self, kind: str, content: bytes) -> int:
        """The random seed that the next such request would get."""
        name = digest_pieces(kind, content)
        return self._nth_seed(name, self._occurrences.get(key_of(name), 0) + 1)

    def _nth_seed(self, name: str, nth: int) -> int:
        return seed_from_digest(digest_pieces(self._seed, name, str(nth)))

    def _count_idle(self) -> None:
        self._idle += 1
        if self._idle > _STALL:
            raise UserError(
                "the strategy requests only evaluations whose results are known already",
                where="evaluate on a task that is evaluated once",
                fix="propose or embed between evaluations, or return from search()",
            )


def _repeatable_json(brief: Brief) -> bytes:
    """A brief without durations, so that a repeated run asks with the same random seeds."""
    seen = (msgspec.structs.replace(each, seconds=0.0) for each in brief.observations)
    return encode_json(msgspec.structs.replace(brief, observations=tuple(seen)))


def pack_vectors(rows: Sequence[Sequence[float]], embedder: str) -> Vectors:
    """Rows of one length as journalable vectors."""
    width = len(rows[0]) if rows else 0
    flat = [float(x) for row in rows for x in row]
    return Vectors(len(rows), width, struct.pack(f"<{len(flat)}f", *flat), embedder)


def unpack_vectors(vectors: Vectors) -> tuple[tuple[float, ...], ...]:
    """The inverse of `pack`."""
    flat = struct.unpack(f"<{vectors.count * vectors.width}f", vectors.data)
    return tuple(flat[i * vectors.width : (i + 1) * vectors.width] for i in range(vectors.count))
