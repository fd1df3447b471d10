"""Request of a person for a run, and its choices, each a value that resolves itself.

    for choice in (TaskChoice(request), BudgetChoice(request), StrategyChoice(request)):
        choice.resolve(draft)

A choice reads what those before it have settled in the draft of a plan, settles its own part, and
raises `UserError` for what can never be a run. What the request leaves open stays as the draft has
it: the task's own defaults in a new run, the options of the parent in a fork.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.options import (
    DEFAULT_STRATEGY,
    STRATEGY_FOR_BANKS,
    BackendChoice,
    BankProgram,
    RunOptions,
    TaskDefaults,
)
from culmen.core.ports import MinimalGateway, MinimalStrategy, Strategy, with_protocol_defaults
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evaluate import backends
from culmen.jail.forms import find_form, require_form
from culmen.run.options import RunObjects, folder_task, read_templates, replace_options
from culmen.run.recheck import deciders_of, proposer_of
from culmen.strategies import catalog

if TYPE_CHECKING:
    from culmen.models.spec import Roles
    from culmen.store.database import RunMeta
    from culmen.strategies.pedigree import Prior


_MOST_WORKERS = 10_000  # evaluations at once: each has a slot in this process


class PlanDraft:
    """A plan in the making: what the choices resolved so far have settled.

    defaults       what the task chooses where a request does not; empty for Python and for a fork
    parent         metadata of the run that a fork begins with
    carried        candidates of the parent that the search starts from
    stop_score     the score at which the search ends
    roles          the models by role; None without any, or if the caller's own world answers
    programs       those of recorded models that the run may ask
    agent_is_used  True if the agent of the request is part of the task's evaluations
    """

    task: Task
    strategy: MinimalStrategy
    versions: dict[str, int]

    def __init__(self, options: RunOptions, objects: RunObjects | None = None) -> None:
        self.options, self.objects = options, objects or RunObjects()
        self.defaults = TaskDefaults()
        self.parent: RunMeta | None = None
        self.carried = 0
        self.stop_score: float | None = None
        self.roles: Roles | None = None
        self.programs: tuple[BankProgram, ...] = ()
        self.agent_is_used = False

    def replace(self, **given: Any) -> None:
        """Replace options; those that are None stay."""
        chosen = {name: value for name, value in given.items() if value is not None}
        self.options = replace_options(self.options, **chosen)


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of a person for one run, as they were written; None is not chosen.

    seed_program, goal, direction, proxy   replace the task's own
    skill, tasks                           a skill and a folder of Harbor tasks, in place of a task
    preset                                 a table of the task's [presets]
    pool, pool_share                       a file of candidates to start from, and the share of the
                                           evaluations that they may use
    settings                               NAME=VALUE of the strategy
    model                                  [ROLE=]MODEL, several
    models                                 file of providers, models and prices
    prior                                  a run of the same task and model, whose noise and steps
                                           are learnt
    carry                                  candidates that a fork begins with

    The others are named as on the command line.
    """

    seed_program: Path | None = None
    skill: Path | None = None
    tasks: Path | None = None
    goal: str | None = None
    direction: str | None = None
    proxy: str | None = None
    preset: str | None = None
    pool: Path | None = None
    pool_share: float = 0.25
    strategy: str | None = None
    settings: Sequence[str] | None = None
    model: Sequence[str] | None = None
    models: Path | None = None
    budget: str | None = None
    seed: int | None = None
    workers: int | None = None
    embedder: str | None = None
    integrity: str | None = None
    stop_at: str | None = None
    prior: Path | None = None
    templates: Path | None = None
    allow_failing: bool = False
    agent: str | None = None
    require: str | None = None
    isolation: str | None = None
    backend: str | None = None
    ray_address: str | None = None
    backend_set: str | None = None
    carry: int | None = None

    def changed_backend(self, usual: BackendChoice | None) -> BackendChoice | None:
        """The usual backend with the changes of the request."""
        return backends.changed_choice(usual, self.backend, self.ray_address, self.backend_set)


class Choice(msgspec.Struct, frozen=True):
    """One choice of a run, as a request makes it; the empty request chooses nothing."""

    request: RunRequest = RunRequest()

    def resolve(self, draft: PlanDraft) -> None:
        """Settle this choice in the draft; raise `UserError` if it cannot be."""
        raise NotImplementedError


class TaskChoice(Choice, frozen=True, kw_only=True):
    """A task, the path of one, or None for one that is made of a skill and Harbor tasks."""

    task: Task | str | Path | None

    def resolve(self, draft: PlanDraft) -> None:
        """Read the task; an agent of its evaluations becomes part of it."""
        agent, task = self.request.agent, self.task
        task = task if isinstance(task, Task) else self._read_task(task)
        form = find_form(task.evaluator.form)
        if form is not None and form.backend and agent is not None:
            task, draft.agent_is_used = form.with_agent(task, agent), True
        draft.task = task

    def task_to_check(self) -> Task:
        """The task as a run would take it; raise `UserError` for an agent without a use."""
        draft = PlanDraft(RunOptions())
        self.resolve(draft)
        if self.request.agent is not None and not draft.agent_is_used:
            raise UserError(
                "evaluations of this task use no agent",
                where=f"--agent {self.request.agent}",
                fix="leave it out; culmen doctor --agent NAME tries an agent that searches",
            )
        return draft.task

    def _read_task(self, path: str | Path | None) -> Task:
        """The task with the changes of the request."""
        asked = self.request
        goal = asked.goal or ""
        if asked.skill is not None and asked.tasks is not None and path is None:
            form = require_form("rollout", "--skill")
            return form.task_from_files(asked.skill, asked.tasks, None, goal)
        if path is None or asked.skill is not None or asked.tasks is not None:
            raise UserError(
                "this needs a task, or both a skill and a folder of tasks",
                fix="name FOLDER, or --skill DIR --tasks DIR --agent NAME, "
                "or write a task to start from: culmen new mytask",
            )
        changes = (asked.seed_program, goal, asked.direction or "", asked.proxy or "")
        return folder_task(path, *changes)


class DefaultsChoice(Choice, frozen=True):
    """The task's own defaults, or those of one of its presets."""

    def resolve(self, draft: PlanDraft) -> None:
        """Take the defaults into the options of a new run."""
        found, preset = draft.task.defaults, self.request.preset
        if preset is not None:
            if preset not in found.presets:
                raise UserError(
                    f"the task has no preset '{preset}'",
                    where="--preset",
                    fix=f"one of {', '.join(found.presets)}"
                    if found.presets
                    else f"write [presets.{preset}] into task.toml: culmen docs tasks",
                )
            found = found.presets[preset]
        draft.defaults = found
        draft.replace(
            model=found.model or None,
            budget=found.budget,
            seed=found.seed,
            workers=found.workers,
            backend=found.backend,
        )


class ForkChoice(Choice, frozen=True, kw_only=True):
    """The run that a new one begins with: its task with today's evaluator, and its results."""

    run: Path

    def resolve(self, draft: PlanDraft) -> None:
        """Take the parent's task, and settle budget, carried candidates and random seed.

        With candidates of the parent, the random seed must be another than its own.
        """
        from culmen.run import fork
        from culmen.store import views
        from culmen.store.address import read_pointer
        from culmen.tasks import with_present_files

        meta, carry, text = views.run_meta(self.run), self.request.carry, self.request.budget
        if text:
            made = views.run_status(self.run).evaluations
            budget, carry = fork.settle_fork_budget(meta, made, text, carry)
            draft.replace(budget=budget)
        draft.parent, draft.task = meta, with_present_files(meta.task)
        # an address means the same run on every machine
        draft.replace(fork_of=str(read_pointer(self.run) or self.run))
        if carry:
            draft.task = fork.with_carried_candidates(draft.task, self.run, carry)
            draft.replace(seed=fork.random_seed(meta, self.request.seed))
            draft.carried = len(draft.task.carried)


class OptionChoice(Choice, frozen=True):
    """Options that need nothing of the task; `models` and `templates` are a file and a folder."""

    def resolve(self, draft: PlanDraft) -> None:
        """Take the options; refuse names of files, levels and embedders that do not exist."""
        asked = self.request
        if asked.models is not None and not asked.models.is_file():
            raise UserError(
                f"there is no models file '{asked.models.resolve()}'",
                where="--models",
                fix="check the path",
            )
        draft.replace(
            models_file=None if asked.models is None else str(asked.models.resolve()),
            seed=asked.seed,
            workers=asked.workers,
            require=asked.require,
            level=asked.isolation,
            embedder=asked.embedder,
            integrity=asked.integrity,
            stop_at=asked.stop_at,
            templates=None if asked.templates is None else read_templates(asked.templates),
            allow_failing=asked.allow_failing or None,
        )
        if draft.options.fork_of and draft.parent is None:
            from culmen.store import views

            views.find_run(draft.options.fork_of)
        for level in (draft.options.require, draft.options.level):
            if level is not None:
                from culmen.jail.probes import level_rank

                level_rank(level)
        if asked.embedder is not None:
            from culmen.models.embed import make_embedder

            make_embedder(asked.embedder, draft.options.models_file)


class BudgetChoice(Choice, frozen=True):
    """The budget of a new run; that of a fork is settled with its parent."""

    def resolve(self, draft: PlanDraft) -> None:
        """Read the budget."""
        text = self.request.budget
        if text is None or draft.parent is not None:
            return
        if "=+" in text:
            raise UserError(
                "a new run has no budget to add to",
                where=f"--budget {text}",
                fix=f"culmen runs fork RUN --budget {text} goes on with a run; for a new one leave "
                "the +",
            )
        draft.replace(budget=Budget.parse(text))


class PoolChoice(Choice, frozen=True):
    """Candidates of a file to start from, and the share of the evaluations for them."""

    def resolve(self, draft: PlanDraft) -> None:
        """Add the pool's candidates to the task, as many as the budget allows."""
        file = self.request.pool
        if file is None:
            return
        from culmen.run import pools

        evaluations = draft.options.budget.evaluations
        most = pools.carried_allowance(draft.task, evaluations, self.request.pool_share)
        draft.task = pools.with_carried_pool(draft.task, pools.load_pool(file), most)
        draft.replace(pool=pools.pool_label(file))


class PlaceChoice(Choice, frozen=True):
    """The machines of the evaluations, and how many are made at once."""

    def resolve(self, draft: PlanDraft) -> None:
        """Settle backend and number of workers; refuse a backend whose extra is not installed."""
        chosen, own = self.request.changed_backend(draft.options.backend), draft.objects.backend
        if chosen is not None:
            backends.require_backend_extra(chosen)
        workers = draft.options.workers or (0 if own is None else own.workers)
        if not 0 <= workers <= _MOST_WORKERS:
            fix = f"at most {_MOST_WORKERS:,}, usually one per core"
            raise UserError(f"the workers of a run cannot be {workers}", where="workers", fix=fix)
        draft.replace(backend=chosen, workers=workers or backends.usual_workers(chosen))


class StopChoice(Choice, frozen=True):
    """The score at which the search ends, as the options have it: a number, or a text."""

    def resolve(self, draft: PlanDraft) -> None:
        """Read the score; `target` is the task's own."""
        draft.stop_score = parse_stop_score(draft.task, draft.options.stop_at)


class ModelChoice(Choice, frozen=True):
    """The models by role: texts of `--model`, else the task's, else those of the models file."""

    def resolve(self, draft: PlanDraft) -> None:
        """Read the models, list recorded programs, and refuse what could not be asked or limited.

        In the caller's own world no model is asked, but programs may be drawn.
        """
        draft.replace(model=self._chosen_text(draft))
        options, objects, task = draft.options, draft.objects, draft.task
        has_world, wanted = objects.world is not None, task.evaluator.options.get("roles")
        asks = not options.asks_no_model or objects.model is not None or bool(wanted)
        if not ("bank:" in str(options.model) if has_world else asks):
            return
        from culmen.models import roles as models

        draft.replace(model=models.with_absolute_banks(options.model))
        found = models.read_roles(objects.model_of(draft.options), options.models_file)
        banks = found.banks() if found else ()
        if banks:
            from culmen.models.bank import list_banks

            draft.programs = list_banks(banks, task)
        if not has_world:
            models.check_models(found, options.budget, draft.programs)
            if not isinstance(objects.model, MinimalGateway):
                models.check_roles(task, found)
        draft.roles = found

    def _chosen_text(self, draft: PlanDraft) -> str | None:
        """The models as one text; None if the options have them already.

        Raises `UserError` for a file with models but without roles: it leaves the model undecided.
        """
        asked = self.request
        if not asked.model and (asked.models is None or draft.parent or draft.defaults.model):
            return None
        from culmen.models.roles import ModelBook, join_model_texts

        if asked.model:  # two for one role are an ensemble of both
            return join_model_texts(asked.model) if len(asked.model) > 1 else asked.model[0]
        book = ModelBook(asked.models)
        found, names = book.roles_text(), book.model_names()
        if not found and names and asked.embedder is None:
            raise UserError(
                "the models file says which models there are, not which to ask",
                where=asked.models,
                fix=f'--model {names[0]}, or a table [roles] with default = "{names[0]}"',
            )
        return found or None


class GivenStrategy(Choice, frozen=True):
    """A strategy as Python gives it: an object, a class without arguments, or a name.

    None is the parent's in a fork, and else the usual one of the models.
    """

    strategy: MinimalStrategy | type[MinimalStrategy] | str | None = None

    def resolve(self, draft: PlanDraft) -> None:
        """Make the strategy, and check it against the rest."""
        given = self.strategy
        if not given and draft.parent is not None:
            old = draft.parent.strategy
            given = catalog.revive_object(old["path"], old["config"])
        given = given or usual_strategy(draft.roles)
        settle_strategy(draft, catalog.make_strategy(given) if isinstance(given, str) else given)


class StrategyChoice(Choice, frozen=True):
    """The strategy that a request names, with settings, an agent and what an earlier run learnt."""

    def resolve(self, draft: PlanDraft) -> None:
        """Make the strategy, and check it against the rest."""
        asked = self.request
        agent = None if draft.agent_is_used else asked.agent
        settings, offline = parse_settings(asked.settings), draft.options.searches_offline
        if draft.parent is None:
            settle_strategy(draft, self._new_strategy(draft, settings, agent))
            return
        old, name = draft.parent.strategy, asked.strategy
        if name or agent:
            settings = catalog.with_agent(name or old["path"], agent, settings, offline)
        if name:
            settle_strategy(draft, catalog.make_strategy(name, settings))
            return
        made = catalog.revive_object(old["path"], old["config"])
        if settings:
            new = catalog.make_strategy(old["path"], settings)
            fields = {name.strip().replace("-", "_") for name in settings}
            made = dataclasses.replace(made, **{name: getattr(new, name) for name in fields})
        settle_strategy(draft, made)

    def _new_strategy(
        self, draft: PlanDraft, settings: dict[str, str], agent: str | None
    ) -> MinimalStrategy:
        """The strategy of a new run: the one named, the task's, or culmen's for the models."""
        asked, usual = self.request, draft.defaults.strategy
        if not usual:  # what an earlier run learnt is of use to the default alone
            usual = DEFAULT_STRATEGY if asked.prior else usual_strategy(draft.roles)
        name = asked.strategy or (catalog.WITH_AGENTS if agent else usual)
        own = draft.defaults.settings if name == usual else {}
        settings = {**draft.defaults.settings_of.get(name, {}), **own, **settings}
        settings = catalog.with_agent(name, agent, settings, draft.options.searches_offline)
        prior = None if asked.prior is None else _learnt_prior(name, asked.prior, draft)
        strategy: Any = catalog.make_strategy(name, settings)
        return strategy if prior is None else dataclasses.replace(strategy, prior=prior)


def settle_strategy(draft: PlanDraft, strategy: object) -> None:
    """Take a strategy into the draft; refuse one that cannot work with its models and task."""
    made, stop_at = catalog.ending_at(catalog.strategy_object(strategy), draft.stop_score)
    draft.strategy = made
    options = draft.options = msgspec.structs.replace(draft.options, stop_at=stop_at)
    objects, task = draft.objects, draft.task
    deciders = deciders_of(made, proposer_of(options, objects))
    draft.versions = {name: part.version for name, part in deciders.items()}
    has_own_model = objects.model is not None or objects.world is not None
    catalog.check_agents(made, options.searches_offline and not has_own_model)
    writes = with_protocol_defaults(Strategy, made).writes
    if (
        not task.starting_candidates()
        and options.searches_offline
        and objects.proposer is None
        and not writes
    ):
        uses = ", ".join(task.evaluator.options.get("uses", ()))
        raise UserError(
            "a task without an initial program needs a model to write the first candidate",
            where=f"task {task.name}",
            fix=f"give an initial program{f' that defines {uses}' if uses else ''} with "
            "--seed-program FILE, or choose a model with --model NAME, or an agent with "
            "--agent NAME",
        )


def usual_strategy(roles: Roles | None) -> str:
    """The name of the strategy of a run that names none; `roles` are its models.

    Programs from a bank alone are independent drafts, which nothing improves.
    """
    members = roles.members("proposer") if roles else ()
    drafts = bool(members) and all(member.model.bank is not None for member in members)
    return STRATEGY_FOR_BANKS if drafts else DEFAULT_STRATEGY


def parse_settings(settings: Sequence[str] | None) -> dict[str, str]:
    """Settings of a strategy, written NAME=VALUE."""
    pairs: dict[str, str] = {}
    for text in settings or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UserError(
                f"cannot read the setting '{text}'",
                where=f"--set {text}",
                fix="write --set NAME=VALUE",
            )
        pairs[name.strip()] = value.strip()
    return pairs


def parse_stop_score(task: Task, wanted: float | str | None) -> float | None:
    """The score at which a search is to end; `target` is the task's own.

    Raises UserError for any other word.
    """
    if wanted is None:
        return None
    wanted = str(wanted)
    if wanted.strip().lower() == "target":
        if task.objective.target is None:
            raise UserError(
                "this task declares no target",
                where="--stop-at target",
                fix="write --stop-at SCORE",
            )
        return task.objective.target
    if wanted.strip().lower() in ("none", "off"):
        return None
    try:
        score = float(wanted)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        fix = "write a number, target for the task's own, or none"
        raise UserError(f"'{wanted}' is not a score", where="--stop-at", fix=fix)
    return score


def _learnt_prior(name: str, run: Path, draft: PlanDraft) -> Prior:
    """The noise and steps learnt by a run, as a prior for the strategy."""
    from culmen.store import views
    from culmen.strategies.pedigree import PedigreeSearch, Prior

    where = f"--set prior={run}"
    if not issubclass(catalog.strategy_class(name), PedigreeSearch):
        raise UserError(
            "only the strategy pedigree takes a prior",
            where=where,
            fix="leave out --set prior or --strategy",
        )
    about, law = views.run_meta(run), views.step_law(run)
    if about.task.digest != draft.task.digest or about.model_name != str(draft.options.model):
        raise UserError(
            "that run is of another task or model, so its steps say nothing of this one's",
            where=where,
            fix="name a run of the same task with the same --model",
        )
    if law is None:
        raise UserError(
            "that run has no scores to learn from",
            where=where,
            fix="name a run that scored something",
        )
    return Prior(*law)


def session_keywords(meta: RunMeta, request: RunRequest) -> JsonObject:
    """Keywords of `Study.resume` for a session in another place than the run's."""
    backend = request.changed_backend(meta.backend)
    if backend is not None and backend != meta.backend:
        backends.require_backend_extra(backend)
    level = {} if request.isolation is None else {"isolation": request.isolation}
    return {"require": request.require, **level} | (
        {} if backend == meta.backend else {"backend": backend}
    )
