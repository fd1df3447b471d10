"""The battery: runs every attack against one program's evaluator, and reads the results."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from msgspec.structs import replace

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.core.task import Objective, Task
from culmen.extensions.audit import locate, sandbox, tolerance
from culmen.extensions.audit.attack import (
    Attack,
    AttackOutcome,
    AttackTry,
    AuditReport,
    HonestResult,
    Result,
    all_attacks,
)
from culmen.extensions.audit.outputs import reported_facts
from culmen.extensions.audit.sandbox import Baseline, Make, SandboxCopy, attack_try
from culmen.extensions.audit.tightened import TightenedEvaluator
from culmen.extensions.audit.tolerance import ToleranceProbe
from culmen.jail import procfs

TIGHTENED, CHECKS = "tightened", 3  # name of the outcome of `_tightened`, and its evaluations
_PATIENCE = 3.0  # seconds for the kernel to remove the processes of an evaluation
Tell = Callable[[str], None]


async def audit(
    task: Task,
    make: Make,
    *,
    parts: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
    seconds: float = 300.0,
    tell: Tell | None = None,
) -> AuditReport:
    """Attack a task's evaluator with programs made from its first initial program.

    `parts` replaces that program. `make` builds a backend for a copy of this task; `only` names
    attacks; no attack begins after `seconds`. Raises `UserError` if there is no program, or if it
    does not score.
    """
    text = dict(parts or (task.seeds[0] if task.seeds else {}))
    if not text:
        raise UserError(
            "the audit needs a program that works",
            where=f"task {task.name}",
            fix="give one: --program FILE",
        )
    known = [attack.name for attack in all_attacks().values() if not attack.internal] + [
        "tolerance",
        TIGHTENED,
    ]
    for name in only:
        if name not in known:
            raise UserError(
                f"there is no attack '{name}'",
                where="--only",
                fix=f"use some of {', '.join(sorted(known))}",
            )
    sandbox_copy = SandboxCopy(task, text, make)
    try:
        return await AttackBattery(sandbox_copy, only, seconds, tell or (lambda _: None)).run()
    finally:
        await sandbox_copy.close()


class AttackBattery:
    """One audit in progress."""

    def __init__(
        self, sandbox_copy: SandboxCopy, only: Sequence[str], seconds: float, tell: Tell
    ) -> None:
        self.sandbox, self.only, self.tell = sandbox_copy, only, tell
        self._begun = time.monotonic()
        self._until = self._begun + seconds
        self._baseline: Baseline | None = None
        self.blocks: list[tuple[list[int], bool]] | None = None

    async def run(self) -> AuditReport:
        """Run the audit."""
        task = self.sandbox.task
        isolation = await self.sandbox.start()
        self.tell("the unchanged program")
        honest, observations = await sandbox.measure_honest(self.sandbox)
        if honest.score is None:
            raise UserError(
                f"the program does not score: {honest.failure.strip()}",
                where=f"task {task.name}",
                fix="culmen check TASK",
            )
        scores = [
            observation.score for observation in observations if observation.score is not None
        ]
        self._baseline = Baseline(task.objective, honest, scores)
        outcomes = [_determinism_outcome(honest, task)] if not self.only else []
        if self._may_tighten():
            outcomes.append(await self._tightened_outcome(observations[0]))
        await self.sandbox.limit_seconds(
            sandbox.attack_seconds(max(each.seconds for each in observations))
        )
        if self.sandbox.part:
            self.blocks = await sandbox.output_shape(self.sandbox)
        for attack in self._wanted_attacks():
            outcomes.append(await self._attack_outcome(attack))
        return AuditReport(
            task=task.name,
            form=task.evaluator.form,
            direction=task.objective.direction,
            trust=observations[0].trust,
            isolation=isolation,
            honest=honest,
            outcomes=tuple(outcomes),
            evaluations=self.sandbox.evaluations,
            seconds=time.monotonic() - self._begun,
            notes=tuple(self._report_notes()),
            doubts=tuple(_held_doubts(honest, task.objective)),
        )

    @property
    def baseline(self) -> Baseline:
        """The honest result, which `run` measures before the attacks."""
        if self._baseline is None:
            raise ValueError("the honest program has not been measured")
        return self._baseline

    def _may_tighten(self) -> bool:
        """True if the evaluator has a tolerance and no verifier, and there is time."""
        wanted = not self.only or TIGHTENED in self.only
        applicable = (
            locate.evaluator_lines("tolerance", self.sandbox.evaluators)
            and not self.sandbox.task.evaluator.verifier
        )
        return bool(wanted and applicable and time.monotonic() < self._until)

    async def _tightened_outcome(self, observation: Observation) -> AttackOutcome:
        """Outcome of the program under the evaluator with smaller tolerances."""
        self.tell("its tolerances reduced")
        check = TightenedEvaluator(self.sandbox.original, self.sandbox.make)
        try:
            program = Candidate.of(self.sandbox.parts)
            checked = await check.check(
                program, self.sandbox.case, observation.seed, observation, CHECKS
            )
        finally:
            await check.close()
        self.sandbox.evaluations += checked.usage.evaluations - observation.usage.evaluations
        word, _, text = checked.artifacts.get(
            "tolerance", "not checked: it has no score"
        ).partition(": ")
        results: dict[str, Result] = {"used": "gamed", "doubtful": "look", "not checked": "skipped"}
        lines = (
            locate.evaluator_lines("tolerance", self.sandbox.evaluators)
            if word in ("used", "doubtful")
            else ()
        )
        return AttackOutcome(
            TIGHTENED,
            "Its own tolerances reduced",
            results.get(word, "held"),
            text,
            honest=self.baseline.best,
            shows="A program whose score rests on a tolerance loses it once that is smaller.",
            fix=tolerance.FIX,
            places=lines,
        )

    def _wanted_attacks(self) -> list[Attack]:
        attacks = all_attacks()
        probe = Attack(
            "tolerance", "", "Pushed into the tolerance", needs="fractions", cause="tolerance"
        )
        listed = [probe, *(attack for attack in attacks.values() if not attack.internal)]
        return [attack for attack in listed if not self.only or attack.name in self.only]

    def _report_notes(self) -> list[str]:
        notes = [f"files were not attacked: {self.sandbox.missing}"] if self.sandbox.missing else []
        if self.sandbox.part and self.blocks is None:
            notes.append("the program's output could not be observed: its shape was guessed")
        return notes

    async def _attack_outcome(self, attack: Attack) -> AttackOutcome:
        why = self._inapplicable_reason(attack)
        if not why and time.monotonic() > self._until:
            why = "left out: time limit reached (--seconds)"
        if why:
            return AttackOutcome(
                attack.name,
                attack.title,
                "skipped",
                evidence=why,
                shows=attack.shows,
                fix=attack.fix,
            )
        self.tell(attack.title.lower())
        before = self.sandbox.copied_file_states()
        if attack.name == "tolerance":
            outcome = await ToleranceProbe(
                self.sandbox, self.baseline, self.blocks, self._until
            ).probe_outcome()
        else:
            outcome = await (
                self._effect_outcome(attack) if attack.effect else self._score_outcome(attack)
            )
        changed = self.sandbox.revert_changes(before)
        if changed and outcome.result in ("held", "look"):
            text = f"changed {', '.join(changed)} in the evaluator's folder"
            return replace(outcome, result="effect", evidence=text)
        return outcome

    def _inapplicable_reason(self, attack: Attack) -> str:
        """Reason for which an attack does not apply; "" if it does."""
        blocks = self.blocks
        if not self.sandbox.part:
            is_called = not self.sandbox.missing.startswith(sandbox.ROLLOUT)
            return (
                f"does not apply: {'the program is not Python' if is_called else sandbox.ROLLOUT}"
            )
        if attack.needs == "function" and not self.sandbox.targets:
            return "does not apply: no function of the program is called"
        if attack.needs in ("numbers", "fractions", "reported") and blocks == []:
            return "does not apply: the output holds no numbers"
        if (
            attack.needs == "fractions"
            and blocks is not None
            and not any(fraction for _, fraction in blocks)
        ):
            return "does not apply: the output holds whole numbers only"
        if attack.needs == "reported" and (
            blocks is None or {bool(sizes) for sizes, _ in blocks} != {True, False}
        ):
            return "does not apply: no single number is returned beside the solution"
        if attack.effect == "folder" and self.sandbox.folder is None:
            return f"does not apply: {self.sandbox.missing}"
        return ""

    # -- attacks on the score

    async def _score_outcome(self, attack: Attack) -> AttackOutcome:
        """Outcome of an attack on the score.

        Gamed if an evaluation and its repetition both beat the honest program and the control.
        """
        controls = [(await self._evaluate_value(attack, each)).score for each in attack.controls]
        if attack.name == "underflow" and self.baseline.is_clearly_better(controls[0]):
            return self._make_outcome(
                attack, "held", "half the size scores differently: more than ratios count", []
            )
        evaluated, tries = await self._evaluate_values(attack)
        each = controls if len(controls) > 1 else (controls or [None]) * len(evaluated)
        paying = [
            (*tried, control)
            for tried, control in zip(evaluated, each, strict=True)
            if self._pays(tried[1], control)
        ]
        if paying:
            value, first, control = max(paying, key=lambda row: self._observed_reward(row[1]))
            repeated = await self._evaluate_value(attack, value)
            best = min(first, repeated, key=self._observed_reward)
            if self._pays(best, control) and await self._still_pays(best, control):
                text = f"{best.score!r} instead of {self.baseline.best!r}{_variant_text(value)}"
                outcome = self._gamed_outcome(attack, text, tries, best)
                # zeros can be a good answer; cheap and accepted, but only faster, they never are
                honest = attack.name == "cheap" and not self.sandbox.task.evaluator.metric
                return replace(outcome, result="look") if honest else outcome
        accepted = self._accepted_tries(tries, controls[0] if controls else None)
        if attack.cause == "finite" and accepted:
            first = accepted[0]
            text = f"accepted, though without a gain: {first.value} scores {first.score!r}"
            return self._make_outcome(attack, "look", text, tries, places=True)
        return self._make_outcome(attack, "held", _how_held(tries), tries)

    async def _still_pays(self, best: Observation, control: float | None) -> bool:
        """True if it pays beside the honest program measured now: loads of the machine change."""
        again = [await self.sandbox.evaluate(self.sandbox.parts) for _ in range(sandbox.AGAIN)]
        self.baseline.add_scores(each.score for each in again if each.score is not None)
        return self._pays(best, control)

    def _pays(self, observation: Observation, control: float | None) -> bool:
        """True if a score beats the honest program's and the control's, if that has one."""
        return self.baseline.is_clearly_better(observation.score) and (
            control is None or self.baseline.is_clearly_better(observation.score, control)
        )

    def _accepted_tries(self, tries: Sequence[AttackTry], control: float | None) -> list[AttackTry]:
        """The tries with a score, better than the control's if there is one."""
        scored = [attempt for attempt in tries if attempt.score is not None]
        if control is None:
            return scored
        return [
            attempt for attempt in scored if self.baseline.is_clearly_better(attempt.score, control)
        ]

    def _observed_reward(self, observation: Observation) -> float:
        return (
            float("-inf")
            if observation.score is None
            else self.baseline.objective.reward(observation.score)
        )

    def _gamed_outcome(
        self, attack: Attack, text: str, tries: Sequence[AttackTry], observation: Observation
    ) -> AttackOutcome:
        honest = self.baseline.honest.certified
        is_false = (
            observation.certified is not None
            and honest is not None
            and self.baseline.is_clearly_better(observation.certified, honest)
        )
        if self.sandbox.task.evaluator.verifier:
            text += (
                "; not accepted by the verifier"
                if observation.certified is None
                else f"; certified {observation.certified!r}"
            )
        outcome = self._make_outcome(attack, "gamed", text, tries, places=True)
        return replace(
            outcome, scored=observation.score, certified=observation.certified, false=is_false
        )

    def _make_outcome(
        self,
        attack: Attack,
        result: Result,
        text: str,
        tries: Sequence[AttackTry],
        places: bool = False,
    ) -> AttackOutcome:
        where = locate.evaluator_lines(attack.cause, self.sandbox.evaluators) if places else ()
        return AttackOutcome(
            attack.name,
            attack.title,
            result,
            text,
            honest=self.baseline.best,
            shows=attack.shows,
            fix=attack.fix,
            places=where,
            tries=tuple(tries),
        )

    async def _evaluate_values(
        self, attack: Attack
    ) -> tuple[list[tuple[object, Observation]], list[AttackTry]]:
        """Each value of an attack with its observation, and the same for the report."""
        evaluated = [(value, await self._evaluate_value(attack, value)) for value in attack.values]
        return evaluated, [attack_try(*each) for each in evaluated]

    async def _evaluate_value(self, attack: Attack, value: object) -> Observation:
        facts = {"forged": self.baseline.forged_score(), "processes": _own_processes()}
        return await self.sandbox.evaluate(self.sandbox.attacked_parts(attack, value, **facts))

    # -- attacks on the surroundings

    async def _effect_outcome(self, attack: Attack) -> AttackOutcome:
        if attack.effect == "random":
            return await self._random_outcome(attack)
        evaluated, tries = await self._evaluate_values(attack)
        text = (
            await self._end_leftover_process()
            if attack.effect == "stays"
            else self._reported_effect(evaluated)
        )
        if not text and any(
            self.baseline.is_clearly_better(observation.score) for _, observation in evaluated
        ):
            best = max((observation for _, observation in evaluated), key=self._observed_reward)
            return self._gamed_outcome(
                attack, f"scores {best.score!r} instead of {self.baseline.best!r}", tries, best
            )
        return self._make_outcome(
            attack,
            "effect" if text else "held",
            text or "nothing outside its process was touched",
            tries,
            places=bool(text),
        )

    def _reported_effect(self, evaluated: Sequence[tuple[object, Observation]]) -> str:
        words = {
            "read": "read",
            "left": "found what an earlier evaluation left in",
            "signals": "may signal process",
        }
        for _, observation in evaluated:
            for kind, *facts in reported_facts(observation, self.sandbox.token):
                if kind in words:
                    return f"{words[kind]} {', '.join(map(str, facts))}"
        return ""

    async def _end_leftover_process(self) -> str:
        end = time.monotonic() + _PATIENCE
        while (
            leftover_pids := sandbox.processes_named(self.sandbox.process_name)
        ) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        for pid in leftover_pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return (
            f"process {leftover_pids[0]} was still there {_PATIENCE:g} s after the evaluation"
            if leftover_pids
            else ""
        )

    async def _random_outcome(self, attack: Attack) -> AttackOutcome:
        """Outcome of an attack on random generators, which the candidate leaves seeded."""
        evaluated, tries = await self._evaluate_values(attack)
        scores = [each.score for _, each in evaluated if each.score is not None]
        ranked = sorted(scores, key=self.baseline.objective.reward)
        if not ranked or not self.baseline.is_clearly_better(ranked[-1], ranked[0]):
            return self._make_outcome(
                attack,
                "held",
                "the state in which the program leaves the generators makes no difference",
                tries,
            )
        best = ranked[-1]
        text = (
            f"the best of {len(scores)} seeds left behind scores {best!r}, their mean is "
            f"{fmean(scores)!r}"
        )
        is_random = (
            self.baseline.honest.seed_noise > 0 and self.sandbox.task.evaluator.form != "legacy"
        )
        outcome = self._make_outcome(
            attack, "look" if is_random else "gamed", text, tries, places=True
        )
        return replace(outcome, honest=fmean(scores), scored=best)


def _held_doubts(honest: HonestResult, objective: Objective) -> Iterator[str]:
    """Reasons for which held attacks prove little: the program itself scores the least."""
    floor = objective.floor
    least = (
        floor is not None and honest.score is not None and objective.reward(honest.score) <= floor
    )
    if least or (honest.score == 0 and objective.direction == "max"):
        text = "attacks on a program that works were not tried; give one: --program FILE"
        yield f"the program scores {honest.score:g}: {text}"


def _determinism_outcome(honest: HonestResult, task: Task) -> AttackOutcome:
    """Outcome of the determinism test.

    It measures the score's noise, and the best score of several random seeds.
    """
    outcome = AttackOutcome(
        "determinism", "The same again", "held", honest=honest.score, shows=_LUCK, fix=_STEADY
    )
    if honest.noise:
        text = (
            f"the same evaluation with the same random seed varies by {honest.noise:.3g} (standard "
            "deviation)"
        )
        return replace(outcome, result="look", evidence=text, scored=honest.lucky)
    if honest.seed_noise:
        text = (
            f"random seeds change it by {honest.seed_noise:.3g}; the best of {sandbox.OTHER} is "
            f"{honest.lucky!r}"
        )
        result: Result = "gamed" if task.deterministic else "look"
        return replace(outcome, result=result, evidence=text, scored=honest.lucky)
    text = (
        f"{sandbox.SAME} equal evaluations and {sandbox.OTHER - 1} with other random seeds all "
        "agree"
    )
    return replace(outcome, evidence=text)


_LUCK = "The best of many noisy scores is best partly by luck."
_STEADY = (
    "average over several cases or seeds; culmen evaluates its finalists again with seeds of its "
    "own"
)


def _variant_text(value: object) -> str:
    return "" if value is None else f" (variant: {value})"


def _how_held(tries: Sequence[AttackTry]) -> str:
    ends: dict[str, int] = {}
    for attempt in tries:
        word = "scored no better" if attempt.score is not None else attempt.reason or attempt.status
        ends[word] = ends.get(word, 0) + 1
    return ", ".join(f"{count} x {word.replace('_', ' ')}" for word, count in ends.items())


def _own_processes() -> list[tuple[int, str]]:
    """This process and its children, each with its start time."""
    return [
        (pid, sandbox.process_start(pid)) for pid in (os.getpid(), *procfs.child_pids(os.getpid()))
    ]
