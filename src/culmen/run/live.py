"""One live session of a run: assembles its parts, drives it on asyncio, and takes everything down again."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.errors import UserError
from culmen.core.evaluation import Scoring
from culmen.core.event import CustomRequest, Effect, Entry
from culmen.core.ports import Backend, Craft, Embedder, Gateway, Proposer, Shelf, Strategy
from culmen.core.task import Task
from culmen.engine.driver import Driver
from culmen.engine.replay import graft
from culmen.engine.search import Estimate, Search, at_least
from culmen.engine.world import Editor, LiveWorld, RememberingWorld
from culmen.run.inbox import Mailbox

if TYPE_CHECKING:
    from culmen.store.meta import RunMeta
    from culmen.study import Parts


async def live(path: Path, meta: RunMeta, parts: Parts, remembered: Mapping[str, Any]) -> str:
    """Run (or go on with) the run in `path` until it ends or is interrupted; returns finished | interrupted."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products only; idle BLAS threads would spin on all cores
    from culmen.evaluate.integrity.guard import IntegrityBackend, reapply_policy
    from culmen.store.journal import SqlJournal
    from culmen.store.reader import JournalObservations

    remembered = reapply_policy(remembered, _integrity(meta))
    async with AsyncExitStack() as stack:
        journal = SqlJournal.open(path, write=True)
        stack.callback(journal.close)
        if remembered and not any(event.entry.kind == "done" for event in journal.read()):
            journal.append(_grafted(path, meta, parts, remembered))
        inner = parts.backend if hasattr(parts.backend, "evaluate") else _backend(meta, parts)
        backend = IntegrityBackend(inner, meta.task, _integrity(meta))
        stack.push_async_callback(backend.close)
        isolation, scoring = await backend.start(), getattr(inner, "scoring", Scoring())
        meta = journal.set_meta(
            isolation=isolation, scoring=scoring, workers=meta.workers or getattr(inner, "workers", 1)
        )
        _say(parts, f"Scores are {scoring.trust}: {scoring.why}." if scoring.why else "")
        gateway, proposer, editor = _models(path, meta, parts)
        for part in (gateway, editor):
            if part is not None:
                stack.push_async_callback(part.close)
        crafts = {**_crafts(path, meta, parts, lambda: search), **parts.crafts}
        world = parts.world or _world(meta.task, backend, gateway, _embedder(meta, parts), editor, crafts)
        if isinstance(world, LiveWorld):
            stack.push_async_callback(world.close)
        estimate = getattr(world, "estimate", at_least)
        search = _search(meta, parts, proposer, estimate, JournalObservations(path))
        stack.callback(search.close)
        search.watch = _Answers()
        asking: Any = gateway
        if hasattr(asking, "permit"):  # a paid retry needs room in the budget as a first try does
            asking.permit = lambda extra: not search.ledger.refusal(extra)
        mailbox = Mailbox(path)
        driver = Driver(
            search,
            RememberingWorld(world, remembered) if remembered else world,
            journal,
            workers=meta.workers,
            observers=(*parts.observers, mailbox),
            estimate=estimate,
            before_final=backend.renew,
        )
        stack.callback(asyncio.create_task(mailbox.watch(driver)).cancel)
        with _signals(driver, parts.observers):
            return await driver.run()


def _say(parts: Parts, text: str) -> None:
    """A sentence for people, to the observers that pass such on."""
    for observer in parts.observers:
        if text and hasattr(observer, "told"):
            observer.told(text)


def rebuild(path: Path, meta: RunMeta, parts: Parts) -> tuple[Search, Estimate]:
    """The run's search as it was at the start, and what its effects are taken to cost: for replaying a journal.

    Starts nothing and can perform nothing.
    """
    gateway, proposer, _ = _models(path, meta, parts)
    nothing: Any = None
    world = parts.world or LiveWorld(meta.task, nothing, gateway, nothing, None, nothing)
    estimate = getattr(world, "estimate", at_least)
    return _search(meta, parts, proposer, estimate), estimate


def _grafted(path: Path, meta: RunMeta, parts: Parts, remembered: Mapping[str, Any]) -> list[Entry]:
    """What a fork's search takes over from its parent, as entries of its own journal."""
    own = msgspec.structs.replace(parts, proposer=copy.deepcopy(parts.proposer))
    search, _ = rebuild(path, meta, own)
    entries = graft(search, remembered)
    search.close()
    return entries


def run_blocking(session: Coroutine[Any, Any, str]) -> str:
    """Run a session to its end from ordinary code; in a notebook, whose loop is taken, on a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(session)
    outcome: list[Any] = []

    def target() -> None:
        outcome.append(asyncio.run(_caught(session)))

    thread = threading.Thread(target=target, name="culmen-session")
    thread.start()
    thread.join()
    state, error = outcome[0]
    if error is not None:
        raise error
    return state


async def _caught(session: Coroutine[Any, Any, str]) -> tuple[str, BaseException | None]:
    (result,) = await asyncio.gather(session, return_exceptions=True)
    return ("", result) if isinstance(result, BaseException) else (result, None)


class _signals:
    """Ctrl-C and SIGTERM become interrupts of the driver while a session runs on the main thread.

    Observers that have a method `interrupted` are told each time, so that a person hears that it was understood.
    """

    def __init__(self, driver: Driver, observers: tuple[Any, ...] = ()) -> None:
        self._driver = driver
        self._listeners = [o.interrupted for o in observers if hasattr(o, "interrupted")]
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        if self._active:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._interrupt)

    def _interrupt(self) -> None:
        self._driver.interrupt()
        for listener in self._listeners:
            listener()

    def __exit__(self, *_: object) -> None:
        if self._active:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _search(
    meta: RunMeta, parts: Parts, proposer: Proposer | None, estimate: Estimate, shelf: Shelf | None = None
) -> Search:
    strategy, goal = _strategy(meta, parts), meta.extra.get("stop_at")
    return Search(
        strategy, meta.task, meta.budget, meta.seed, meta.workers, proposer, estimate, _integrity(meta), goal, shelf
    )


def _integrity(meta: RunMeta) -> str:
    """What the run does about grave signs; runs made before there were any only note them."""
    return meta.extra.get("integrity") or "warn"


def _strategy(meta: RunMeta, parts: Parts) -> Strategy:
    from culmen.strategies import catalog

    return parts.strategy or catalog.revive(meta.strategy["path"], meta.strategy["config"])


def _backend(meta: RunMeta, parts: Parts) -> Backend:
    from culmen.evaluate import cluster
    from culmen.evaluate.cluster import choice

    chosen = choice.as_choice(meta.extra.get("backend") if parts.backend is None else parts.backend)
    if meta.task.evaluator.form != "function" or chosen.name != "local":
        require = parts.require or meta.extra.get("require")
        return cluster.make(chosen, meta.task, meta.workers, require, meta.scoring, lambda text: _say(parts, text))
    if parts.evaluator is None:
        raise UserError(
            "this run's evaluator is a Python function of the program that made it",
            where=f"run {meta.id}",
            fix="resume it there: Study.resume(run, evaluator=your_function).run()",
        )
    from culmen.evaluate.function import FunctionBackend

    return FunctionBackend(meta.task, parts.evaluator, meta.workers)


def _models(path: Path, meta: RunMeta, parts: Parts) -> tuple[Gateway | None, Proposer | None, Editor | None]:
    model = parts.model if parts.model is not None else meta.extra.get("model")
    if model in (None, "offline") and parts.proposer is None:
        from culmen.offline.proposer import OfflineProposer
        from culmen.offline.workers import EditWorkers

        return None, OfflineProposer(), EditWorkers()
    if model in (None, "offline"):
        from culmen.offline.workers import EditWorkers

        return None, parts.proposer, EditWorkers()
    from culmen.llm import make_gateway
    from culmen.offline.workers import EditWorkers
    from culmen.prompts.proposer import FallbackProposer

    file = parts.models_file or meta.extra.get("models_file")
    tell = [observer.told for observer in parts.observers if hasattr(observer, "told")]
    heard = tell[0] if tell else None
    gateway = make_gateway(meta.task, model, file, _cache_dir(), tell=heard)
    return gateway, parts.proposer or FallbackProposer(), EditWorkers()


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "culmen"


def _embedder(meta: RunMeta, parts: Parts) -> Embedder:
    chosen = parts.embedder if parts.embedder is not None else meta.extra.get("embedder", "hashing")
    if not isinstance(chosen, str):
        return chosen
    from culmen.embed import make

    return make(chosen, parts.models_file or meta.extra.get("models_file"))


def _world(
    task: Task,
    backend: Backend,
    gateway: Gateway | None,
    embedder: Embedder,
    editor: Editor | None,
    crafts: Mapping[str, Callable[[], Craft]],
) -> LiveWorld:
    from culmen.evaluate.taskfiles import surface_fault

    return LiveWorld(task, backend, gateway, embedder, editor, surface_fault, crafts)


class _Answers:
    """Payloads of the `session.answer` effects that are finished, until somebody wants them."""

    def __init__(self) -> None:
        self.payloads: list[Mapping[str, Any]] = []

    def __call__(self, effect: Effect) -> None:
        if isinstance(effect.request, CustomRequest) and effect.kind == "session.answer":
            self.payloads.append(effect.request.payload)


def _crafts(path: Path, meta: RunMeta, parts: Parts, searching: Callable[[], Search]) -> dict[str, Callable[[], Craft]]:
    """Makers of what performs custom effects, by family; nothing is imported or started before it is needed."""

    def sessions() -> Craft:
        from culmen.agents.sandbox.settings import SandboxSettings
        from culmen.agents.sandbox.world import SessionWorld

        search = searching()
        answers, search.watch = search.watch, None
        model = parts.model if parts.model is not None else meta.extra.get("model")
        return SessionWorld(
            path,
            meta.task,
            SandboxSettings.of({**meta.strategy.get("config", {}), **(meta.extra.get("sessions") or {})}),
            models=(
                model if isinstance(model, str | dict) else None,
                parts.models_file or meta.extra.get("models_file"),
            ),
            permit=lambda extra: not search.ledger.refusal(extra),
            going=lambda: search.phase == "search",
            history=lambda: answers.payloads if isinstance(answers, _Answers) else (),
        )

    def training() -> Craft:
        from culmen.prompts.writer import PromptWriter
        from culmen.train.advisors import maker
        from culmen.train.craft import TrainCraft

        def render(role: str, slots: dict[str, Any]) -> tuple[str, str]:
            prompt = PromptWriter(meta.task).prose(role, slots)
            return prompt.system, prompt.user

        return TrainCraft(path / "policy", maker(render, path / "policy"))

    return {"session": sessions, "train": training}
