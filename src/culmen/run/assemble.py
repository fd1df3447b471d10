"""One live session of a run: assemble its performers, drive it on asyncio, close all."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from culmen.core import VERSION, extensions
from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import IsolationError, JournalMismatch, Unavailable, UserError
from culmen.core.event import CustomRequest, Effect, Entry, Event, ProposeRequest, Result
from culmen.core.json import JsonObject
from culmen.core.options import BackendChoice
from culmen.core.ports import (
    Backend,
    Craft,
    CraftContext,
    Embedder,
    Gateway,
    ObservationStore,
    Observer,
    Proposer,
    Strategy,
    World,
    with_protocol_defaults,
)
from culmen.core.usage import amount_text
from culmen.engine.driver import Driver, graft_results
from culmen.engine.loop import CheckpointBarrier, unpack_state
from culmen.engine.search import Estimate, Search
from culmen.engine.world import LiveWorld, RememberingWorld
from culmen.run.options import RunObjects
from culmen.run.recheck import (
    ResumeCheck,
    deciders_of,
    proposer_of,
    require_same_versions,
)
from culmen.store import inbox, views
from culmen.store.address import cache_dir
from culmen.store.inbox import InboxMessage

if TYPE_CHECKING:
    from culmen.core.task import Task
    from culmen.evaluate.integrity.guard import IntegrityBackend, ToleranceCheck
    from culmen.models.answerer import QuestionAnswerer
    from culmen.store.database import RunMeta
    from culmen.store.journal import SqlJournal
    from culmen.store.sidecar import CheckpointFile


T = TypeVar("T")


class SessionEnd(NamedTuple):
    """The end of a session: finished | interrupted, and the signal that it received."""

    state: str
    received: int | None

    def raise_signal(self) -> None:
        """Raise what the signal means to a program: its own loops are to end, too."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is not None:
            raise SystemExit(128 + self.received)


async def run_session(
    path: Path, meta: RunMeta, objects: RunObjects, remembered: Mapping[str, Any]
) -> SessionEnd:
    """Run or continue the run in `path`; returns finished | interrupted.

    `meta` is that of its journal with this session's own settings; `remembered` holds the results,
    by mark, of the run that it was forked from. A checkpoint that does not fit the journal is
    removed, and the whole journal replayed.
    """
    from culmen.store import sidecar

    try:
        return await _run_assembled(path, meta, objects, remembered)
    except JournalMismatch:
        file = path / sidecar.CHECKPOINT
        if not file.exists():
            raise
        file.unlink()
    _send_message(objects, "The checkpoint does not fit the journal: all of it is replayed.")
    return await _run_assembled(path, meta, objects, remembered)


async def _run_assembled(
    path: Path, meta: RunMeta, objects: RunObjects, remembered: Mapping[str, Result]
) -> SessionEnd:
    """Assemble the performers of a session, and drive it to its end."""
    # small products only; idle BLAS threads would spin on all cores
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from culmen.evaluate.integrity.guard import reapply_policy
    from culmen.store.reader import JournalObservations

    _require_own_objects(meta, objects)
    versions = check_versions(meta, objects)
    remembered = reapply_policy(remembered, meta.integrity)
    async with AsyncExitStack() as stack:
        journal = _open_journal(stack, path, meta, objects, remembered)
        backend, meta = await _start_backend(stack, journal, meta, objects)
        made = _make_performers(stack, path, meta, objects, backend, lambda: search)
        observations = JournalObservations(path)
        search = _build_search(meta, objects, made.proposer, made.world.estimate, observations)
        checkpoints = checkpoint_file(path, meta, search)
        after = 0 if checkpoints is None else restore_checkpoint(search, checkpoints)
        stack.callback(search.close)
        search.watch = _PastPayloads()
        journal.record_leader(search.leader_standing)
        inbox = InboxWatcher(path)
        driver = Driver(
            search,
            RememberingWorld(made.world, remembered) if remembered else made.world,
            journal,
            workers=meta.workers,
            observers=(*objects.observers, inbox),
            estimate=made.world.estimate,
            most=made.world.most,
            before_live=ResumeCheck(path, meta.task, search, made.world).check,
            before_final=backend.renew,
            session={
                "culmen": VERSION,
                "versions": versions,
                **({"checkpoint": after} if after else {}),
            },
            checkpoints=checkpoints,
            after=after,
        )
        permit = search.reservations.permit_current_effect
        if made.gateway is not None:  # a paid retry needs room in the budget as a first try does
            made.gateway.begin(permit)
        if made.answerer is not None:
            short_replies = search.ledger.short_replies
            made.answerer.set_budget_callbacks(permit, driver.hold_budget, short_replies)
            lessons = made.answerer.providers.lessons
            lessons.restore(*views.model_lessons(path))
            lessons.record = lambda note: driver.submit_entries([Entry("note", body=note)])
        if not any(event.entry.kind == "done" for event in journal.read()):
            check_first_request(search, made)
        stack.callback(asyncio.create_task(inbox.watch(driver)).cancel)
        with _Signals(driver, objects.observers) as signals:
            state = await driver.run()
    return SessionEnd(state, signals.received)


class _Performers(NamedTuple):
    """Parts that perform the effects of a session; closed with its stack."""

    gateway: Gateway | None
    proposer: Proposer | None
    answerer: QuestionAnswerer | None
    world: World


def check_first_request(search: Search, made: _Performers) -> None:
    """Raise `UserError` for a budget of tokens or dollars that holds no request for a candidate.

    The request is the shortest one that would be made, for the initial program.
    """
    strategy = with_protocol_defaults(Strategy, search.deciding_parts[0])
    if made.gateway is None or strategy.writes:
        return
    whole = ProposeRequest(Brief(next(iter(search.task.initial_candidates()), None)), 0)
    requests = [whole, *search.budget_queue.shorter_requests(whole)]
    costs = [made.world.most(request) for request in requests]
    exceeded = [search.ledger.exceeded_budget(cost) for cost in costs]
    if not all(exceeded):
        return
    shortest, name = requests[-1].limit, exceeded[-1]
    size = "" if shortest is None else f", with a reply of {shortest.tokens:,} tokens"
    least = amount_text(name, costs[-1])
    raise UserError(
        f"one request for a candidate may cost {least}{size}: the budget holds none",
        where=f"--budget {name}={getattr(search.budget, name):g}",
        fix=f"give more than {least}, or lower it: a cheaper model for the role "
        "'proposer', or a smaller max_tokens in the models file",
    )


def _make_performers(
    stack: AsyncExitStack,
    path: Path,
    meta: RunMeta,
    objects: RunObjects,
    backend: IntegrityBackend,
    searching: Callable[[], Search],
) -> _Performers:
    from culmen.models.answerer import AskingBackend
    from culmen.models.offline.proposer import EditWorkers
    from culmen.store.sidecar import QUESTIONS
    from culmen.tasks import surface_fault

    gateway, proposer, answerer = _build_model_parts(meta, objects, path / QUESTIONS)
    editor = EditWorkers()
    asked: Any = AskingBackend(backend, answerer) if answerer is not None else backend
    for part in (gateway, editor, answerer):
        if part is not None:
            stack.push_async_callback(part.close)
    crafts = {**_craft_makers(path, meta, objects, searching), **objects.crafts}
    embedder = _build_embedder(meta, objects)
    world = objects.world or LiveWorld(
        meta.task, asked, gateway, embedder, editor, surface_fault, crafts
    )
    stack.push_async_callback(world.close)
    return _Performers(gateway, proposer, answerer, world)


def _open_journal(
    stack: AsyncExitStack,
    path: Path,
    meta: RunMeta,
    objects: RunObjects,
    remembered: Mapping[str, Any],
) -> SqlJournal:
    """The run's journal, open until the stack is closed; a new fork's begins with its results."""
    from culmen.store.journal import SqlJournal

    journal = SqlJournal.open(path, write=True)
    stack.callback(journal.close)
    if remembered and not any(event.entry.kind == "done" for event in journal.read()):
        journal.append(_grafted_entries(meta, objects, remembered))
    return journal


async def _start_backend(
    stack: AsyncExitStack, journal: SqlJournal, meta: RunMeta, objects: RunObjects
) -> tuple[IntegrityBackend, RunMeta]:
    """The started backend, and the metadata with its isolation, trust and number of workers."""
    from culmen.evaluate.integrity.guard import IntegrityBackend

    inner = objects.backend or _build_backend(meta, objects)
    backend = IntegrityBackend(
        inner, meta.task, meta.integrity, _tolerance_check_maker(meta, objects)
    )
    stack.push_async_callback(backend.close)
    found = {
        "isolation": await backend.start(),
        "scoring": inner.scoring,
        "workers": meta.workers or inner.workers,
    }
    journal.set_meta(**found)
    if inner.scoring.why:
        _send_message(objects, f"Scores are {inner.scoring.trust}: {inner.scoring.why}.")
    for note in filter(lambda note: note.fix, backend.notes):
        _send_message(objects, f"{note.what}; {note.fix}")
    return backend, msgspec.structs.replace(meta, **found)


def _send_message(objects: RunObjects, text: str) -> None:
    """Send a sentence for people to all observers."""
    for observer in objects.observers:
        observer.told(text)


def rebuild_search(
    meta: RunMeta, objects: RunObjects, path: Path | None = None
) -> tuple[Search, Estimate]:
    """The run's search in its initial state, and the estimate of its effects' cost.

    With `path`, the run's folder, past evaluations are read there, as a search that begins at a
    checkpoint must. For replaying a journal; starts nothing and can perform nothing. Raises
    `UserError` if what decides in the run is of another version today.
    """
    check_versions(meta, objects)
    gateway, proposer, _ = _build_model_parts(meta, objects, None)
    nothing: Any = None
    world = objects.world or LiveWorld(meta.task, nothing, gateway, nothing, None, nothing)
    from culmen.store.reader import JournalObservations

    observations = None if path is None else JournalObservations(path)
    return _build_search(meta, objects, proposer, world.estimate, observations), world.estimate


def check_versions(meta: RunMeta, objects: RunObjects) -> dict[str, int]:
    """The versions of what decides in a run; raises `UserError` if it was made by others."""
    proposer, path = proposer_of(meta, objects), str(meta.strategy["path"])
    parts = deciders_of(strategy_of(meta, objects), proposer, path)
    require_same_versions(meta, parts)
    return {name: part.version for name, part in parts.items()}


def _grafted_entries(
    meta: RunMeta, objects: RunObjects, remembered: Mapping[str, Any]
) -> list[Entry]:
    """Results that a fork's search takes over, as entries of its own journal."""
    own = msgspec.structs.replace(objects, proposer=copy.deepcopy(objects.proposer))
    search, _ = rebuild_search(meta, own)
    entries = graft_results(search, remembered)
    search.close()
    return entries


def run_blocking(session: Coroutine[Any, Any, T]) -> T:
    """Run a session to its end from ordinary code.

    In a notebook, whose loop is taken, on a thread of its own.
    """
    from culmen.jail.descriptors import user_session

    outcome: list[Any] = []

    def target() -> None:
        outcome.append(asyncio.run(_result_or_error(session)))

    with user_session():
        # not asked for inside `except`: its error would stand in every traceback of the session
        if not _in_loop():
            return _run_interruptible(session)
        thread = threading.Thread(target=target, name="culmen-session")
        thread.start()
        thread.join()
    state, error = outcome[0]
    if error is not None:
        raise error
    return state


def _run_interruptible(session: Coroutine[object, object, T]) -> T:
    """As `asyncio.run`, whose loop a Ctrl-C would break while it is made and while it ends.

    The first one cancels the session, once it has begun; raises `KeyboardInterrupt`.
    """
    heard, running = [0], list[asyncio.Task[T]]()

    def on_interrupt(*_: object) -> None:
        heard[0] += 1
        if heard[0] > 1:
            raise KeyboardInterrupt
        for task in running:
            if not task.done():
                task.get_loop().call_soon_threadsafe(task.cancel)

    async def begin() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append(task)
        if heard[0]:
            session.close()
            raise asyncio.CancelledError
        return await session

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or not _is_main_thread():
        return asyncio.run(session)
    signal.signal(signal.SIGINT, on_interrupt)
    try:
        return asyncio.run(begin())
    except asyncio.CancelledError:
        if heard[0]:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _result_or_error(session: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    (result,) = await asyncio.gather(session, return_exceptions=True)
    return (None, result) if isinstance(result, BaseException) else (result, None)


class _Signals:
    """Turns Ctrl-C and SIGTERM into interrupts of the driver.

    It is active while a session runs on the main thread. Observers are notified each time, so that
    a person sees the acknowledgement.
    """

    def __init__(self, driver: Driver, observers: tuple[Observer, ...]) -> None:
        self._driver, self._observers = driver, observers
        self._active = _is_main_thread()
        self.received: int | None = None

    def __enter__(self) -> _Signals:
        if self._active:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._on_signal, number)
        return self

    def _on_signal(self, number: int) -> None:
        self.received = self.received or number
        self._driver.interrupt()
        for observer in self._observers:
            observer.interrupted()

    def __exit__(self, *_: object) -> None:
        if self._active:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _build_search(
    meta: RunMeta,
    objects: RunObjects,
    proposer: Proposer | None,
    estimate: Estimate,
    observations: ObservationStore | None = None,
) -> Search:
    level = meta.stop_at if isinstance(meta.stop_at, float | int) else None
    return Search(
        strategy_of(meta, objects),
        meta.task,
        meta.budget,
        meta.seed,
        meta.workers,
        proposer,
        estimate,
        meta.integrity,
        level,
        observations,
        meta.trial,
        CheckpointBarrier(meta.checkpoints, meta.workers),
    )


def checkpoint_file(path: Path, meta: RunMeta, search: Search) -> CheckpointFile | None:
    """The file of a run's checkpoints; None if code that decides in it is not culmen's own.

    A change of such code would go unseen.
    """
    from culmen.store.sidecar import CheckpointFile

    if not meta.checkpoints or not all(map(_is_own, search.deciding_parts)):
        return None
    return CheckpointFile(path, meta.id)


def _is_own(part: object) -> bool:
    """True if an object and its settings are plain data or of culmen's own code."""
    named = part if isinstance(part, type | FunctionType) else type(part)
    if not named.__module__.startswith(("culmen.", "builtins")):
        return False
    inside: Iterable[object] = part if isinstance(part, tuple | list) else ()
    if is_dataclass(part) and not isinstance(part, type):
        inside = [getattr(part, each.name) for each in fields(part)]
    return all(map(_is_own, inside))


def restore_checkpoint(search: Search, checkpoints: CheckpointFile) -> int:
    """Take the newest checkpoint into a search not started; its event, 0 without one."""
    stored = checkpoints.read()
    if stored is None:
        return 0
    search.restore(unpack_state(stored.state, search.anchors))
    return stored.seq


def strategy_of(meta: RunMeta, objects: RunObjects) -> Any:
    """The run's strategy: the object given, else the one described in its journal."""
    from culmen.strategies import catalog

    return objects.strategy or catalog.revive_object(meta.strategy["path"], meta.strategy["config"])


def _require_own_objects(meta: RunMeta, objects: RunObjects) -> None:
    """Raise `UserError` if the run needs Python objects of the program that made it."""
    is_local = objects.backend is None and (meta.backend or BackendChoice()).name == "local"
    is_function = is_local and meta.task.evaluator.form == "function"
    is_served = objects.model is not None or objects.world is not None
    wanted = {
        "evaluator": is_function and objects.evaluator is None,
        "model": meta.has_own_model and not is_served,
    }
    if absent := [name for name, is_absent in wanted.items() if is_absent]:
        raise UserError(
            f"this run's {' and '.join(absent)} cannot be found by name: the program that made it "
            "passed a Python object",
            where=f"run {meta.id}",
            fix="go on in that program: Study.resume(run, "
            f"{', '.join(f'{name}=your_{name}' for name in absent)}).run(), or Study.fork",
        )


def _build_backend(meta: RunMeta, objects: RunObjects) -> Backend:
    from culmen.evaluate import backends as cluster

    chosen = meta.backend or BackendChoice()
    if meta.task.evaluator.form != "function" or chosen.name != "local":
        tell = partial(_send_message, objects)
        return cluster.make_backend(
            chosen, meta.task, meta.workers, meta.require, meta.scoring, tell, level=meta.level
        )
    assert objects.evaluator is not None, "see _require_own_objects"
    if meta.level not in (None, "limits"):
        raise IsolationError(
            f"a Python function runs as part of your own process, not at level {meta.level}",
            where="isolation",
            fix="write the evaluator as a task folder: culmen new DIR",
        )
    from culmen.evaluate.function import FunctionBackend

    return FunctionBackend(meta.task, objects.evaluator, meta.workers)


def _tolerance_check_maker(
    meta: RunMeta, objects: RunObjects
) -> Callable[[], ToleranceCheck] | None:
    """A maker of the check of a winner against the evaluator's tolerances; None if not needed.

    The check runs on this machine, on copies of the evaluator's files.
    """
    task = meta.task
    if objects.backend is not None or task.evaluator.verifier or not task.evaluator.is_python:
        return None

    check = extensions.part_addresses("winner_checks").get("tolerances")
    if check is None:
        return None

    def make() -> ToleranceCheck:
        from culmen.evaluate.local import LocalBackend

        return extensions.import_part(check)(
            task,
            lambda copy: LocalBackend(
                copy, 1, meta.require, level=meta.level, scoring=meta.scoring
            ),
        )

    return make


def _build_model_parts(
    meta: RunMeta, objects: RunObjects, asked: Path | None
) -> tuple[Gateway | None, Proposer, QuestionAnswerer | None]:
    """The models of a session: those of the search, its proposer, and those of the evaluator.

    An offline search has no gateway; its evaluator may ask the roles that have a model. `asked` is
    the folder of prompts to people, beside that of the run's own replies; None for a search that
    performs nothing.
    """
    given: Any = proposer_of(meta, objects)
    proposer: Proposer = given() if isinstance(given, type) else given
    model, is_offline = objects.model_of(meta), objects.search_offline(meta)
    if is_offline and (asked is None or model in (None, "offline")):
        return None, proposer, None
    from culmen.models import make_gateway

    replies = asked.parent / "replies" if meta.own_replies and asked is not None else cache_dir()
    tell = partial(_send_message, objects) if objects.observers else None
    gateway = make_gateway(
        *(meta.task, model, meta.models_file, replies, meta.templates, tell, asked, meta.bank)
    )
    answerer = getattr(gateway, "answerer", None)
    if is_offline:
        return None, proposer, answerer
    if meta.bank and objects.proposer is None:
        from culmen.models.bank import BankProposer
        from culmen.models.roles import ModelBook

        roles = ModelBook(meta.models_file).parse_roles(meta.model)
        proposer = BankProposer(roles, meta.bank, proposer)
    return gateway, proposer, answerer


def backend_outside_run(meta: RunMeta, objects: RunObjects) -> Backend:
    """The backend for evaluations of a run's candidates outside of the run.

    It has the run's level of isolation. Raises `UserError` if the evaluator is a Python function
    that was not given.
    """
    from culmen.evaluate.integrity.guard import IntegrityBackend

    if meta.task.evaluator.form == "function" and objects.evaluator is None:
        raise UserError(
            "its evaluator is a Python function of the program that made the run, so nothing "
            "can be scored here",
            where=f"run {meta.id}",
            fix="write the evaluator as a task folder: culmen new DIR",
        )
    inner = objects.backend or _build_backend(meta, objects)
    backend = IntegrityBackend(inner, meta.task, meta.integrity)
    if not meta.task.evaluator.options.get("roles"):
        return backend
    return with_evaluator_models(meta.task, backend, objects.model_of(meta), meta.models_file)


def with_evaluator_models(
    task: Task, backend: Backend, model: Any, models_file: str | None = None
) -> Backend:
    """The backend, with models for its evaluators by these roles and without a budget.

    For looks at a task before a run. Raises `UserError` for roles that the task needs and that have
    no model, and for unreadable models.
    """
    from culmen.models.answerer import AskingBackend

    answerer = evaluator_answerer(task, model, models_file)
    return backend if answerer is None else AskingBackend(backend, answerer)  # pyright: ignore[reportReturnType]


def evaluator_answerer(
    task: Task, model: Any, models_file: str | None = None
) -> QuestionAnswerer | None:
    """The answerer of an evaluator's questions outside a run, without a budget; None offline.

    Raises as `with_evaluator_models` does. The caller closes it.
    """
    from culmen.core.ports import MinimalGateway
    from culmen.models import make_gateway
    from culmen.models.roles import check_roles, read_roles

    if not isinstance(model, MinimalGateway):
        check_roles(task, read_roles(model, models_file))
    if model in (None, "offline"):
        return None
    gateway: Any = make_gateway(task, model, models_file, cache_dir())
    return gateway.answerer


def _build_embedder(meta: RunMeta, objects: RunObjects) -> Embedder:
    if objects.embedder is not None:
        from culmen.models.embed.models import PatientEmbedder

        return PatientEmbedder(objects.embedder)
    from culmen.models.embed import make_embedder

    return make_embedder(meta.embedder, meta.models_file)


class _PastPayloads:
    """Payloads of finished effects of crafts, by kind, until their craft is made."""

    def __init__(self) -> None:
        self._by_kind: dict[str, list[Mapping[str, Any]]] = {}
        self._made: set[str] = set()

    def __call__(self, effect: Effect) -> None:
        family = effect.kind.partition(".")[0]
        if isinstance(effect.request, CustomRequest) and family not in self._made:
            self._by_kind.setdefault(effect.kind, []).append(effect.request.payload)

    def take_over(self, family: str) -> Callable[[str], Sequence[Mapping[str, Any]]]:
        """A function from a kind of this family to its payloads; no more are gathered."""
        self._made.add(family)
        own = {kind: self._by_kind.pop(kind) for kind in [*self._by_kind] if _is_of(kind, family)}
        return lambda kind: own.get(kind, [])


def _is_of(kind: str, family: str) -> bool:
    return kind.partition(".")[0] == family


def _craft_makers(
    path: Path, meta: RunMeta, objects: RunObjects, searching: Callable[[], Search]
) -> dict[str, Callable[[], Craft]]:
    """Makers of the performers of custom effects, by family.

    Nothing is imported or started before it is needed.
    """

    def make(family: str, address: str) -> Craft:
        search = searching()
        past = search.watch
        assert isinstance(past, _PastPayloads)
        model = objects.model_of(meta)
        context = CraftContext(
            run=path,
            task=meta.task,
            settings=_settings_of_agents(meta, objects),
            model=model if isinstance(model, str | dict) else None,
            models_file=meta.models_file,
            has_room=search.reservations.has_room_for,
            is_searching=lambda: search.phase == "search",
            past_payloads=past.take_over(family),
            render=lambda role, slots: _rendered_prompt(meta, role, slots),
        )
        return extensions.import_part(address)(context)

    return {
        family: partial(make, family, address)
        for family, address in extensions.part_addresses("performers").items()
    }


def _settings_of_agents(meta: RunMeta, objects: RunObjects) -> Mapping[str, object]:
    """Settings of the strategy, or of its arm that has agents."""
    from culmen.strategies import catalog

    for part in with_protocol_defaults(Strategy, strategy_of(meta, objects)).parts:
        if with_protocol_defaults(Strategy, part).agent_setting:
            return catalog.strategy_config(part)["config"] or {}
    return meta.strategy.get("config") or {}


def _rendered_prompt(meta: RunMeta, role: str, slots: JsonObject) -> tuple[str, str]:
    from culmen.models.prompts.template import Templates
    from culmen.models.prompts.writer import PromptWriter

    prompt = PromptWriter(meta.task, Templates(meta.templates)).text_prompt(role, slots)
    return prompt.system, prompt.user


# Human input to a run, brought from its inbox into the search while a session runs.

INTERVAL = 0.4  # seconds between two looks into the folder
_KINDS = ("tell", "stop")


class InboxWatcher(Observer):
    """Hands messages to the driver, and, as an observer, removes those that are journaled.

    A message that was journaled before its file was removed is known by its id, and not taken
    twice.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._seen: set[str] = set()
        for event in (
            views.log_events(run, limit=1_000_000, kinds=_KINDS)
            if inbox.waiting_messages(run)
            else ()
        ):
            self._remove_message(event)

    async def watch(self, driver: Driver) -> None:
        """Poll the inbox every `INTERVAL` seconds, until cancelled."""
        while True:
            for message in await asyncio.to_thread(self._waiting_messages):
                if message.id not in self._seen:
                    self._seen.add(message.id)
                    driver.submit_entries([entry_from_message(message)])
                    if message.kind == "pause":
                        driver.interrupt()
            await asyncio.sleep(INTERVAL)

    def _waiting_messages(self) -> list[InboxMessage]:
        """Waiting messages; none while a database is unavailable.

        The driver notices the outage, too, and decides on the consequence.
        """
        with contextlib.suppress(Unavailable):
            return inbox.waiting_messages(self._run)
        return []

    def see(self, events: Iterable[Event]) -> None:
        """Remove the messages of these durable events."""
        for event in events:
            if event.entry.kind in _KINDS:
                self._remove_message(event)

    def told(self, text: str) -> None:
        """No-op: this observer shows no messages."""

    def _remove_message(self, event: Event) -> None:
        message = str(event.entry.body.get("id", ""))
        if message:
            self._seen.add(message)
            with contextlib.suppress(Unavailable):
                inbox.remove_message(self._run, message)


def entry_from_message(message: InboxMessage) -> Entry:
    """A message in the journal's form."""
    if message.kind == "stop":
        return Entry("stop", body={"reason": "user", "id": message.id})
    body = {"tell": message.kind, "id": message.id}
    if message.kind == "candidate":
        candidate = Candidate.of(message.parts, (), Origin("person"))
        return Entry(
            "tell", effect="candidates", body=body, result=Proposal(candidates=(candidate,))
        )
    return Entry("tell", body={**body, "text": message.text} if message.text else body)
