"""Signs of gaming in candidates and their evaluations (signs.py), and the policy on them.

    warn    the observation carries its signs
    reject  a candidate with a grave sign in its text is not run; one with a grave sign in its
            evaluation loses its score
    stop    the same, and the engine ends the search

Signs are journaled with the observation, so a replay sees the same.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import BARRED, SIGNS, Case, Observation, Sign, Status
from culmen.core.json import JsonObject
from culmen.core.ports import Backend
from culmen.core.task import Evaluator, Task
from culmen.evaluate.integrity import signs
from culmen.evaluate.taskfiles.reading import file_sha256

POLICIES = ("warn", "reject", "stop")
_REMEMBERED = 4096  # candidates whose texts need not be scanned again


def parse_policy(name: str | None) -> str:
    """The policy of that name, "warn" for none; raise `UserError` for any other."""
    if name is None or name in POLICIES:
        return name or POLICIES[0]
    raise UserError(
        f"there is no policy '{name}'", where="--integrity", fix=f"use one of {', '.join(POLICIES)}"
    )


class ToleranceCheck(Protocol):
    """A check of scores for dependence on the evaluator's tolerance.

    See `culmen.audit.tightened`.
    """

    async def check(
        self,
        candidate: Candidate,
        case: Case | None,
        seed: int,
        observation: Observation,
        limit: int,
        rivals: tuple[Candidate, ...],
        /,
    ) -> Observation: ...

    async def close(self) -> None: ...


class IntegrityBackend(Backend):
    """Wraps a backend: adds signs to its observations and applies one of `POLICIES`.

    With a verifier, a score beyond the best known value is certified at once. Without one, the
    check made by `tolerances` verifies selected observations, with up to `checks` further
    evaluations and one of each rival.
    """

    def __init__(
        self,
        backend: Backend,
        task: Task,
        policy: str = "warn",
        tolerances: Callable[[], ToleranceCheck] | None = None,
    ) -> None:
        self.backend, self.task, self.policy = backend, task, policy
        self._make_check = tolerances
        self._check: ToleranceCheck | None = None
        self._scan_context = signs.ScanContext.from_task(task)
        self._signs_by_digest: OrderedDict[str, tuple[Sign, ...]] = OrderedDict()

    async def start(self) -> str:
        """The isolation level in force."""
        return await self.backend.start()

    async def evaluate(
        self,
        candidate: Candidate,
        case: Case | None,
        seed: int,
        *,
        certify: bool = False,
        checks: int = 0,
        above: float | None = None,
        rivals: tuple[Candidate, ...] = (),
    ) -> Observation:
        """The backend's observation with signs, or a refusal."""
        all_signs = self._signs_of_text(candidate)
        if self.policy != "warn" and any(sign.grave for sign in all_signs):
            refused = Observation(
                candidate.id,
                Status.REJECTED,
                case=case.id if case else "",
                seed=seed,
                evaluator=self.task.evaluator.digest,
                signs=all_signs,
            )
            return apply_policy(self.policy, refused)
        observation = await self._evaluate_with_retries(candidate, case, seed, certify)
        doubtful = observation.score is not None and self.task.objective.is_beyond_known(
            observation.score
        )
        if doubtful and not certify and self.task.evaluator.verifier:
            observation = await self._evaluate_with_retries(candidate, case, seed, True)
        if (
            checks
            and observation.score is not None
            and (above is None or self._is_better(observation.score, above))
        ):
            self._check = self._check or (self._make_check and self._make_check())
            if self._check is not None:
                observation = await self._check.check(
                    candidate, case, seed, observation, checks, rivals
                )
        all_signs += (*observation.signs, *signs.of_observation(observation, self.task.objective))
        return apply_policy(
            self.policy,
            msgspec.structs.replace(observation, signs=all_signs) if all_signs else observation,
        )

    def _is_better(self, score: float, other: float) -> bool:
        reward = self.task.objective.reward
        return reward(score) > reward(other)

    async def _evaluate_with_retries(
        self, candidate: Candidate, case: Case | None, seed: int, certify: bool
    ) -> Observation:
        # backends of tasks without a verifier need not know
        more = {"certify": True} if certify else {}
        observation = await self.backend.evaluate(candidate, case, seed, **more)
        for _ in range(1, self.backend.attempts):
            if observation.status is not Status.LOST:
                break
            observation = await self.backend.evaluate(candidate, case, seed, **more)
        return observation

    def _signs_of_text(self, candidate: Candidate) -> tuple[Sign, ...]:
        known = self._signs_by_digest.get(candidate.digest)
        if known is None:
            known = self._signs_by_digest[candidate.digest] = signs.of_parts(
                candidate.parts, self.task, self._scan_context
            )
            if len(self._signs_by_digest) > _REMEMBERED:
                self._signs_by_digest.popitem(last=False)
        return known

    async def renew(self) -> None:
        """Begin the final choice with fresh processes, if the backend can."""
        await self.backend.renew()

    async def close(self) -> None:
        """Close the backend and the check."""
        if self._check is not None:
            await self._check.close()
        await self.backend.close()


def apply_policy(policy: str, observation: Observation) -> Observation:
    """The observation under a policy: rejected for a grave sign, else unchanged."""
    grave = observation.grave_sign
    if (
        policy == "warn"
        or grave is None
        or observation.bars_candidate
        or observation.status is Status.LOST
    ):
        return observation
    claimed = {} if observation.score is None else {"claimed_score": observation.score}
    return msgspec.structs.replace(
        observation,
        status=Status.REJECTED,
        score=None,
        reason=BARRED + grave.name,
        culprit="candidate",
        metrics={**observation.metrics, **claimed},
        feedback="\n".join(filter(None, (_refusal_feedback(grave), observation.feedback))),
    )


def _refusal_feedback(grave: Sign) -> str:
    """The feedback of a refusal, for the proposer."""
    position = f" ({grave.part}:{grave.line})" if grave.line else ""
    return (
        f"Rejected for its integrity, {grave.name}: it {SIGNS[grave.name][1]}{position}: "
        f"{grave.evidence}\n"
        "A score must come from solving the problem. Solve it without this, and the candidate "
        "will be evaluated."
    )


def reapply_policy(finished: Mapping[str, object], policy: str) -> JsonObject:
    """Another run's results under this policy, without those to be evaluated again.

    Left out are results that only the other policy refused, and results of candidates with a grave
    sign found later.
    """
    kept: JsonObject = {}
    late = {
        result.candidate
        for result in finished.values()
        if isinstance(result, Observation) and _has_late_sign(result)
    }
    for mark, result in finished.items():
        if isinstance(result, Observation):
            if policy != "warn" and result.candidate in late and not _has_late_sign(result):
                continue
            if policy == "warn" and result.bars_candidate:
                continue
            result = apply_policy(policy, result)
        kept[mark] = result
    return kept


def _has_late_sign(observation: Observation) -> bool:
    """True if its grave sign need not appear in other observations of the same candidate."""
    return observation.grave_sign is not None and observation.grave_sign.name == "forgiven"


# The evaluator's files under seal: they must not change while a run lasts.
#
# A check costs one `stat` per file; only changed files are read again.

Identity = tuple[int, int, int, int, int]


class EvaluatorChanged(TaskError):
    """A file of the evaluator changed since the run began."""


class EvaluatorSeal:
    """The files of one evaluator: those its task names, at least itself and its verifier."""

    def __init__(self, evaluator: Evaluator) -> None:
        folder = Path(evaluator.path).parent
        own = (evaluator.path, evaluator.verifier) if evaluator.path else ()
        self._expected = {str(folder / name): digest for name, digest in evaluator.files.items()}
        for path in filter(None, own):
            # a task without recorded digests is sealed in its present state
            if path not in self._expected and os.path.isfile(path):
                self._expected[path] = file_sha256(Path(path))
        self._identities: dict[str, Identity] = {}

    def require_unchanged(self) -> None:
        """Raise EvaluatorChanged for the first file that changed or is missing."""
        for path, expected in self._expected.items():
            identity = _file_identity(path)
            if identity is not None and identity == self._identities.get(path):
                continue
            if identity is None or file_sha256(Path(path)) != expected:
                raise _changed_error(path, expected, gone=identity is None)
            self._identities[path] = identity


def _file_identity(path: str) -> Identity | None:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _changed_error(path: str, expected: str, *, gone: bool) -> EvaluatorChanged:
    name = os.path.basename(path)
    what = f"{name} is missing" if gone else f"{name} was changed"
    return EvaluatorChanged(
        f"{what} since the run began: its scores could not be compared with the earlier ones",
        where=f"{path} (SHA-256 was {expected[:16]}...)",
        fix="restore it, then culmen resume RUN"
        + ("" if gone else "; or continue with the changed file: culmen fork RUN"),
    )
