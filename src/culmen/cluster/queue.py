"""Evaluations by workers that pull them from a queue in PostgreSQL: the driver's side.

An item is named by the contents of its evaluation, so a resume finds answers from the time in
which no driver ran. One task owns the connection: it puts items in, takes answers out, and looks
after workers and leases. A share of the items goes to two workers (`queue_audit`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import LiteralString

import msgspec

from culmen.cluster import messages, queue_audit
from culmen.cluster.messages import EvaluationJob, NodeReply, NodeTerms, TaskBundle
from culmen.cluster.queue_audit import Auditor, Rechecks, Vote
from culmen.cluster.queue_link import QueueLink, prepare_queue
from culmen.cluster.remote import Lost, QuestionHandler, answer_without_backend
from culmen.core.errors import Unavailable, UserError
from culmen.core.evaluation import Observation
from culmen.core.options import BackendChoice
from culmen.core.task import Task
from culmen.observe.figures import escape_controls
from culmen.store.address import parse_address

WAIT_SECONDS, LEASE_SECONDS = 300.0, 30.0
HELLO = b"hello"
"""Key of a session's first item, whose answer is the greeting of the run's first worker."""
_RECHECK = 3  # number of the copy
_LOOK_SECONDS = 2.0  # between looks after workers and expired leases
_POLL_SECONDS = 1.0  # without a notification
_TAKEN_AT_ONCE = 100  # answers that are marked as taken by one statement
_KEPT = 1000  # answers that are kept after they were taken, at least
_CLOSE_SECONDS = 15.0
_WORD = re.compile("[a-z_]{1,40}")  # of the reasons of losses, which workers name

_ENTER: LiteralString = """
WITH old AS (DELETE FROM culmen_queue.run WHERE seen < clock_timestamp() - interval '7 days'
    AND name <> %s)
INSERT INTO culmen_queue.run
    (name, session, parcel, terms, quota, retries, lease_seconds, seen)
VALUES (%s, %s, %s, %s, %s, %s, %s, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET session = excluded.session, parcel = excluded.parcel,
    terms = excluded.terms, quota = excluded.quota, retries = excluded.retries,
    lease_seconds = excluded.lease_seconds, seen = clock_timestamp()
RETURNING id"""
_MARKED: LiteralString = """
SELECT worker.name, (SELECT coalesce(max(id), 0) FROM culmen_queue.finding)
FROM culmen_queue.run LEFT JOIN culmen_queue.mark ON mark.run = run.id
    LEFT JOIN culmen_queue.worker ON worker.id = mark.worker WHERE run.id = %s"""
_PUT: LiteralString = """
WITH stored AS (INSERT INTO culmen_queue.artifact
    SELECT DISTINCT %s::integer, * FROM unnest(%s::bytea[], %s::bytea[]) ON CONFLICT DO NOTHING),
put AS (INSERT INTO culmen_queue.item (run, key, copy, candidate, job, seconds)
    SELECT %s, * FROM unnest(%s::bytea[], %s::smallint[], %s::bytea[], %s::bytea[], %s::float8[])
    ON CONFLICT (run, key, copy) DO UPDATE SET taken = false, job = excluded.job,
        tries = CASE WHEN culmen_queue.item.state = 3 THEN 0 ELSE culmen_queue.item.tries END,
        state = CASE WHEN culmen_queue.item.state = 3 THEN 0 ELSE culmen_queue.item.state END
    RETURNING state)
SELECT pg_notify('culmen_queue_work', '') FROM put HAVING bool_or(state = 0)"""
_TAKE: LiteralString = """
WITH known AS (UPDATE culmen_queue.item SET taken = true WHERE id = ANY (%s))
SELECT item.id, item.key, item.copy, item.reply, coalesce(item.reason, ''),
    coalesce(worker.name, ''), coalesce(worker.trusted, false)
FROM culmen_queue.item LEFT JOIN culmen_queue.worker ON worker.id = item.worker
WHERE item.run = %s AND item.state >= 2 AND NOT item.taken AND item.id <> ALL (%s)"""
_AGAIN: LiteralString = """
WITH again AS (UPDATE culmen_queue.item SET state = 0, worker = NULL, lease = NULL, reply = NULL
    WHERE id = ANY (%s) AND state = 2 RETURNING id)
SELECT pg_notify('culmen_queue_work', '') FROM again"""
_END: LiteralString = """
WITH ended AS (DELETE FROM culmen_queue.item
    WHERE run = %s AND (%s OR key = ANY (%s)) AND state < 2 RETURNING state)
SELECT pg_notify('culmen_queue_ended', '') FROM ended HAVING bool_or(state = 1)"""
_LOOK: LiteralString = """
WITH seen AS (UPDATE culmen_queue.run SET seen = clock_timestamp() WHERE id = %s),
serving AS (SELECT process.worker, process.slots
    FROM culmen_queue.process JOIN culmen_queue.worker owner ON owner.id = process.worker,
        culmen_queue.run served
    WHERE served.id = %s AND NOT owner.revoked AND culmen_queue.may_serve(owner, served)
        AND process.seen > clock_timestamp() - 2 * served.lease_seconds * interval '1 second')
SELECT (SELECT count(DISTINCT worker) FROM serving),
    (SELECT coalesce(sum(slots), 0) FROM serving), culmen_queue.end_expired()"""
_NEWS: LiteralString = """
SELECT id, text FROM culmen_queue.finding WHERE run = %s AND id > %s ORDER BY id"""
_MARK: LiteralString = """
WITH named AS (SELECT id FROM culmen_queue.worker WHERE name = %s),
marked AS (INSERT INTO culmen_queue.mark SELECT %s, id FROM named ON CONFLICT DO NOTHING),
freed AS (SELECT culmen_queue.give_back(array_agg(item.id)) FROM culmen_queue.item, named
    WHERE item.run = %s AND item.worker = named.id AND item.state = 1 HAVING count(*) > 0)
SELECT pg_notify('culmen_queue_ended', ''), (SELECT count(*) FROM freed)"""
_FIND: LiteralString = """
INSERT INTO culmen_queue.finding (run, worker, text)
SELECT asked.* FROM (SELECT %s::integer AS run, id, %s AS text FROM culmen_queue.worker
    WHERE name = %s) asked
WHERE NOT EXISTS (SELECT FROM culmen_queue.finding known
    WHERE known.run = asked.run AND known.worker = asked.id AND known.text = asked.text)"""


class QueueSettings(msgspec.Struct, frozen=True):
    """Settings of `--backend-set` for a queue.

    share  part of the items that two workers evaluate, 0..1; the final choice's all, if over 0
    quota  items of the run that workers may hold at once; 0: any number
    lease  seconds after which a silent worker's items go to others
    """

    share: float = 0.0
    quota: int = 0
    lease: float = LEASE_SECONDS

    @classmethod
    def from_choice(cls, choice: BackendChoice) -> QueueSettings:
        """The settings of a choice; raises `UserError` for illegal ones."""
        given = {name: choice.texts[name] for name in cls.__struct_fields__ if name in choice.texts}
        try:
            settings = msgspec.convert(given, cls, strict=False)
        except msgspec.ValidationError as error:
            raise UserError(
                f"a setting of the queue is no number ({error})",
                where="--backend-set",
                fix="write --backend-set share=0.1,quota=64,lease=30",
            ) from None
        if not (0 <= settings.share <= 1 and settings.quota >= 0 and 1 <= settings.lease <= 3600):
            raise UserError(
                "a setting of the queue is out of its range",
                where="--backend-set",
                fix="share is from 0 to 1, quota from 0, lease from 1 to 3600 seconds",
            )
        return settings


@dataclass
class _Item:
    """An evaluation under way: its job, and its copies' answers so far."""

    key: bytes
    job: EvaluationJob
    candidate: bytes
    seconds: float
    copies: int
    future: asyncio.Future[bytes]
    votes: list[Vote] = field(default_factory=list[Vote])
    seen: set[int] = field(default_factory=set[int])


class QueueCarrier:
    """Carries evaluations through a queue; see `remote.Carrier`."""

    def __init__(self, choice: BackendChoice, on_message: Callable[[str], None] | None) -> None:
        self.retries, self.terms = 0, b""  # the queue tries again by itself
        self.answer_question: QuestionHandler = answer_without_backend
        self._tries = choice.retries
        self._name = choice.run or f"session-{secrets.token_hex(4)}"
        self._settings = QueueSettings.from_choice(choice)
        self._address, self._wait = parse_address(choice.address), choice.wait or WAIT_SECONDS
        self._tell = on_message or (lambda _: None)
        self._random = secrets.SystemRandom()  # workers cannot foresee which items are checked
        self._link = QueueLink(self._address, (), self._wait, self._tell)
        self._run, self._room, self._last_finding = 0, 0, 0
        self._task, self._parcel, self._entered_terms = Task(""), b"", b""
        self._auditor = Auditor(self._task)
        self._rechecks: Rechecks[_Item] = Rechecks()
        self._items: dict[bytes, _Item] = {}
        self._asked: dict[bytes, int] = {}
        self._new: list[tuple[_Item, int]] = []
        self._ended: list[bytes] = []
        self._known: list[int] = []
        self._strays: list[int] = []
        self._old: list[int] = []
        self._marked: set[str] = set()
        self._findings: list[tuple[str, str]] = []
        self._told: set[str] = set()
        self._greeting: asyncio.Future[bytes] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._trouble: UserError | None = None
        self._closing, self._connections = False, 0

    async def open(self, parcel: bytes, name: str) -> bytes:
        """Enter the run into the queue; the greeting of its first worker.

        Raises `Unavailable` if no worker greets within `wait` seconds.
        """
        size = int.from_bytes(parcel[:8], "big")
        self._task = messages.load_struct(parcel[8 : 8 + size], TaskBundle).task
        self._parcel, self._auditor = bytes.fromhex(name), Auditor(self._task)
        if self._task.evaluator.options.get("roles"):
            raise UserError(
                "an evaluator that asks models cannot ask them from a queue's workers",
                where=f"task {self._task.name}",
                fix="use --backend local, ray or slurm",
            )
        await asyncio.to_thread(prepare_queue, self._address)
        await self._enter_run(parcel)
        self._greeting = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(self._serve())
        self._tell(f"Waiting for workers: culmen worker '{self._address}'.")
        return await self._greeting

    async def _enter_run(self, parcel: bytes) -> None:
        link, settings, session = self._link, self._settings, secrets.token_hex(8)
        limits = (settings.quota, self._tries, settings.lease)
        rows = await link.call(
            _ENTER, (self._name, self._name, session, self._parcel, self.terms, *limits)
        )
        self._run, self._entered_terms = int(rows[0][0]), self.terms
        await link.close()
        channels = (f"culmen_queue_run_{self._run}",)
        self._link = link = QueueLink(
            self._address, channels, self._wait, self._tell, durable=False
        )
        for worker, finding in await link.call(_MARKED, (self._run,)):
            self._last_finding = int(finding)
            self._marked |= {worker} - {None}
        hello = (self._run, HELLO)
        await link.call("DELETE FROM culmen_queue.item WHERE run = %s AND key = %s", hello)
        await self._put_hello([self._parcel], [parcel])

    async def _put_hello(self, hashes: list[bytes], parcels: list[bytes]) -> None:
        columns = ([HELLO], [0], [b""], [b""], [self._wait])
        await self._link.call(_PUT, (self._run, hashes, parcels, self._run, *columns))

    async def carry(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `remote.Carrier`; `number` has no meaning here."""
        if self._trouble is not None:
            raise self._trouble
        item = self._new_item(messages.load_struct(job, EvaluationJob), seconds)
        self._items[item.key] = item
        self._new += [(item, copy) for copy in range(item.copies)]
        self._link.wake.set()
        try:
            return await item.future
        finally:
            del self._items[item.key]
            if len(item.seen) < item.copies:
                self._ended.append(item.key)
                self._link.wake.set()

    def _new_item(self, job: EvaluationJob, seconds: float) -> _Item:
        candidate = messages.dump_struct(job.parts)
        final = job.epoch > 0
        words = (self._parcel.hex(), job.id, job.case, job.seed, job.certify, final)
        key = hashlib.sha256(repr(words).encode()).digest()
        count = self._asked[key] = self._asked.get(key, 0) + 1
        if count > 1:  # the same again is another measurement
            key = hashlib.sha256(key + count.to_bytes(8, "big")).digest()
        share = self._settings.share
        checked = share > 0 and (final or job.certify or self._random.random() < share)
        future = asyncio.get_running_loop().create_future()
        return _Item(key, job, candidate, seconds, 1 + checked, future)

    def room(self) -> int:
        """Evaluations that the present workers have slots for."""
        return self._room

    async def _serve(self) -> None:
        """Serve the queue until `close`; an error ends everything that waits."""
        looked, alive = -math.inf, time.monotonic()
        try:
            while not self._closing:
                await self._restore_lost()
                await self._put_items()
                await self._take_answers()
                if time.monotonic() - looked > _LOOK_SECONDS:
                    looked = time.monotonic()
                    alive = looked if await self._look_after_workers() else alive
                    self._require_workers(looked - alive)
                await self._link.wait(_POLL_SECONDS)
        except UserError as error:
            self._trouble = error
            waiting = [item.future for item in self._items.values()]
            for future in (*waiting, *([self._greeting] if self._greeting else [])):
                if not future.done():
                    future.set_exception(error)

    async def _restore_lost(self) -> None:
        """After a new connection, send again what a crash of the server may have lost."""
        if self._link.connections == self._connections:
            return
        self._connections = self._link.connections
        self._entered_terms = b""
        self._new = [
            (item, copy)
            for item in self._items.values()
            for copy in range(item.copies)
            if copy not in item.seen
        ] + [(item, _RECHECK) for item in self._rechecks.waiting()]
        for worker in self._marked:
            await self._link.call(_MARK, (worker, self._run, self._run))
        for worker, text in self._findings:
            await self._link.call(_FIND, (self._run, text, worker))
        if self._greeting is not None and not self._greeting.done():
            await self._put_hello([], [])

    async def _put_items(self) -> None:
        """Send the agreed terms, new items, and the end of cancelled ones."""
        if self.terms != self._entered_terms:
            self._entered_terms = self.terms
            terms = (self.terms, self._run)
            await self._link.call("UPDATE culmen_queue.run SET terms = %s WHERE id = %s", terms)
        ended, self._ended = self._ended, []
        if ended:
            await self._link.call(_END, (self._run, False, ended))
        new = [each for each in self._new if each[0].key not in ended]
        self._new = []
        if new:
            hashes = [hashlib.sha256(item.candidate).digest() for item, _ in new]
            bodies = dict(zip(hashes, (item.candidate for item, _ in new), strict=True))
            jobs = [messages.dump_struct(msgspec.structs.replace(i.job, parts={})) for i, _ in new]
            columns = ([item.key for item, _ in new], [copy for _, copy in new], hashes, jobs)
            seconds = [item.seconds for item, _ in new]
            stored = (self._run, list(bodies), list(bodies.values()))
            await self._link.call(_PUT, (*stored, self._run, *columns, seconds))

    async def _take_answers(self) -> None:
        taken = self._known if len(self._known) >= _TAKEN_AT_ONCE or self._closing else []
        strays, self._strays = self._strays, []
        rows = await self._link.call(_TAKE, (taken + strays, self._run, self._known))
        if taken:
            self._known = []
            await self._delete_old(taken)
        for number, key, copy, reply, reason, worker, trusted in rows:
            item = self._rechecks.pending(key) if copy == _RECHECK else self._items.get(key)
            vote = None
            if key == HELLO and not await self._take_greeting(number, reply, worker):
                continue
            if item is not None and reply is not None:
                vote = await self._believed_vote(reply, item.job, worker, trusted)
                if vote is None:
                    await self._link.call(_AGAIN, ([number],))
                    continue
            # answers from before a resume are taken when their evaluation is asked for again
            (self._strays if item is None and key != HELLO else self._known).append(number)
            if item is not None and copy == _RECHECK:
                await self._take_recheck(item, vote)
            elif item is not None and copy not in item.seen and not item.future.done():
                item.seen.add(copy)
                self._take_answer(item, vote, reason)
        for worker, why in self._auditor.suspects().items() if rows else ():
            await self._mark(worker, why)

    async def _take_greeting(self, number: int, reply: bytes | None, worker: str) -> bool:
        """Take the first worker's greeting; False if another worker is to greet."""
        if self._greeting is None or self._greeting.done():
            return True
        terms = messages.load_struct(self.terms, NodeTerms)
        greeting = None if reply is None else queue_audit.vet_greeting(reply, terms)
        if greeting is not None:
            await self._look_after_workers()
            self._greeting.set_result(messages.dump_struct(greeting))
            return True
        if reply is None:
            await self._put_hello([], [])
        else:
            await self._mark(worker, "its greeting is not that of a worker")
            await self._link.call(_AGAIN, ([number],))
        return False

    async def _believed_vote(
        self, reply: bytes, job: EvaluationJob, worker: str, trusted: bool
    ) -> Vote | None:
        """The answer as a vote; None if its worker is marked. An impossible answer marks it."""
        scoring = messages.load_struct(self.terms, NodeTerms).scoring
        seen = queue_audit.vet_answer(reply, job, self._task.evaluator.digest, scoring)
        if seen is None:
            await self._mark(worker, "it answered something else than was asked")
        return None if seen is None or worker in self._marked else Vote(worker, trusted, seen)

    def _take_answer(self, item: _Item, vote: Vote | None, reason: str) -> None:
        """Count one copy's answer (None: lost); the item ends when the votes decide."""
        if vote is None:
            item.future.set_exception(Lost(reason if _WORD.fullmatch(reason) else "lost"))
            return
        item.votes.append(vote)
        if item.copies == 1:
            if self._settings.share and not vote.trusted:
                self._rechecks.keep(vote.worker, item.key, item, vote.observation)
            _end_item(item, vote.observation)
            return
        stands = self._auditor.decide(item.votes)
        if stands is not None:
            _end_item(item, queue_audit.name_voters(item.votes, stands, self._auditor))
        elif len(item.votes) == item.copies:
            item.copies = 3
            self._new.append((item, 2))

    async def _mark(self, worker: str, why: str) -> None:
        """Give a worker nothing more of this run, and have its unchecked results made again."""
        if worker in self._marked:
            return
        self._marked.add(worker)
        await self._link.call(_MARK, (worker, self._run, self._run))
        await self._add_finding(worker, f"worker {worker} gets nothing more of this run: {why}")
        self._new += [(item, _RECHECK) for item in self._rechecks.begin(worker)]

    async def _take_recheck(self, item: _Item, vote: Vote | None) -> None:
        again = None if vote is None else vote.observation
        worker, text = self._rechecks.compare(item.key, again, self._auditor)
        if text:
            await self._add_finding(worker, text)

    async def _add_finding(self, worker: str, text: str) -> None:
        self._findings.append((worker, text))
        await self._link.call(_FIND, (self._run, text, worker))

    async def _delete_old(self, taken: list[int]) -> None:
        """Delete answers that were taken long ago: they are in the journal."""
        self._old += taken
        if len(self._old) > 2 * _KEPT:
            old, self._old = self._old[:_KEPT], self._old[_KEPT:]
            await self._link.call("DELETE FROM culmen_queue.item WHERE id = ANY (%s)", (old,))

    async def _look_after_workers(self) -> bool:
        """Renew the run's sign of life and end expired leases; True if there are workers enough."""
        workers, slots, _ = (await self._link.call(_LOOK, (self._run, self._run)))[0]
        self._room = int(slots)
        for number, text in await self._link.call(_NEWS, (self._run, self._last_finding)):
            self._last_finding = int(number)
            if text not in self._told:  # one that was written again has another number
                self._tell(f"Queue: {escape_controls(text)}.")
            self._told.add(text)
        greeted = self._greeting is not None and self._greeting.done()
        idle = greeted and not self._items
        return idle or (greeted and workers >= (2 if self._settings.share else 1))

    def _require_workers(self, seconds: float) -> None:
        if seconds > self._wait:
            needed = "two workers with names of their own" if self._settings.share else "a worker"
            raise Unavailable(
                f"for {seconds:.0f} seconds the run has lacked {needed}",
                where=str(self._address),
                fix=f"start it: culmen worker '{self._address}'; then culmen resume",
            )

    async def close(self) -> None:
        """See `remote.Carrier`: end everything without an answer; keep answers for a resume."""
        serving, self._serving, self._closing = self._serving, None, True
        if serving is None:
            return
        self._link.wake.set()
        done, _ = await asyncio.wait({serving}, timeout=_CLOSE_SECONDS)
        if not done:  # the queue does not answer; its leases expire
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        elif self._trouble is None:
            with contextlib.suppress(TimeoutError, UserError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._link.call(_END, (self._run, True, []))
        await self._link.close()


def _end_item(item: _Item, observation: Observation) -> None:
    item.future.set_result(messages.dump_struct(NodeReply(observation=observation)))
