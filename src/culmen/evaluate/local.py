"""Local evaluation: a jailed fork-server for candidates, separate scorers as judges."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from culmen.core.asking import AskingFailed
from culmen.core.brief import refused_budget
from culmen.core.candidate import Candidate
from culmen.core.errors import IsolationError, TaskError
from culmen.core.evaluation import (
    BackendNote,
    Case,
    Observation,
    Scoring,
    Status,
    mark_files,
    meets_trust_level,
)
from culmen.core.json import JsonObject
from culmen.core.task import Task
from culmen.evaluate.integrity.guard import EvaluatorSeal
from culmen.jail import outcome, probes, spoken, wire
from culmen.jail import probes as levels
from culmen.jail.evaluation import BUILD, JailedEvaluation
from culmen.jail.fork_server import SEARCH_PATH, Jail, JailFailed
from culmen.jail.forms import find_form
from culmen.jail.outcome import EvaluationOutcome
from culmen.jail.scorer import PROGRAM
from culmen.jail.scorer_pool import ScorerFailed, ScorerPool


class LocalBackend:
    """Evaluates candidates of `task`, up to `workers` at once.

    `require` is the weakest isolation level accepted (see `levels`); `level`, if given, is the only
    level used. `scoring` is the scores' level of trust and its reason: set by `start`, or by an
    earlier session.
    """

    attempts = 1  # `evaluate` repeats by itself
    notes: tuple[BackendNote, ...] = ()

    def __init__(
        self,
        task: Task,
        workers: int,
        require: str | None = None,
        *,
        level: str | None = None,
        scoring: Scoring | None = None,
    ) -> None:
        self.scoring = scoring or Scoring()
        self._seal = EvaluatorSeal(task.evaluator)
        self.task, self.workers, self.require = task, max(1, workers), require
        self._wanted = (
            tuple(levels.tried_levels(task.evaluator.image)) if level is None else (level,)
        )
        self._form = find_form(task.evaluator.form)
        self._metric = spoken.require_metric(task.evaluator) if task.evaluator.metric else None
        self._runner = None if self._form is None else self._form.new_runner(self)
        self._runs_program = not (task.evaluator.form == "call" and not task.evaluator.entry)
        self._judges = ScorerPool(task.evaluator, task.limits, several=bool(task.objective.metrics))
        self._verifiers = ScorerPool(task.evaluator, task.limits, task.evaluator.verifier)
        self._builds = CandidateBuilds(task, self._judges) if task.evaluator.build else None
        self._jail: Jail | None = None
        self._old_jails: list[Jail] = []  # that evaluations in flight may still need
        self._slots = list(reversed(range(self.workers)))
        self._free = asyncio.Semaphore(self.workers)
        self._mending = asyncio.Lock()

    async def start(self) -> str:
        """Load the evaluator and start the fork-server; return the isolation level in force.

        Raises TaskError (evaluator or packages cannot be loaded, or the evaluator differs from the
        task's record) and IsolationError (level below `require`).
        """
        self._seal.require_unchanged()
        try:
            if self._runner is None:
                await self._judges.start()
            if self.task.evaluator.verifier:
                await self._verifiers.start()
            if not self._runs_program:
                return self._start_without_jail()
            if self._builds is not None:
                require_compiler(self.task, self._wanted)
            why = await self._start_strongest_jail()
            assert self._jail is not None
            levels.require_level(self._jail.level, self.require, why)
            if self._runner is not None:
                await self._runner.check(self._jail)
            self.scoring = await self._determine_scoring()
            return self._jail.level
        except BaseException:
            await self.close()
            raise

    def _start_without_jail(self) -> str:
        """The level for a judge that runs the candidate itself, or needs no program to run."""
        judge = spoken.judge_type(self.task.evaluator.program)
        self.scoring = Scoring("verified") if judge is None else judge.scoring
        level = levels.LEVELS[0] if judge is None else judge.level
        levels.require_level(
            level, self.require, {"namespaces": "the task brings a container of its own"}
        )
        return level

    async def _start_strongest_jail(self) -> dict[str, str]:
        """Start the strongest jail that works; return the reason that each stronger one failed."""
        why: dict[str, str] = {}
        for level in self._wanted:
            jail = self._new_jail(level)
            try:
                await jail.start()
                await probes.verify_jail(jail)
            except JailFailed as error:
                why[level] = str(error)
                await jail.close()
                continue
            except BaseException:
                await jail.close()
                raise
            self._jail = jail
            return why
        reasons = "; ".join(f"{name}: {text}" for name, text in why.items())
        alone = self._wanted[0] if len(self._wanted) == 1 else ""
        raise IsolationError(
            f"no jail of level {alone} can be started" if alone else "no jail can be started",
            where=reasons,
            fix=levels.FIX if alone != "container" else "culmen doctor --image IMAGE tries it",
        )

    async def _determine_scoring(self) -> Scoring:
        """The scores' level of trust."""
        assert self._jail is not None
        if (
            self._jail.level == "container"
            and self._runner is not None
            and self._jail.inner != "restricted"
        ):
            return Scoring(
                "self-reported",
                "the container's kernel cannot keep evaluator and program apart (Landlock)",
            )
        if not levels.separates_processes(self._jail.level):
            return Scoring(
                "self-reported", f"isolation level {self._jail.level} does not keep processes apart"
            )
        if self._runner is None:
            return Scoring("verified")
        return await self._runner.determine_scoring(self._jail)

    def _new_jail(self, level: str) -> Jail:
        evaluator = self.task.evaluator
        visible = tuple(evaluator.options.get("readable", ()))
        shut = (os.path.dirname(evaluator.path),) if self._form is not None else ()
        modules = () if self._form is None else self._form.jail_modules
        sources = () if self._form is None else self._form.jail_sources
        if self._metric is not None:
            modules, sources = self._metric.jail_modules, self._metric.jail_sources
        if level == "container":
            return spoken.container_level().ContainerJail(
                evaluator.image,
                self.task.limits,
                self.workers,
                (*evaluator.packages, *modules),
                evaluator.optional_packages,
                visible,
                shut,
                sources,
            )
        there = (name for name in evaluator.optional_packages if find_spec(name.partition(".")[0]))
        return levels.plain_jail(level, (*evaluator.packages, *there, *modules), visible, shut)

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, *, certify: bool = False
    ) -> Observation:
        """One evaluation; every failure is a status, and a lost evaluation is repeated once.

        Raises EvaluatorChanged if a file of the evaluator changed.
        """
        async with self._free:
            slot = self._slots.pop()
            try:
                with self._seal.watch_evaluation() as written:
                    verdict = await self._attempt_evaluation(candidate, case, seed, slot, certify)
                    if verdict.status is Status.LOST and not refused_budget(verdict.reason):
                        verdict = await self._attempt_evaluation(
                            candidate, case, seed, slot, certify
                        )
            finally:
                self._slots.append(slot)
        return Observation(
            candidate=candidate.id,
            case=case.id if case else "",
            status=verdict.status,
            score=verdict.score,
            reason=verdict.reason,
            metrics=verdict.metrics,
            feedback=verdict.feedback,
            seconds=verdict.seconds,
            seed=seed,
            evaluator=self.task.evaluator.digest,
            trust=self._trust_level(verdict),
            artifacts=verdict.artifacts,
            certified=verdict.certified,
            strict=verdict.strict,
            culprit=outcome.certain_culprit(verdict, self.task.evaluator, candidate),
            drew=verdict.drew,
            left=(*verdict.left, *mark_files(written)),
            refusal=verdict.refusal,
        )

    def _trust_level(self, verdict: EvaluationOutcome) -> str:
        vouched = verdict.certified is not None and meets_trust_level(
            self.scoring.trust, "verified"
        )
        return "certified" if vouched else self.scoring.trust

    async def _attempt_evaluation(
        self, candidate: Candidate, case: Case | None, seed: int, slot: int, certify: bool
    ) -> EvaluationOutcome:
        if not self._runs_program:
            started = time.monotonic()
            verdict = await self._judge_output(candidate, case, seed, 0.0, None, certify)
            return replace(verdict, seconds=time.monotonic() - started)
        if self.scoring.trust == "proxied" and self._runner is not None:
            return await self._runner.evaluate_apart(candidate, case, seed, slot)
        return await self.evaluate_in_one_process(candidate, case, seed, slot, certify)

    async def evaluate_in_one_process(
        self, candidate: Candidate, case: Case | None, seed: int, slot: int, certify: bool
    ) -> EvaluationOutcome:
        """The candidate, with the evaluator beside it in the form legacy, in one jailed process."""
        try:
            jail = await self.healthy_jail()
        except JailFailed as error:
            return outcome.lost_outcome("zygote_died", str(error))
        built: Built = {}
        if self._builds is not None:
            built = await self._builds.files_of(jail, candidate, seed, slot)
        if isinstance(built, EvaluationOutcome):
            return built
        kind = JailedEvaluation if self._metric is None else self._metric.evaluation
        with kind(self.task, jail, candidate, case, seed, built=built) as run:
            result = await run.perform(slot, self._judges)
        if isinstance(result, bytes):
            result = await self._judge_output(candidate, case, seed, run.seconds, result, certify)
        if run.has_drawn:
            result = replace(result, drew=(*result.drew, PROGRAM))
        return replace(result, seconds=run.seconds).with_log(run.printed)

    async def healthy_jail(self) -> Jail:
        """The fork-server; replaced if it died."""
        async with self._mending:
            assert self._jail is not None, "start() first"
            if not self._jail.is_alive:
                level = self._jail.level
                await self._jail.close()
                environment = self._jail.environment
                self._jail = self._new_jail(level)
                self._jail.environment = environment
                await self._jail.start()
            return self._jail

    async def _judge_output(
        self,
        candidate: Candidate,
        case: Case | None,
        seed: int,
        seconds: float,
        output: bytes | None,
        certify: bool = False,
    ) -> EvaluationOutcome:
        question: JsonObject = {
            "case": case,
            "parts": candidate.parts,
            "seed": seed,
            "seconds": seconds,
        }
        try:
            answer = await self._judges.ask(**question, output=output)
        except ScorerFailed as error:
            return outcome.of_failed_scorer(error)
        except AskingFailed as error:
            return outcome.lost_outcome(error.reason, str(error))
        verdict = outcome.of_answer(answer, self.task.objective)
        if not certify or verdict.status is not Status.OK or not self.task.evaluator.verifier:
            return verdict
        try:
            answer = await self._verifiers.ask(**question, output=output)
        except AskingFailed as error:
            return outcome.lost_outcome(error.reason, str(error))
        except ScorerFailed:
            # the candidate may cause a slow verification: not lost, but not verified either
            answer = {"kind": "raised", "feedback": "the verifier did not answer in time"}
        return outcome.with_certificate(verdict, answer, self.task.objective)

    async def renew(self) -> None:
        """Evaluate from now on in fresh processes, unless the evaluator keeps state.

        Each evaluation of a candidate has a new process anyway.
        """
        if not self.task.evaluator.keeps_state:
            await self.vary_processes(1)  # a hash seed; that of the search is 0

    async def vary_processes(self, hash_seed: int) -> tuple[str, ...]:
        """Replace scorers and fork-server by new ones; evaluations in flight end in the old ones.

        A container's fork-server stays.
        """
        self._judges.hash_seed = self._verifiers.hash_seed = hash_seed
        await self._judges.retire_scorers()
        await self._verifiers.retire_scorers()
        async with self._mending:
            old = self._jail
            if old is not None and old.level != "container":
                jail = self._new_jail(old.level)
                jail.environment = {**jail.environment, "PYTHONHASHSEED": str(hash_seed)}
                await jail.start()
                self._jail = jail
                self._old_jails.append(old)
        return "process", "hash seed"

    async def close(self) -> None:
        """End every process and remove every file of this backend."""
        jails = [*self._old_jails, self._jail]
        self._old_jails, self._jail = [], None
        for jail in filter(None, jails):
            await jail.close()
        await self._judges.close()
        await self._verifiers.close()


# Compiled candidates: `[evaluator] build`, run once a candidate in the jail.

KEPT = 32  # candidates whose built files are kept in memory

DEBIAN_PACKAGES = {
    "g++": "g++",
    "gcc": "gcc",
    "cc": "gcc",
    "clang": "clang",
    "clang++": "clang",
    "rustc": "rustc",
    "go": "golang-go",
    "node": "nodejs",
}
"""Packages of Debian by the program that they bring."""

Built = Mapping[str, bytes] | EvaluationOutcome
"""Built files by name, or the outcome of a candidate that does not compile."""


def require_compiler(task: Task, levels: Sequence[str]) -> None:
    """Raise `TaskError` if a program that the task runs is not where candidates may use it.

    A container brings its own.
    """
    if tuple(levels) == ("container",):
        return
    words = (task.evaluator.build[0], *task.evaluator.command[:1])
    for word in words:
        if "/" in word or "{" in word or shutil.which(word, path=SEARCH_PATH):
            continue
        package = DEBIAN_PACKAGES.get(word)
        raise TaskError(
            f"the program '{word}' that candidates need is not installed in {SEARCH_PATH}",
            where=str(Path(task.root or ".") / "task.toml"),
            fix=f"apt install {package}" if package else f"install {word}, or correct build",
        )


class CandidateBuilds:
    """Builds each candidate once, whatever the number of its evaluations; keeps the latest."""

    def __init__(self, task: Task, judges: ScorerPool) -> None:
        self._task, self._judges = task, judges
        self._built: OrderedDict[str, Mapping[str, bytes] | EvaluationOutcome] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def files_of(self, jail: Jail, candidate: Candidate, seed: int, slot: int) -> Built:
        """The candidate's built files."""
        lock = self._locks.setdefault(candidate.digest, asyncio.Lock())
        async with lock:
            built = self._built.get(candidate.digest)
            if built is None:
                built = await self._build(jail, candidate, seed, slot)
                if not (isinstance(built, EvaluationOutcome) and built.status is Status.LOST):
                    self._built[candidate.digest] = built
            else:
                self._built.move_to_end(candidate.digest)
            while len(self._built) > KEPT:
                self._built.popitem(last=False)
        self._locks.pop(candidate.digest, None)
        return built

    async def _build(self, jail: Jail, candidate: Candidate, seed: int, slot: int) -> Built:
        with JailedEvaluation(self._task, jail, candidate, None, seed, BUILD) as run:
            result = await run.perform(slot, self._judges)
        if isinstance(result, EvaluationOutcome):
            said = "" if result.reason == "build" else "while it was compiled: "
            return replace(result, feedback=f"{said}{result.feedback}", seconds=run.seconds)
        try:
            files = wire.decode(result)
        except wire.WireError:
            return EvaluationOutcome(Status.REJECTED, "bad_frame", feedback="an invalid build")
        return files
