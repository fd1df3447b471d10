"""The form `legacy`: evaluators with `evaluate(path)`, and those of ShinkaEvolve.

A backend tries before a search whether the evaluator works with the candidate behind a proxy
(`proxied.scoring_from_trial`); else both share one process, and scores are self-reported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import BackendNote, Case, Scoring
from culmen.core.json import JsonObject
from culmen.core.packages import install_hint
from culmen.core.task import Task
from culmen.extensions.compat import shinka
from culmen.extensions.compat.openevolve import folder, proxied
from culmen.extensions.compat.openevolve.proxied import ProxiedEvaluation, is_python_program
from culmen.extensions.compat.openevolve.proxy.session import CONSTRUCTORS
from culmen.jail import outcome, scorer_pool, wire
from culmen.jail.evaluation import JailedEvaluation
from culmen.jail.fork_server import Jail, JailFailed
from culmen.jail.forms import FormHost
from culmen.jail.outcome import EvaluationOutcome
from culmen.tasks import reading

_PROCESSES = "culmen.extensions.compat.openevolve.evaluator_process"
_CANDIDATE = "culmen.extensions.compat.openevolve.proxy.candidate_process"


@dataclass(frozen=True)
class LegacyForm:
    """Reader of evaluators with `evaluate(path)`, and maker of their runners."""

    jail_functions: ClassVar[Mapping[str, str]] = {
        "legacy": f"{_PROCESSES}:run_legacy",
        "proxied": f"{_PROCESSES}:run_proxied",
        "check": f"{_PROCESSES}:run_check",
        "host": f"{_CANDIDATE}:run_host",
    }
    evaluator_requests: ClassVar[tuple[str, ...]] = ("legacy", "proxied", "check")
    jail_modules: ClassVar[tuple[str, ...]] = (_PROCESSES, _CANDIDATE)
    jail_sources: ClassVar[tuple[str, ...]] = ("culmen.extensions.compat",)
    backend: ClassVar[str] = ""

    def contract_of(self, module: reading.Module) -> str | None:
        """The contract `shinka`, "" for `evaluate(path)`, None for neither."""
        return shinka.detect_contract(module) or ("" if module.may_define("evaluate") else None)

    def check_module(self, module: reading.Module, path: Path) -> None:
        """Raise `TaskError` if the evaluator lacks its function."""
        if not shinka.detect_contract(module):
            reading.require_function(module, "evaluate", path, "define evaluate(program_path)")

    def task_from_files(
        self, program: Path | None, evaluator: Path, config: Path | None, goal: str
    ) -> Task:
        """The task of an evaluator's file; raise `TaskError` if it cannot be read."""
        return folder.task_from_files(program, evaluator, config, goal)

    def with_agent(self, task: Task, agent: str) -> Task:
        """The task unchanged: no agent takes part."""
        return task

    def new_runner(self, host: FormHost) -> LegacyRunner:
        """The runner of a backend's evaluations."""
        return LegacyRunner(host)


LEGACY = LegacyForm()


class LegacyRunner:
    """Evaluations with `evaluate(path)` in the jails of a backend."""

    def __init__(self, host: FormHost) -> None:
        self._host, self._task = host, host.task

    async def check(self, jail: Jail) -> None:
        """Load the evaluator inside the jail, the only place where it ever runs."""
        judges = scorer_pool.ScorerPool(self._task.evaluator, self._task.limits)
        with JailedEvaluation(self._task, jail, Candidate.of({}), None, 0, form="check") as run:
            result = await run.perform(0, judges)
        if not isinstance(result, bytes):
            raise TaskError(
                f"the evaluator cannot be used: {result.feedback.strip() or result.reason}",
                where=self._task.evaluator.path,
                fix=install_hint(result.feedback)
                or "make the file importable and let it define evaluate(path)",
            )
        own = wire.decode(result)
        if own:
            what = (
                f"{', '.join(own)} made by the evaluator's import hold in every evaluation; "
                "OpenEvolve evaluates in threads, which do not have them"
            )
            self._host.notes = (BackendNote(what),)

    async def determine_scoring(self, jail: Jail) -> Scoring:
        """The scores' level of trust, from a trial with the initial programs."""
        evaluator, known = self._task.evaluator, self._host.scoring
        why = self._reason_against_proxy()
        if why or known.trust:
            return Scoring("self-reported", why) if why else known
        accept = tuple(evaluator.options.get("accept", ()))
        seeds = self._task.initial_candidates()
        if not seeds:
            return Scoring("proxied", accept=(*accept, CONSTRUCTORS))
        scoring = await proxied.scoring_from_trial(
            seeds,
            accept,
            lambda seed, number: self._evaluate_proxied(seed, None, number, 0, learn=True),
            lambda seed, number: self._host.evaluate_in_one_process(seed, None, number, 0, False),
        )
        if evaluator.proxy == "always" and scoring.trust != "proxied":
            raise TaskError(
                f"the evaluator does not work behind a proxy: {scoring.why}",
                where=evaluator.path,
                fix=(
                    'set [evaluator] proxy = "auto" (its scores are then self-reported), or write '
                    "score(output)"
                ),
            )
        return scoring

    def _reason_against_proxy(self) -> str:
        """The reason that no proxy is tried, "" if one is."""
        evaluator = self._task.evaluator
        if evaluator.proxy == "never":
            return 'the task sets proxy = "never"'
        if not is_python_program(self._task):
            return (
                f"the program is not a Python module but a {evaluator.suffix or 'text'} file, "
                "which the evaluator reads"
            )
        folder_of_evaluator = os.path.dirname(evaluator.path)
        return "the evaluator is in the root folder" if folder_of_evaluator == "/" else ""

    async def evaluate_apart(
        self, candidate: Candidate, case: Case | None, seed: int, slot: int
    ) -> EvaluationOutcome:
        """An evaluation with evaluator and candidate in two jailed processes."""
        return (await self._evaluate_proxied(candidate, case, seed, slot))[0]

    async def _evaluate_proxied(
        self, candidate: Candidate, case: Case | None, seed: int, slot: int, *, learn: bool = False
    ) -> tuple[EvaluationOutcome, JsonObject]:
        """The outcome, and the log of values that crossed the proxy."""
        try:
            jail = await self._host.healthy_jail()
        except JailFailed as error:
            return outcome.lost_outcome("zygote_died", str(error)), {}
        with ProxiedEvaluation(
            self._task, jail, candidate, case, seed, self._host.scoring.accept, learn
        ) as pair:
            verdict = await pair.perform((slot, slot + self._host.workers))
        return replace(verdict, seconds=pair.seconds).with_log(pair.printed), pair.account
