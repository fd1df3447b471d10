"""The whole public API on one page: run a search, resume it, fork it, read it.

    import culmen
    study = culmen.optimize("def run(): ...", evaluator=my_function, budget=culmen.Budget(evaluations=200))
    print(study.best.score, study.best.text)

`Study` is the only place where the parts are wired together. Any part may be an object of your own: a strategy, a
proposer, a model, an evaluation backend, an embedder (see `culmen.core.ports` for their few methods).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Custom, Entry
from culmen.core.ports import Backend, Embedder, Observer, Proposer, Strategy
from culmen.core.task import Limits, Task
from culmen.core.usage import Budget
from culmen.run import inputs

if TYPE_CHECKING:
    from culmen.store.meta import RunMeta
    from culmen.store.views import RunStatus as RunStatus
    from culmen.store.views.candidates import Order

DEFAULT_BUDGET = Budget(evaluations=200)


class Best(msgspec.Struct, frozen=True):
    """The candidate a study reports: `score` over `count` evaluations, `confirmed` by fresh ones after the search,
    `verified` if every score was also computed outside the candidate's process and nothing had to be repaired before
    the task's verifier accepted it; `certified` is the value that the verifier vouches for, if there is one; `trust` is
    the level of the weakest evaluation (`culmen.core.evaluation`)."""

    id: str
    score: float
    count: int
    verified: bool
    confirmed: bool
    parts: dict[str, str]
    certified: float | None = None
    trust: str = ""

    @property
    def text(self) -> str:
        """The candidate as one text."""
        return Candidate.of(self.parts).text


class Parts(msgspec.Struct, frozen=True):
    """What performs a run's effects; anything left None is made from the run's settings.

    `require` is the lowest isolation level accepted, `fork_of` the run whose finished results are reused, `crafts` make
    performers of custom effects (`culmen.core.ports.Craft`) by family. `integrity` says what is done about grave signs
    of gaming (warn | reject | stop), `stop_at` at which score the search ends before its budget does (a number, or
    "target"). `backend` is an object, a name or a `culmen.evaluate.cluster.choice.BackendChoice`. These are kept with
    the run, but for objects.
    """

    strategy: Any = None
    evaluator: Callable[..., Any] | None = None
    model: Any = None
    models_file: str | None = None
    proposer: Any = None
    backend: Any = None
    embedder: Any = None
    world: Any = None
    crafts: Mapping[str, Callable[[], Any]] = {}
    require: str | None = None
    fork_of: str | None = None
    integrity: str | None = None
    stop_at: float | str | None = None
    observers: tuple[Any, ...] = ()


def optimize(
    seed: str | Mapping[str, str] | Sequence[str] | None,
    evaluator: Callable[..., Any] | str | Path,
    *,
    strategy: Strategy | str = "polca",
    model: Any = "offline",
    budget: Budget = DEFAULT_BUDGET,
    cases: Iterable[Any] = (),
    goal: str = "",
    direction: str = "max",
    name: str = "study",
    deterministic: bool = False,
    limits: Limits | None = None,
    random_seed: int = 0,
    workers: int | None = None,
    run_dir: str | Path | None = None,
    **parts: Any,
) -> Study:
    """Search for a better text and return the finished study.

    `seed` is a program, prompt or path to one; a mapping of named texts; several of either; or None to let the model
    write the first. `evaluator` is a Python function (see `culmen.evaluate.function`), a task folder or an evaluator
    file. `cases` are `Case`s or plain inputs. `strategy` is an object or a name. Keyword `parts` are those of `Parts`.
    Raises `UserError` for what you can fix.
    """
    if callable(evaluator):
        task = inputs.function_task(seed, cases, goal, direction, name, deterministic, limits, evaluator)
        parts["evaluator"] = evaluator
    else:
        task = inputs.folder_task(evaluator, seed, goal)
    study = Study.create(
        task, strategy, model=model, budget=budget, random_seed=random_seed, workers=workers, run_dir=run_dir, **parts
    )
    study.run()
    return study


class Study:
    """One run: a folder with a journal. `create`, `resume` and `fork` make one that can `run`; `open` one to read."""

    def __init__(self, path: Path, meta: RunMeta, parts: Parts | None) -> None:
        self.path, self.meta, self._parts = path, meta, parts

    @classmethod
    def create(
        cls,
        task: Task | str | Path,
        strategy: Strategy | str = "polca",
        *,
        model: Any = "offline",
        budget: Budget = DEFAULT_BUDGET,
        random_seed: int = 0,
        workers: int | None = None,
        run_dir: str | Path | None = None,
        db: str | None = None,
        **parts: Any,
    ) -> Study:
        """A new run, nothing started yet. `run_dir` defaults to runs/NAME-TIME under the current folder.

        `db` is the URL of a PostgreSQL database that keeps the journal instead of the folder
        (`postgresql+psycopg://user@host/database`, `#name` if it is not to be called as the folder is).
        """
        from culmen.store.journal import SqlJournal
        from culmen.strategies import catalog

        task = task if isinstance(task, Task) else inputs.folder_task(task, None, "")
        made = catalog.make(strategy, {}) if isinstance(strategy, str) else strategy
        made, parts["stop_at"] = catalog.ending_at(made, inputs.level(task, parts.get("stop_at")))
        inputs.check_runnable(task, made, model, budget, parts)
        path = inputs.new_path(task, run_dir)
        meta = inputs.meta(path, task, catalog.config(made), model, budget, random_seed, workers, parts)
        journal = SqlJournal.create(path, meta, db)
        seeds = Proposal(candidates=task.candidates())
        journal.append([Entry("note", effect="seeds", body={"note": "seeds"}, result=seeds)])
        journal.close()
        return cls(path, meta, Parts(strategy=made, model=model, **parts))

    @classmethod
    def resume(cls, run: str | Path, **parts: Any) -> Study:
        """An interrupted run, to go on where its journal ends. Parts that were objects must be passed again."""
        study = cls.open(run)
        study._parts = Parts(**parts)
        return study

    @classmethod
    def fork(cls, run: str | Path, run_dir: str | Path | None = None, *, carry: int = 0, **changes: Any) -> Study:
        """A new run with changed settings that reuses every finished result of `run` asked for again, by content.

        It begins with the evaluator as it lies there now; what another version of it scored is not reused.
        `carry` of the run's best candidates become further seeds, under another random seed (`culmen.run.fork`).
        `changes` are arguments of `create` (strategy, budget, model, ...); the rest is the parent's.
        """
        from culmen.run import fork as onward
        from culmen.store.address import pointer

        parent = cls.open(run)
        meta, keep = parent.meta, Parts(**{k: v for k, v in changes.items() if k in Parts.__struct_fields__})
        strategy = changes.pop("strategy", None) or inputs.revive(meta, keep)
        defaults = {
            "model": meta.extra.get("model", "offline"),
            "budget": meta.budget,
            "random_seed": meta.seed,
            "workers": meta.workers,
            "integrity": meta.extra.get("integrity"),
            "backend": meta.extra.get("backend"),
            "stop_at": meta.extra.get("stop_at"),
        }
        task = inputs.as_it_is(meta.task)
        if carry:
            task = onward.carried(task, parent.path, carry)
            defaults["random_seed"] = onward.seed(meta, changes.get("random_seed"))
        known_as = str(pointer(parent.path) or parent.path)  # an address means the same run on every machine
        return cls.create(task, strategy, run_dir=run_dir, fork_of=known_as, **{**defaults, **changes})

    @classmethod
    def open(cls, run: str | Path) -> Study:
        """An existing run, for reading; also while another process runs it."""
        from culmen.store import views
        from culmen.store.journal import SqlJournal

        path = views.find_run(run)
        journal = SqlJournal.open(path, write=False)
        meta = journal.meta
        journal.close()
        return cls(Path(path), meta, None)

    def run(self, session: Callable[..., Any] | None = None) -> str:
        """Search until the budget ends, or Ctrl-C. Returns finished | interrupted.

        Works in scripts and, where an asyncio loop already runs, in notebooks. `session` replaces the asyncio session
        (`culmen.run.live.live`) for callers that drive it themselves.
        """
        if self._parts is None:
            raise UserError("this study was opened for reading", where=str(self.path), fix="Study.resume(run).run()")
        from culmen.run import live as sessions

        known = Study._known(str(self.meta.extra.get("fork_of") or ""))
        judge = self.meta.task.evaluator.digest
        remembered = {m: r for m, r in known.items() if not isinstance(r, Observation) or r.evaluator in ("", judge)}
        return sessions.run_blocking((session or sessions.live)(self.path, self.meta, self._parts, remembered))

    @property
    def status(self) -> RunStatus:
        """State, counts, best, usage: what `culmen status` prints."""
        from culmen.store import views

        return views.status(self.path)

    @property
    def best(self) -> Best | None:
        """The reported candidate; None before anything scored."""
        from culmen.store import views

        best = views.status(self.path).best
        if best is None:
            return None
        texts = views.candidate(self.path, best.id).parts
        return Best(best.id, best.score, best.count, best.verified, best.confirmed, texts, best.certified, best.trust)

    def candidates(self, order: Order = "best", limit: int | None = None) -> list[Any]:
        """Candidates with their statistics (`culmen.store.views.Row`), best first."""
        from culmen.store import views

        return list(views.candidates(self.path, order=order, limit=limit))

    def observations(self) -> Iterator[Observation]:
        """Every observation, in journal order."""
        for _, result in self._results():
            if isinstance(result, Observation):
                yield result

    @staticmethod
    def _known(parent: str) -> dict[str, Any]:
        """What the run that this one was forked from has finished; nothing if there is no such run any more."""
        from culmen.store.address import has_run, is_address

        if not is_address(parent):
            return Study.open(Path(parent))._finished() if parent and has_run(Path(parent)) else {}
        with suppress(UserError):
            return Study.open(parent)._finished()
        return {}

    def _finished(self) -> dict[str, Any]:
        """Results by mark in journal order, the first of each; what our own failure lost is asked again.

        Custom effects leave traces outside the journal (a repository, weights), so they are not taken over.
        """
        finished: dict[str, Any] = {}
        for entry, result in self._results():
            if isinstance(result, Custom) or (isinstance(result, Observation) and result.status is Status.LOST):
                continue
            if entry.mark:
                finished.setdefault(entry.mark, result)
        return finished

    def _results(self) -> Iterator[tuple[Entry, Any]]:
        from culmen.store.journal import SqlJournal

        journal = SqlJournal.open(self.path, write=False)
        try:
            for event in journal.read(whole=True):
                if event.entry.kind == "done":
                    yield event.entry, event.entry.result
        finally:
            journal.close()


__all__ = ["DEFAULT_BUDGET", "Backend", "Best", "Embedder", "Observer", "Proposer", "Study", "optimize"]
