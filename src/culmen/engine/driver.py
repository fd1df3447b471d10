"""The live driver: performs effects, and journals each completion with its effects.

    admitted effect -> (started journaled) -> world -> delivered -> new effects -> all of it
    journaled in one transaction -> new effects that cost money start

It runs on asyncio. Evaluations and model calls wait in separate queues, so a hung candidate never
starves a model call. Effects that cost money are journaled as started before they start.
Evaluations cost only time and custom effects are idempotent, so their started rows may be written a
moment later. The search may be ahead of the journal by one transaction; nobody else is told of a
completion before it is durable.

Replay: a run's journal, or another run's results, fed to a fresh search.
"""

from __future__ import annotations

import asyncio
import gc
import math
import pickle
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import msgspec

from culmen.core.brief import Proposal, Text, no_budget
from culmen.core.errors import CulmenError, Unavailable
from culmen.core.evaluation import Observation
from culmen.core.event import (
    CustomRequest,
    Edits,
    Effect,
    EmbedRequest,
    Entry,
    EvaluateRequest,
    Event,
    ProposeRequest,
    Result,
    WriteRequest,
    at_least,
)
from culmen.core.foreign import UNREADABLE
from culmen.core.json import JsonObject
from culmen.core.ports import Journal, Observer, World, with_protocol_defaults
from culmen.core.usage import Usage
from culmen.engine.ledger import PERFORMING, loss_group
from culmen.engine.loop import CheckpointStore, SearchState, pack_state
from culmen.engine.search import Estimate, Search


class Replayed(msgspec.Struct):
    """Result of a replay.

    Effects to start (again), entries still to journal, active seconds so far.
    """

    pending: list[Effect]
    missing: list[Entry] = []
    elapsed: float = 0.0
    effects: int = 0


def replay_journal(search: Search, events: Iterable[Event], estimate: Estimate) -> Replayed:
    """Feed the journal to a fresh search.

    Effects that started and never finished are pending again; their largest cost is entered as
    `torn`. Raises `JournalMismatch` if the search asks for a different effect.
    """
    pending = {effect.key: effect for effect in search.start()}
    started = set[int]()
    held: dict[int, Usage] = {}  # the largest cost of its model calls
    elapsed, count = search.ledger.elapsed, 0
    for event in events:
        entry = event.entry
        elapsed = max(elapsed, entry.elapsed)
        if entry.kind == "started":
            started.add(entry.key)
        elif entry.kind == "note":
            _drop_notes(search.outbox, entry.key)
        elif entry.kind == "held":
            held[entry.key] = Usage(**entry.body["most"])
        elif entry.kind == "tell":
            pending.update((effect.key, effect) for effect in search.feed(entry))
        elif entry.kind in ("done", "torn", "stop") and (entry.key or entry.kind == "stop"):
            count += 1
            started.discard(entry.key)
            held.pop(entry.key, None)
            pending.pop(entry.key, None)
            for effect in search.feed(entry):
                pending[effect.key] = effect
            if entry.kind == "torn" and entry.key in search.in_flight:
                pending[entry.key] = search.in_flight[entry.key]
            if entry.kind == "stop":
                pending = {
                    key: effect for key, effect in pending.items() if key in search.in_flight
                }
    cut = [
        torn_entry(effect, estimate(effect.request) + held.get(key, Usage()), elapsed)
        for key, effect in pending.items()
        if key in started
    ]
    missing = [entry for entry in cut if entry.body["usage"]]
    return Replayed(list(pending.values()), missing, elapsed, count)


def _drop_notes(outbox: list[Entry], number: int) -> None:
    """Drop the search's notes up to this one: the journal holds them.

    Done at each note, to bound memory.
    """
    kept = 0
    for entry in outbox:
        if entry.key > number:
            break
        kept += 1
    del outbox[:kept]


def torn_entry(effect: Effect, cost: Usage, elapsed: float) -> Entry:
    """The entry for the largest cost of an effect whose result is lost."""
    usage = msgspec.structs.replace(cost, evaluations=0)
    body: JsonObject = {"usage": {} if usage == Usage() else msgspec.to_builtins(usage)}
    if group := loss_group(effect):
        body["group"] = group
    return Entry("torn", effect.key, effect.mark, effect.kind, body, elapsed=elapsed)


def graft_results(search: Search, finished: Mapping[str, Result]) -> list[Entry]:
    """Feed a fresh search the finished results of another run, by equal requests.

    Results are fed in the order of that run. Returns the entries that make this a journal of its
    own. A fork with a larger budget thus repeats its parent's search exactly before it goes on; one
    with another strategy gets results as far as its first requests happen to agree.
    """
    entries: list[Entry] = []
    asked = {effect.mark: effect for effect in search.start()}
    for mark, result in finished.items():
        effect = asked.pop(mark, None)
        if effect is None or search.phase != "search":
            continue
        entries += search.outbox
        search.outbox.clear()
        entries.append(Entry("done", effect.key, mark, effect.kind, result=result))
        asked.update((following.mark, following) for following in search.feed(entries[-1]))
    return entries


_GRACE = 10.0  # seconds that running evaluations get to finish after the first interrupt
# seconds after which the start of an evaluation is journaled even if nothing else happens
_SOON = 0.05
# entries of a transaction, about: fewer than the observations that a search has at hand, since
# those of a transaction cannot be read from the journal before its end
_MOST = 500
# fields of a custom effect's payload that are journaled
_JOURNALED_FIELDS = ("agent", "kind", "tool", "reason", "closing")
# seconds between attempts to write to a full disk; the last one repeats
_PAUSES = (1.0, 2.0, 5.0, 10.0)


class Driver:
    """Runs one search until it ends, is interrupted or fails.

    `workers` evaluations and `calls` other effects run at once. `patience` is the time in seconds
    that writing to an unwritable journal (disk full) is retried before `Unavailable` is raised;
    nothing is lost meanwhile. `clock` returns monotonic seconds. `before_live` is awaited once the
    journal is replayed, before any effect starts. `before_final` is awaited once the search is
    over, before the final choice asks for anything. Effects are admitted by `estimate`; `most` is
    the strict bound for model calls (None: the same). `session` is journaled with the session's
    begin. `checkpoints` stores the state of the search now and then; one restored goes on `after`
    its event.
    """

    def __init__(
        self,
        search: Search,
        world: World,
        journal: Journal,
        *,
        workers: int = 1,
        calls: int = 64,
        clock: Callable[[], float] = time.monotonic,
        observers: Sequence[Observer] = (),
        estimate: Estimate = at_least,
        most: Estimate | None = None,
        patience: float = 300.0,
        before_live: Callable[[], Awaitable[None]] | None = None,
        before_final: Callable[[], Awaitable[None]] | None = None,
        session: JsonObject | None = None,
        checkpoints: CheckpointStore | None = None,
        after: int = 0,
    ) -> None:
        self.search, self._journal = search, journal
        self._world = with_protocol_defaults(World, world)
        self._clock, self._observers, self._most = clock, observers, most or estimate
        self._patience = patience
        self._before_live, self._before_final = before_live, before_final
        self._session = session or {}
        self._checkpoints, self._after = checkpoints, after
        self._slots = {"evaluate": workers, "other": calls}
        self._lines: dict[str, deque[Effect]] = {"evaluate": deque(), "other": deque()}
        self._busy = {"evaluate": 0, "other": 0}
        self._outbox: list[Entry] = []
        self._batch: list[Entry] = []  # delivered, and not yet durable
        self._saved: list[tuple[int, bytes]] = []  # checkpoints, after so many of the batch
        self._durable_first: list[Effect] = []
        self._held: list[asyncio.Future[None]] = []  # resolved when their entries are durable
        self._running: dict[int, asyncio.Task[Result]] = {}
        self._performed: dict[int, Effect] = {}  # effects of the running tasks
        self._wake = asyncio.Event()
        self._writer = ThreadPoolExecutor(1, "journal")
        self._interrupts = 0
        self._failure: BaseException | None = None
        self._has_told_unreadable = False
        self._base = self._began = 0.0

    def interrupt(self) -> None:
        """Give running effects a grace period and start no new ones.

        A second call stops at once.
        """
        self._interrupts += 1
        self._wake.set()

    def submit_entries(self, entries: Sequence[Entry]) -> None:
        """Journal and deliver a person's input (`tell`, `stop`), or journal a note on models.

        Call it from the event loop's thread.
        """
        self._outbox += entries
        self._wake.set()

    @property
    def elapsed(self) -> float:
        """Active seconds of the run, over all its sessions."""
        return self._base + self._clock() - self._began

    async def run(self) -> str:
        """Replay the journal, then run live; returns finished | interrupted.

        Errors are journaled, then raised.
        """
        self._began = self._clock()
        replayed = self._replay_without_gc()
        self._base = replayed.elapsed
        if self._checkpoints is not None:
            self.search.save = self._save_checkpoint
        begin = Entry("state", body={"state": "running", **self._session})
        self._outbox += [begin, *replayed.missing]
        self._enqueue_effects(replayed.pending)
        try:
            await self._prepare_live()
            await self._commit_outbox()
            await self._run_live()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            await self._abandon_effects(list(self._running))
            await self._last_words()
            self._writer.shutdown()
        if self._failure is not None:
            raise self._failure
        return self._end_state()

    def _replay_without_gc(self) -> Replayed:
        """Replay with the garbage collector off.

        It would repeatedly traverse the growing state.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            return replay_journal(self.search, self._journal.retrace(self._after), self._most)
        finally:
            if collecting:
                gc.enable()

    async def _prepare_live(self) -> None:
        """Await `before_live`, at most until an interrupt; its time is none of the run's."""
        if self._before_live is None:
            return
        since = self._clock()
        task = asyncio.ensure_future(self._before_live())
        task.add_done_callback(lambda _: self._wake.set())
        try:
            while not task.done() and not self._interrupts:
                await self._wake.wait()
                self._wake.clear()
        finally:
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            self._began += self._clock() - since
            self._wake.set()  # for input that came meanwhile
        if isinstance(outcome, Exception):
            raise outcome

    async def _run_live(self) -> None:
        while not self.search.is_done and self._failure is None:
            if self._interrupts:
                return await self._wind_down()
            self._launch_effects()
            await self._sleep_until_woken(
                min(self._seconds_left(), _SOON if self._outbox else math.inf)
            )
            if self._seconds_left() <= 0:
                self._outbox.append(Entry("stop", body={"reason": "seconds"}))
            await self._commit_outbox()

    async def _wind_down(self) -> None:
        """Wait for running effects within the grace period and deliver them; start nothing."""
        ends = self._clock() + _GRACE
        while self._running and self._interrupts < 2 and self._clock() < ends:
            await self._sleep_until_woken(ends - self._clock())
            await self._commit_outbox()

    def _seconds_left(self) -> float:
        """Seconds to the end of this phase."""
        return self.search.deadline - self.elapsed

    async def _sleep_until_woken(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        alarm = None if math.isinf(seconds) else loop.call_later(max(0.0, seconds), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            self._wake.clear()
            if alarm is not None:
                alarm.cancel()

    def _enqueue_effects(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self._lines[_queue_name(effect)].append(effect)

    def _launch_effects(self) -> None:
        """Start admitted effects.

        Evaluations and custom effects at once, all others when their `started` row is durable.
        """
        for name, line in self._lines.items():
            while line and self._busy[name] < self._slots[name]:
                effect = line.popleft()
                if effect.key not in self.search.in_flight:
                    continue  # abandoned while it waited
                if (result := self._world.result_at_once(effect)) is not None:
                    self._outbox += [_started_entry(effect), self._done_entry(effect, result)]
                    self._wake.set()
                    continue
                self._busy[name] += 1
                if name == "evaluate" or isinstance(effect.request, CustomRequest):
                    self._outbox.append(_started_entry(effect))
                    self._start_effect(effect)
                else:
                    self._durable_first.append(effect)
        if self._durable_first:
            self._wake.set()

    def _start_effect(self, effect: Effect) -> None:
        task = self._running[effect.key] = asyncio.create_task(self._perform_effect(effect))
        self._performed[effect.key] = effect
        task.add_done_callback(lambda done: self._on_effect_done(effect, done))

    async def _perform_effect(self, effect: Effect) -> Result:
        """Perform an effect; ask a model only once the budget holds its largest cost."""
        PERFORMING.set(effect.key)
        if not isinstance(effect.request, ProposeRequest | WriteRequest):
            return await self._world.perform(effect)  # pyright: ignore[reportReturnType]
        effect, refused = await self._reserve_request(effect)
        if refused:
            fault = no_budget(refused)
            return (
                Proposal(fault=fault)
                if isinstance(effect.request, ProposeRequest)
                else Text(fault=fault)
            )
        return await self._world.perform(effect)  # pyright: ignore[reportReturnType]

    async def _reserve_request(self, effect: Effect) -> tuple[Effect, str]:
        """The effect, with a shorter request if needed, once the budget holds its largest cost.

        Otherwise the name of the budget that never will.
        """
        reservations, refused = self.search.reservations, ""
        shorter = self.search.budget_queue.shorter_requests(effect.request)
        for request in chain([effect.request], shorter):
            name = await reservations.open_reservation(effect.key, self._most(request))
            if not name:
                return msgspec.structs.replace(effect, request=request), ""
            refused = refused or name
        return effect, refused

    async def hold_budget(self, largest_cost: Usage) -> str:
        """Wait until the calling task's effect may cost `largest_cost` in all; journal that.

        A process that dies then knows its largest loss. Returns the name of the budget if it never
        may, else "".
        """
        key, reservations = PERFORMING.get(), self.search.reservations
        if (
            key not in self._performed
        ):  # no one would release a reservation made after an effect's end
            return self.search.ledger.exceeded_budget(largest_cost)
        refused = await reservations.grow_reservation(key, largest_cost)
        if key not in self._performed:
            reservations.release(key)
            return refused
        if refused:
            return refused
        effect, durable = self._performed[key], asyncio.get_running_loop().create_future()
        body = {"most": msgspec.to_builtins(msgspec.structs.replace(largest_cost, evaluations=0))}
        self._outbox.append(Entry("held", key, effect.mark, effect.kind, body))
        self._held.append(durable)
        self._wake.set()
        await durable
        return ""

    def _on_effect_done(self, effect: Effect, task: asyncio.Task[Result]) -> None:
        self._busy[_queue_name(effect)] -= 1
        abandoned = self._running.pop(effect.key, None) is None
        self._performed.pop(effect.key, None)
        self._wake.set()
        if task.cancelled() and abandoned:
            return
        error = (
            RuntimeError(f"{effect.kind} {effect.key} cancelled itself")
            if task.cancelled()
            else task.exception()
        )
        if error is not None:
            self._failure = self._failure or error
            return
        if words := "" if self._has_told_unreadable else unreadable_words(task.result()):
            self._has_told_unreadable = True
            self._send_message(f"A text counts as a fault, and the run goes on: {words}")
        self._outbox.append(self._done_entry(effect, task.result()))

    def _done_entry(self, effect: Effect, result: Result) -> Entry:
        body, result = effect_facts(effect, self.search.purpose), canonical_result(result)
        if isinstance(effect.request, EvaluateRequest) and isinstance(result, Observation):
            result = self.search.settle_answer(effect.request.candidate, result)
        return Entry("done", effect.key, effect.mark, effect.kind, body, result)

    async def _commit_outbox(self) -> None:
        """Deliver the outbox to the search, and make it durable with all that follows.

        Effects that cost money, observers and checkpoints wait for the commit. Rows that only
        record the start of an evaluation wait for the next result, or for `_SOON`.
        """
        while self._outbox or self.search.outbox or self._durable_first:
            await self._deliver_outbox()
            paid = self._take_durable_first()
            held, self._held = self._held, []
            saved, self._saved = self._saved, []
            events = await self._append_to_journal()
            for durable in held:
                if not durable.done():
                    durable.set_result(None)
            for effect in paid:
                self._start_effect(effect)
            for entries, packed in saved:
                self._store_checkpoint(events[entries - 1].seq, packed)
            self._send_events(events)
            if not self._has_urgent_entries():
                return

    async def _deliver_outbox(self) -> None:
        """Move the outbox, the search's notes and all that follows at once into the batch."""
        elapsed = self.elapsed
        while (self._outbox or self.search.outbox) and len(self._batch) < _MOST:
            entries = [*self._outbox[:_MOST], *self.search.outbox]
            self._outbox, self.search.outbox = self._outbox[_MOST:], []
            for entry in entries:
                entry = msgspec.structs.replace(entry, elapsed=elapsed)
                self._batch.append(entry)
                if entry.kind in ("done", "torn", "stop", "tell"):
                    self._enqueue_effects(self.search.feed(entry))
            await self._abandon_effects(
                [key for key in self._running if key not in self.search.in_flight]
            )
            if self.search.phase == "final" and self._before_final is not None:
                prepare, self._before_final = self._before_final, None
                await prepare()
            if not self._interrupts and self._failure is None:
                self._launch_effects()

    def _take_durable_first(self) -> list[Effect]:
        """Effects to start once the batch is durable, with their `started` rows in it.

        One that was given up meanwhile never starts.
        """
        launched, self._durable_first = self._durable_first, []
        paid = [effect for effect in launched if effect.key in self.search.in_flight]
        self._busy["other"] -= len(launched) - len(paid)
        elapsed = self.elapsed
        self._batch += [
            msgspec.structs.replace(_started_entry(effect), elapsed=elapsed) for effect in paid
        ]
        return paid

    def _has_urgent_entries(self) -> bool:
        """True if the outbox cannot wait: it has more than the starts of evaluations."""
        return bool(self._durable_first or self.search.outbox) or any(
            e.kind != "started" for e in self._outbox
        )

    def _append_batch(self, more: Sequence[Entry] = ()) -> list[Event]:
        """Append the batch and `more`; runs in the writer's thread to its end."""
        events = self._journal.append([*self._batch, *more])
        self._batch = []
        return events

    async def _append_to_journal(self) -> list[Event]:
        """Append the batch to the journal; retry while it cannot be written."""
        loop, waited = asyncio.get_running_loop(), 0.0
        for attempt in range(1_000_000):
            try:
                events = await loop.run_in_executor(self._writer, self._append_batch)
            except Unavailable as error:
                pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
                if waited + pause > self._patience or self._interrupts > 1:
                    raise
                if not attempt:
                    place = f" ({error.where})" if error.where else ""
                    self._send_message(
                        f"Waiting, for {self._patience:.0f} s at most: {error.what}{place}."
                    )
                waited += pause
                await asyncio.sleep(pause)
            else:
                if attempt:
                    self._send_message("The journal can be written again: the run goes on.")
                return events
        raise AssertionError("unreachable")

    def _save_checkpoint(self, state: SearchState) -> None:
        """Store the state of the search; without it a resume replays more."""
        if self._checkpoints is None:
            return
        try:
            packed = pack_state(state, self.search.anchors)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            self._checkpoints = None
            self._send_message(
                f"No checkpoints: the state of the search cannot be stored ({error})."
            )
            return
        self._saved.append((len(self._batch), packed))

    def _store_checkpoint(self, seq: int, packed: bytes) -> None:
        if self._checkpoints is None:
            return
        loop = asyncio.get_running_loop()
        stored = loop.run_in_executor(self._writer, self._checkpoints.write, seq, packed)
        stored.add_done_callback(self._on_checkpoint_stored)

    def _on_checkpoint_stored(self, stored: asyncio.Future[None]) -> None:
        error = None if stored.cancelled() else stored.exception()
        if isinstance(error, OSError | CulmenError):
            self._checkpoints = None
            self._send_message(f"No more checkpoints: they cannot be written ({error}).")
        elif error is not None:
            self._failure = self._failure or error

    def _send_events(self, events: list[Event]) -> None:
        for (
            observer
        ) in self._observers:  # through the event loop: an observer's error is reported, not ours
            asyncio.get_running_loop().call_soon(observer.see, events)
        for event in events:
            if event.entry.kind == "note" and "told" in event.entry.body:
                for observer in self._observers:
                    asyncio.get_running_loop().call_soon(
                        observer.remarked, str(event.entry.body["told"])
                    )

    def _send_message(self, text: str) -> None:
        """Send a message to all observers."""
        for observer in self._observers:
            asyncio.get_running_loop().call_soon(observer.told, text)

    async def _abandon_effects(self, keys: list[int]) -> None:
        """Cancel running effects.

        An effect that cannot be asked again is charged its reservation.
        """
        if not keys:
            return
        tasks = {key: task for key in keys if (task := self._running.pop(key, None)) is not None}
        effects = {key: self._performed[key] for key in tasks}
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for key, task in tasks.items():
            if task.cancelled() and key not in self.search.in_flight:
                cost = self.search.reservations.release(key)
                self._outbox += (
                    [torn_entry(effects[key], cost, self.elapsed)] if cost is not None else []
                )

    def _end_state(self) -> str:
        if self.search.is_done:
            return "finished"
        if isinstance(self._failure, CulmenError):
            return "paused"
        return "failed" if self._failure is not None and not self._interrupts else "interrupted"

    async def _last_words(self) -> None:
        """Journal the end state and late completions; a failing journal was reported before."""
        body: dict[str, object] = {"state": self._end_state(), "reason": self.search.reason}
        if self._failure is not None:
            body["error"] = f"{type(self._failure).__name__}: {self._failure}"
        if self.search.is_done and (verdict := self.search.result_so_far) is not None:
            body["winner"] = msgspec.to_builtins(verdict)
        entries = [*self._outbox, Entry("state", body=body)]
        elapsed = self.elapsed
        words = [msgspec.structs.replace(entry, elapsed=elapsed) for entry in entries]
        try:
            events = await asyncio.get_running_loop().run_in_executor(
                self._writer, self._append_batch, words
            )
        except CulmenError as error:
            self._failure = self._failure or error
            return
        self._send_events(events)
        await asyncio.sleep(0)  # observers run before the loop ends


def _started_entry(effect: Effect) -> Entry:
    return Entry("started", effect.key, effect.mark, effect.kind, effect_subject(effect))


def effect_facts(effect: Effect, purpose: str) -> JsonObject:
    """Facts about an effect that readers of the journal need besides its result."""
    request = effect.request
    if isinstance(request, CustomRequest):
        named = {name: request.payload.get(name) for name in _JOURNALED_FIELDS}
        return {name: value for name, value in named.items() if value not in (None, "")}
    if isinstance(request, EmbedRequest):
        return {"candidates": [candidate.id for candidate in request.candidates]}
    if isinstance(request, ProposeRequest):
        return {"role": request.brief.role}
    if isinstance(request, WriteRequest):
        return {"role": request.role}
    return {"phase": purpose} if purpose else {}


def effect_subject(effect: Effect) -> JsonObject:
    """Candidate and case of an effect, for observers while it runs: it may hang."""
    request = effect.request
    if isinstance(request, EvaluateRequest):
        case = {} if request.case is None else {"case": request.case.id}
        return {"of": request.candidate.id, **case}
    if isinstance(request, ProposeRequest) and request.brief.parent is not None:
        return {"of": request.brief.parent.id}
    return {}


def unreadable_words(result: Result) -> str:
    """The reason that a text of this result could not be read, "" if there is none."""
    if isinstance(result, Observation):
        return result.feedback if result.reason == UNREADABLE else ""
    if isinstance(result, Proposal) and UNREADABLE in result.faults:
        return result.hypothesis or UNREADABLE
    return UNREADABLE if isinstance(result, Text | Edits) and result.fault == UNREADABLE else ""


def canonical_result(result: Result) -> Result:
    """The result in the form that the journal returns: an observation's numbers as floats."""
    if not isinstance(result, Observation) or (
        type(result.score) in (float, type(None))
        and all(type(value) is float for value in result.metrics.values())
    ):
        return result
    score = None if result.score is None else float(result.score)
    metrics = {name: float(value) for name, value in result.metrics.items()}
    return msgspec.structs.replace(result, score=score, metrics=metrics)


def _queue_name(effect: Effect) -> str:
    return "evaluate" if effect.kind == "evaluate" else "other"
