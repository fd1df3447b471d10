"""Forms of evaluators that other parts add: how one is read, and how its evaluations run.

culmen's own forms - `call`, `serve` and `command`, each with a function `score` - are read by
`tasks` and run by `LocalBackend`. A form of an extension (slot `evaluator_forms`) has an
evaluator that is given the program itself, as OpenEvolve's `evaluate(path)`; the candidate is then
in the evaluator's process, or the form brings a way to keep the two apart. `form = "NAME"` in
`task.toml` chooses it. The smallest form has only a `backend`, an object as `core.ports.Backend`,
whose optional members may be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from culmen.core.errors import TaskError
from culmen.core.extensions import find_part
from culmen.core.task import OWN_FORMS

if TYPE_CHECKING:
    from culmen.core.candidate import Candidate
    from culmen.core.evaluation import BackendNote, Case, Scoring
    from culmen.core.task import Task
    from culmen.jail.fork_server import Jail
    from culmen.jail.outcome import EvaluationOutcome


class Definition(NamedTuple):
    """A name a module binds at its top level.

    `params` are the arguments a `def` needs, `optional` those with a default; None if no `def`
    is visible.
    """

    name: str
    line: int
    params: tuple[str, ...] | None = None
    optional: tuple[str, ...] = ()


class Module(NamedTuple):
    """The top-level names of a Python text.

    `open` if it also binds names that cannot be seen (import *).
    """

    names: dict[str, Definition]
    open: bool

    def may_define(self, name: str) -> bool:
        """True if the name is bound, or may be."""
        return self.open or name in self.names


class FormHost(Protocol):
    """The backend that a form runs in."""

    task: Task
    workers: int
    scoring: Scoring
    notes: tuple[BackendNote, ...]

    async def healthy_jail(self) -> Jail:
        """The fork-server; replaced if it died. Raises `JailFailed`."""
        ...

    async def evaluate_in_one_process(
        self, candidate: Candidate, case: Case | None, seed: int, slot: int, certify: bool
    ) -> EvaluationOutcome:
        """An evaluation with the evaluator beside the candidate."""
        ...


class FormRunner(Protocol):
    """Evaluations of one task with a form of an extension."""

    async def check(self, jail: Jail) -> None:
        """Load the evaluator inside the jail; raise `TaskError` if it cannot be used."""
        ...

    async def determine_scoring(self, jail: Jail) -> Scoring:
        """The scores' level of trust, tested if it is not known from an earlier session."""
        ...

    async def evaluate_apart(
        self, candidate: Candidate, case: Case | None, seed: int, slot: int
    ) -> EvaluationOutcome:
        """An evaluation with evaluator and candidate apart, for the trust `proxied`."""
        ...


class EvaluatorForm(Protocol):
    """A form of evaluators with its reader and its runner."""

    jail_functions: Mapping[str, str]
    """Addresses of the functions `(channel, request, work)` inside a jail, by the request's form.

    The request of the form's own name evaluates a program beside its evaluator and answers with a
    report: score, metrics, artifacts and feedback (`jail.outcome.of_report`).
    """
    evaluator_requests: Collection[str]
    """Requests that load the evaluator: they get its path and its random seed."""
    jail_modules: tuple[str, ...]
    """Modules that the fork-server imports before it forks children."""
    jail_sources: tuple[str, ...]
    """Packages whose sources a container needs."""
    backend: str
    """Address of a backend that evaluates by itself, made of (task, workers, require).

    "": the jail runs the evaluator, by `new_runner`.
    """

    def contract_of(self, module: Module) -> str | None:
        """The contract that an evaluator's text keeps, "" for the form's own; None for neither."""
        ...

    def check_module(self, module: Module, path: Path) -> None:
        """Raise `TaskError` if the evaluator lacks its function."""
        ...

    def task_from_files(
        self, program: Path | None, evaluator: Path, config: Path | None, goal: str
    ) -> Task:
        """The task of an evaluator's file; raise `TaskError` if it cannot be read."""
        ...

    def new_runner(self, host: FormHost) -> FormRunner:
        """The runner of a backend's evaluations."""
        ...

    def with_agent(self, task: Task, agent: str) -> Task:
        """The task with this agent in its evaluations; asked only of forms with a backend."""
        ...

    # A form whose candidates are tools (`Surface.tools`) has `tools_fault(parts, first, names)`,
    # too: the reason why parts are no variant of the first ones, "" if they are.


def find_form(name: str) -> EvaluatorForm | None:
    """The form of this name that an extension adds; None for culmen's own forms."""
    return None if name in OWN_FORMS or name == "function" else find_part("evaluator_forms", name)


def takes_path(form: str) -> bool:
    """True if an extension's evaluator of this form gets the path of a program inside the jail."""
    added = find_form(form)
    return added is not None and not added.backend


def has_own_backend(task: Task) -> bool:
    """True for rollouts and the like: their evaluator is no file that runs in a jail."""
    added = find_form(task.evaluator.form)
    return added is not None and bool(added.backend)


def loads_evaluator(form: str, request: str) -> bool:
    """True if a request of an evaluator's form loads the evaluator inside the jail."""
    added = find_form(form)
    return added is not None and request in added.evaluator_requests


def require_form(name: str, where: str) -> EvaluatorForm:
    """The form of this name; raise `TaskError` if no installed package adds it."""
    form = find_form(name)
    if form is None:
        raise TaskError(
            f"no installed package runs evaluators of the form {name}",
            where=where,
            fix="write score(output), or reinstall culmen: pip install --force-reinstall culmen",
        )
    return form
