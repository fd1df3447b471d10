"""The whole public API on one page: run a search, resume it, fork it, read it.

    import culmen
    study = culmen.optimize("def run(): ...", evaluator=my_function, budget=200)
    print(study.best.score, study.best.text)

`Study` is the only place that wires the parts together. Any part may be an object of your own: a
strategy, a proposer, a model, an evaluation backend, an embedder (see `culmen.core.ports` for their
few methods).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import msgspec

from culmen.core import errors
from culmen.core.candidate import Candidate
from culmen.core.errors import CulmenError, UserError
from culmen.core.evaluation import Observation
from culmen.core.json import JsonObject
from culmen.core.options import DEFAULT_BUDGET, BackendChoice, RunOptions
from culmen.core.ports import (
    Craft,
    MinimalBackend,
    MinimalEmbedder,
    MinimalObserver,
    MinimalProposer,
    MinimalStrategy,
    MinimalWorld,
)
from culmen.core.result import RunResult
from culmen.core.task import Limits, Task
from culmen.core.usage import Budget
from culmen.run import options
from culmen.run.options import CreateKeywords, ForkKeywords, ResumeKeywords, RunKeywords, RunObjects

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports]

    from culmen.evaluate.check import TaskReport
    from culmen.report.forecast import RunForecast
    from culmen.report.summary import RunSummary
    from culmen.run.plan import RunPlan
    from culmen.store.database import RunMeta
    from culmen.store.views import CandidateDetail, CandidateRow, Front
    from culmen.store.views import RunStatus as RunStatus
    from culmen.store.views.candidates import Order


class ReportedCandidate(RunResult, frozen=True, omit_defaults=True):
    """The result of a study (`culmen.core.result.RunResult`) with the candidate's texts.

    `parts` are the texts by name; `result` compares it with the initial program in a line.
    """

    parts: dict[str, str] = {}  # noqa: RUF012  (msgspec copies it)
    result: str = ""

    @property
    def text(self) -> str:
        """The candidate as one text."""
        return Candidate.of(self.parts).text

    def __str__(self) -> str:
        """The result for people: labels and values, one a line; then the text."""
        margin = f" ± {self.margin:.2g}" if self.margin else ""
        rows = {
            "candidate": self.id,
            "score": f"{self.score:.6g}{margin} (n {self.count:,})",
            "result": self.result,
            "trust": self.trust,
        }
        lines = (f"{label:<9}  {value}" for label, value in rows.items() if value)
        return "\n".join([*lines, "", self.text])


Seeds = str | Path | Mapping[str, str] | Sequence[str | Path | Mapping[str, str]]


@options.advise_keywords
def optimize(
    seed: Seeds | None = None,
    evaluator: Callable[..., Any] | str | Path | None = None,
    *,
    budget: Budget | float | str | Mapping[str, float] = DEFAULT_BUDGET,
    model: object | None = None,
    strategy: MinimalStrategy | type[MinimalStrategy] | str | None = None,
    workers: int | None = None,
    random_seed: int = 0,
    goal: str = "",
    cases: Iterable[Any] = (),
    direction: str = "max",
    objectives: Mapping[str, Any] | None = None,
    constraints: Sequence[str] = (),
    limits: Limits | None = None,
    deterministic: bool | None = None,
    same_draws: bool = False,
    keeps_state: bool = False,
    isolation: str | None = None,
    require: str | None = None,
    name: str = "study",
    run_dir: str | Path | None = None,
    progress: bool = True,
    stop_at: float | str | None = None,
    integrity: str = "warn",
    allow_failing: bool = False,
    models_file: str | None = None,
    templates: Mapping[str, str] | str | PathLike[str] | None = None,
    embedder: MinimalEmbedder | str | None = None,
    backend: MinimalBackend | BackendChoice | Mapping[str, Any] | str | None = None,
    proposer: MinimalProposer | None = None,
    world: MinimalWorld | None = None,
    crafts: Mapping[str, Callable[[], Craft]] | None = None,
    observers: Sequence[MinimalObserver] = (),
    fork_of: str | None = None,
) -> Study:
    """Search for a better text and return the finished study.

        study = culmen.optimize("def run(): ...", evaluator=my_function, budget=200)
        print(study.best.score, study.best.text)

    The task:

    seed           initial program or prompt: its text or a path; a mapping of named texts; several
                   of either; None: the model writes the first
    evaluator      a function that scores a candidate (`culmen.evaluate.function`), a task folder,
                   or the path of an evaluator file
    goal           goal of the search in a sentence, for the model
    cases          `culmen.Case`s or plain inputs, each scored by itself
    direction      "max" or "min" of the score
    objectives     several objectives instead: their directions by name of the metric
    constraints    limits of metrics that a result must meet, as "latency<=20"
    limits         seconds and memory of one evaluation
    deterministic  True: a candidate always gets the same score on a case, which is checked; None:
                   measured
    same_draws     all evaluations of a case have one random seed
    keeps_state    what an evaluation leaves in the function's process is there for the next one;
                   else each begins from the state after the import

    A task folder states these itself, except `seed` and `goal`.

    The search:

    budget         evaluations, as 200; "5m" of time or "$5"; a `culmen.Budget` or a mapping with
                   evaluations, seconds, calls, tokens, dollars (hard limits), and final (share of
                   the evaluations for the final choice)
    model          a model's name, as "openai/gpt-5-mini", names by role, or an object or function
                   of your own; None: those of `models_file`, else edits without a language model
    strategy       a name of `culmen strategies`, or an object; None: the usual one
    workers        evaluations at once; None: one per core, up to 8
    random_seed    the same seed and model replies repeat a search
    stop_at        score that ends the search, or "target", the task's own
    integrity      reaction to signs of gaming: "warn", "reject" or "stop"
    allow_failing  search even if the initial program gives no score
    models_file    file of providers, models and prices (TOML or YAML)
    templates      prompt templates of your own: a folder, or texts by name
    embedder       a name or an object; None: "hashing"

    The place and the record:

    isolation      isolation level of candidates, and no other: "namespaces", "container",
                   "restricted" or "limits"; None: the strongest that works here
    require        weakest level accepted; None: any
    backend        where evaluations run: "local", "ray", "slurm", or an object
    name           name of a task that is a function
    run_dir        the run's folder; None: runs/NAME-TIME under the current folder
    progress       show the progress, and the run's folder
    fork_of        a run whose finished results are used again

    Parts of your own (`culmen.core.ports`): `proposer`, `world`, `crafts` by family, `observers`.

    Raises `UserError` for mistakes that you can fix, before anything is spent; `NothingScored` if
    no evaluation gave a score.
    """
    if evaluator is None:
        fix = "pass a function that scores a candidate"
        raise UserError("there is no evaluator", where="evaluator=", fix=fix)
    keywords = RunKeywords(
        budget=budget,
        model=model,
        workers=workers,
        random_seed=random_seed,
        stop_at=stop_at,
        integrity=integrity,
        allow_failing=allow_failing,
        models_file=models_file,
        templates=templates,
        embedder=embedder,
        isolation=isolation,
        require=require,
        backend=backend,
        proposer=proposer,
        world=world,
        crafts=crafts or {},
        observers=observers,
        fork_of=fork_of,
    )
    if callable(evaluator):
        task = options.function_task(
            *(seed, cases, goal, direction, name, deterministic, limits, evaluator),
            *(objectives, constraints),
            same_draws=same_draws,
            keeps_state=keeps_state,
        )
        study = Study.create(task, strategy, run_dir=run_dir, evaluator=evaluator, **keywords)
    else:
        options.refuse_rules_of_folder(same_draws, keeps_state, bool(objectives or constraints))
        task = options.folder_task(evaluator, seed, goal)
        study = Study.create(task, strategy, run_dir=run_dir, **keywords)
    study.run(progress)
    return study


def check(
    seed: Seeds,
    evaluator: Callable[..., Any] | str | Path,
    *,
    cases: Iterable[Any] = (),
    direction: str = "max",
    limits: Limits | None = None,
    keeps_state: bool = False,
    times: int = 5,
    most_cases: int = 500,
    model: Any = None,
) -> TaskReport:
    """Evaluate the initial programs a few times, without a search.

    `print(culmen.check(seed, evaluator))` shows score, noise, time and problems, with the
    evaluator's traceback and printed output. The arguments are those of `optimize` (`model`: the
    models that the evaluator asks, by role); each program is evaluated `2 * times - 1` times on up
    to four cases, the first that scores once on every other case; of a data set with more than
    `most_cases`, on that many, evenly spread.
    """
    from culmen.evaluate.backends import make_backend
    from culmen.evaluate.check import check_task
    from culmen.evaluate.function import FunctionBackend
    from culmen.run import assemble
    from culmen.run.forecast import remember_check

    if callable(evaluator):
        task = options.function_task(
            *(seed, cases, "", direction, "the task", None, limits, evaluator),
            keeps_state=keeps_state,
        )
        backend: Any = FunctionBackend(task, evaluator, 1)
    else:
        options.refuse_rules_of_folder(keeps_state=keeps_state)
        task = options.folder_task(evaluator, seed, "")
        backend = make_backend(BackendChoice(), task, 1)
    asking = assemble.with_evaluator_models(task, backend, model)
    report = assemble.run_blocking(check_task(task, asking, times, case_limit=most_cases))
    remember_check(task, report.observations)
    return report


class Study:
    """One run: a folder with a journal.

    `create`, `resume` and `fork` make one that can `run`; `open` one to read.
    """

    def __init__(
        self, path: Path, meta: RunMeta, objects: RunObjects | None, new: bool = False
    ) -> None:
        self.path, self.meta, self._objects, self._new = path, meta, objects, new

    @classmethod
    def create(
        cls,
        task: Task | str | Path,
        strategy: MinimalStrategy | type[MinimalStrategy] | str | None = None,
        *,
        run_dir: str | Path | None = None,
        db: str | None = None,
        **keywords: Unpack[CreateKeywords],
    ) -> Study:
        """A new run, not started yet.

        `run_dir` defaults to runs/NAME-TIME under the current folder. `db` is the URL of a
        PostgreSQL database that keeps the journal instead of the folder
        (`postgresql+psycopg://user@host/database`, with `#name` for a name other than the
        folder's). The other keywords are options of the run (`culmen.core.options.RunOptions`; its
        seed is `random_seed` here) and objects that perform it (`culmen.run.options.RunObjects`);
        `model`, `backend` and `embedder` are a name or an object.
        """
        from culmen.run.plan import plan_run

        chosen, objects = options.read_keywords(keywords, RunOptions(), CreateKeywords)
        return cls.from_plan(plan_run(task, strategy, chosen, objects), run_dir, db)

    @classmethod
    def from_plan(
        cls, plan: RunPlan, run_dir: str | Path | None = None, db: str | None = None
    ) -> Study:
        """A new run of a plan (`culmen.run.plan`), not started yet."""
        from culmen.run.plan import create_run

        path, meta = create_run(plan, run_dir, db)
        return cls(path, meta, msgspec.structs.replace(plan.objects, strategy=plan.strategy), True)

    @classmethod
    def resume(cls, run: str | Path, **keywords: Unpack[ResumeKeywords]) -> Study:
        """An interrupted run, to continue at the end of its journal.

        Objects must be passed again.
        """
        study = cls.open(run)
        given = {name: value for name, value in keywords.items() if value is not None}
        chosen, objects = options.read_keywords(given, study.meta, ResumeKeywords)
        return cls(study.path, chosen, objects)

    @classmethod
    def fork(
        cls,
        run: str | Path,
        run_dir: str | Path | None = None,
        *,
        carry: int = 0,
        db: str | None = None,
        **keywords: Unpack[ForkKeywords],
    ) -> Study:
        """A new run with changed settings that reuses the finished results of `run`, by content.

        It begins with the present evaluator; scores by another version of it are not reused.
        It starts from `carry` of the run's best candidates, too, under another random seed
        (`culmen.run.fork`). The keywords are those of `create`, the strategy among them; the
        rest is the parent's.
        """
        from culmen.run.plan import plan_fork

        parent = cls.open(run)
        chosen, objects = options.read_keywords(keywords, parent.meta.options, ForkKeywords)
        strategy, wanted_seed = keywords.get("strategy"), keywords.get("random_seed")
        plan = plan_fork(parent.path, strategy, chosen, objects, carry, wanted_seed)
        return cls.from_plan(plan, run_dir, db)

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

    def run(self, progress: bool = True) -> str:
        """Search until the budget ends. Returns finished | interrupted.

        Ctrl-C raises KeyboardInterrupt and SIGTERM raises SystemExit once the journal is safe, so
        that loops over studies end, too; the study can be resumed.

        Raises `NothingScored` if no evaluation gave a score; if the initial program gives none,
        before any model is asked (`allow_failing=True` searches all the same). Raises its child
        `NoAnswer` if no answer of a model could be used. Works in scripts
        and, if an asyncio loop already runs, in notebooks. With `progress`, the output of a cell or
        the last lines of a terminal show the progress; elsewhere standard error gets a line now and
        then.
        """
        if self._objects is None:
            raise UserError(
                "this study was opened for reading",
                where=self.path,
                fix="Study.resume(run).run()",
            )
        from culmen.run import assemble

        known: JsonObject = {}
        if self.meta.fork_of:
            from culmen.run import fork

            known = fork.parent_results(self.meta)
        objects, seen = self._objects, nullcontext()
        if progress:
            from culmen.report.watch import Watch, own_display

            watch = Watch(own_display())
            notes = self.meta.task.notes if self._new else ()
            watch.told(f"culmen: the run lies in {self._shown_path()}")
            for note in notes:
                watch.told(f"note: {note}")
            objects, seen = (
                msgspec.structs.replace(objects, observers=(*objects.observers, watch)),
                watch.for_run(self.path),
            )
        try:
            with errors.reraise_user_code_errors(), seen:
                end = assemble.run_blocking(
                    assemble.run_session(self.path, self.meta, objects, known)
                )
        except UserError:
            self._remove_unused()
            raise
        end.raise_signal()
        self._prepare_readings()
        from culmen.report.summary import check_scored

        check_scored(self.path)
        return end.state

    def _prepare_readings(self) -> None:
        """Keep what the story of the run reads, and of a long one what its first pages show."""
        from culmen.core.extensions import all_parts
        from culmen.report.story import keep_way
        from culmen.store import sidecar, views

        events = views.last_seq(self.path)
        if events >= sidecar.TOLD:
            keep_way(self.path)
        if events >= sidecar.EVENTS:
            for prepare in all_parts("readings").values():
                prepare(self.path)

    def _remove_unused(self) -> None:
        """Remove the folder of a new run without an evaluation or a call: it could not begin."""
        from culmen.store import views
        from culmen.store.address import read_pointer

        if (
            self._new
            and read_pointer(self.path) is None
            and not views.log_events(self.path, limit=1, kinds=("started", "done"))
        ):
            shutil.rmtree(self.path)

    def __repr__(self) -> str:
        """The result, a picture and the next command; the folder alone if it cannot be read."""
        try:
            return f"Study({self._shown_path()!r})\n{self._summary_text(with_picture=True)}"
        except CulmenError:
            return f"Study({self._shown_path()!r})"

    def _repr_html_(self) -> str:
        """In a notebook: the result, the best so far as a curve, and the changes."""
        from culmen.report import displays

        try:
            words = f"Study({self._shown_path()!r})\n{self._summary_text()}"
            return displays.run_html(self.path, words)
        except CulmenError:
            return displays.preformatted_html(displays.html.escape(repr(self)))

    def _shown_path(self) -> str:
        """The folder, relative to the working folder if it is below it."""
        with suppress(ValueError, OSError):
            return str(self.path.resolve().relative_to(Path.cwd()))
        return str(self.path)

    def _summary_text(self, with_picture: bool = False) -> str:
        from culmen.report.summary import summarize_run

        return str(summarize_run(self.path, with_picture=with_picture))

    @property
    def status(self) -> RunStatus:
        """State, counts, best, usage: the content of `culmen status`."""
        from culmen.store import views

        return views.run_status(self.path)

    @property
    def forecast(self) -> RunForecast | None:
        """Likely calls, tokens, dollars and seconds of the whole run.

        Before the start from a rehearsal of the search, afterwards corrected by what the run has
        spent. None if no model is asked, or if nothing is known of its strategy.
        """
        if self.meta.asks_no_model and (self._objects is None or self._objects.model is None):
            return None
        from culmen.report.forecast import correct_forecast
        from culmen.run.forecast import forecast_run

        first = forecast_run(self.meta, self._objects)
        return None if first is None else correct_forecast(first, self.path, self.status)

    @property
    def summary(self) -> RunSummary:
        """Result, usage, advice, and problems of the run (`findings`)."""
        from culmen.report.summary import summarize_run

        return summarize_run(self.path)

    @property
    def best(self) -> ReportedCandidate | None:
        """The reported candidate; None without a score."""
        from culmen.report.summary import result_line
        from culmen.store import views

        now = views.run_status(self.path)
        best = now.best
        if best is None:
            return None
        known = {name: getattr(best, name) for name in RunResult.__struct_fields__}
        texts = views.candidate_detail(self.path, best.id, observations=0, children=0).parts
        return ReportedCandidate(**known, parts=texts, result=result_line(self.path, now))

    @property
    def front(self) -> Front | None:
        """The Pareto front of a task with several objectives; None with a single score.

        `members` with their metrics, `hypervolume`, and `choose(weights, limits)` for one of them.
        """
        from culmen.store import views

        return views.pareto_front(self.path)

    def candidates(self, order: Order = "best", limit: int | None = None) -> list[CandidateRow]:
        """Candidates with their statistics, by default best first.

        `id`, `mean` over `count` evaluations, `margin`, `failed`, `operator`, `model`, `parents`,
        ... (`culmen.CandidateRow` explains all).
        """
        from culmen.store import views

        return views.candidate_rows(self.path, order=order, limit=limit)

    def candidate(self, id: str) -> CandidateDetail:
        """One candidate in full: texts (`parts`), statistics (`row`), observations, prompt, reply.

        The first characters of its id suffice; `UserError` if they name none or several.
        """
        from culmen.store import views

        return views.candidate_detail(self.path, id)

    def evaluations(self) -> list[Observation]:
        """Every evaluation in the order of completion.

        `candidate`, `case`, `status`, `score`, `seconds`, `feedback`, `metrics`, ...
        (`culmen.Observation` explains all).
        """
        return list(self.observations())

    def observations(self) -> Iterator[Observation]:
        """Iterator over the evaluations, read one after the other."""
        from culmen.store.journal import SqlJournal

        with SqlJournal.open(self.path, write=False) as journal:
            for event in journal.read(whole=True):
                if event.entry.kind == "done" and isinstance(event.entry.result, Observation):
                    yield event.entry.result

    def plot(self, axes: Any = None, label: str | None = None) -> Any:
        """Plot the best so far against evaluations with matplotlib; returns the axes.

        `axes` are those to draw into, so that several studies share a plot; `label` is the name in
        its legend (default: the run's). Scores are expected scores at that time: where the curve
        gets worse, the best was measured again, and the title says so. Raises `UserError` without
        matplotlib, and for several objectives, where no score is the best.
        """
        from culmen.report.displays import is_fall, worsening_text
        from culmen.store import views

        objective = self.meta.task.objective
        if self.front is not None:
            raise UserError(
                "a run with several objectives has no best score",
                where="Study.plot()",
                fix="plot the members of study.front",
            )
        steps = [(point.evaluations, point.mean) for point in views.progress_points(self.path)]
        steps += [(self.status.evaluations, score) for _, score in steps[-1:]]
        spent, scores = [at for at, _ in steps], [score for _, score in steps]
        axes = _new_axes() if axes is None else axes
        axes.step(spent, scores, where="post", label=label or self.path.name)
        axes.set(xlabel="evaluations", ylabel=f"best so far ({objective.direction})")
        if any(is_fall(objective.direction, *pair) for pair in pairwise(scores)):
            axes.set_title(worsening_text(objective.direction), fontsize="small")
        axes.legend()
        return axes

    def dataframe(
        self, of: Literal["candidates", "evaluations"] = "candidates"
    ) -> pandas.DataFrame:
        """Candidates, best first, or evaluations in their order, as a pandas data frame.

        One row each. Columns are the fields of `culmen.CandidateRow` or `culmen.Observation`; an
        evaluation's metrics are columns of their own, `metrics.NAME`. Raises `UserError` without
        pandas: `candidates()` and `evaluations()` need nothing.
        """
        if of == "candidates":
            return _frame_of_candidates(self.candidates())
        return _frame_of_evaluations(self.evaluations())


# A run as a plot, if matplotlib is installed.


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise errors.missing_extra("a plot", "matplotlib", "plots", "Study.plot()") from None
    return pyplot.subplots(layout="constrained")[1]


# Lists of a run as pandas data frames, if pandas is installed.


def _frame_of_candidates(rows: Sequence[CandidateRow]) -> Any:
    """One row per candidate; the columns are the fields."""
    from culmen.store.views import CandidateRow

    pandas = _import_pandas()
    return pandas.DataFrame(
        [_row_values(row) for row in rows], columns=CandidateRow.__struct_fields__
    )


def _frame_of_evaluations(observations: Sequence[Observation]) -> Any:
    """One row per evaluation; columns are the fields, and `metrics.NAME` for every metric.

    Artifacts are left out.
    """
    pandas = _import_pandas()
    fields = [
        name for name in Observation.__struct_fields__ if name not in ("metrics", "artifacts")
    ]
    rows = [
        {name: value for name, value in _row_values(each).items() if name in fields}
        | {f"metrics.{name}": value for name, value in each.metrics.items()}
        for each in observations
    ]
    named = dict.fromkeys(name for row in rows for name in row if name not in fields)
    return pandas.DataFrame(rows, columns=[*fields, *named])


def _row_values(row: msgspec.Struct) -> JsonObject:
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    return {name: str(value) if name == "status" else value for name, value in values.items()}


def _import_pandas() -> Any:
    try:
        import pandas  # pyright: ignore[reportMissingImports, reportMissingModuleSource]
    except ImportError:
        raise UserError(
            "a data frame needs the package pandas, which is not installed",
            where="Study.dataframe()",
            fix="pip install pandas; or use candidates() and evaluations(), which are plain lists",
        ) from None
    return pandas


__all__ = ["DEFAULT_BUDGET", "ReportedCandidate", "Study", "check", "optimize"]
