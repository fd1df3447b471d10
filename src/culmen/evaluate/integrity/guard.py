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
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
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
from culmen.tasks import reading

POLICIES = ("warn", "reject", "stop")


def parse_policy(name: str | None) -> str:
    """The policy of that name, "warn" for none; raise `UserError` for any other."""
    if name is None or name in POLICIES:
        return name or POLICIES[0]
    raise UserError(
        f"there is no policy '{name}'",
        where="--set integrity",
        fix=f"use one of {', '.join(POLICIES)}",
    )


class ToleranceCheck(Protocol):
    """A check of scores for dependence on the evaluator's tolerance.

    See `culmen.extensions.audit.tightened`.
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
    evaluations and one of each rival; and up to `pushes` evaluations push the output, if that has
    found nothing.
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
        with change_ends_run():
            level = await self.backend.start()
        self.notes = getattr(self.backend, "notes", ())  # not every backend has some
        return level

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
        pushes: int = 0,
        neighbours: tuple[Candidate, ...] = (),
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
        is_open = not any(sign.grave for sign in (*all_signs, *observation.signs))
        if pushes and observation.score is not None and is_open:
            from culmen.evaluate.integrity.pushing import OutputPushes  # loads numpy

            push = OutputPushes(self.task, self._evaluate_plainly, case, seed, pushes)
            observation = await push.check(candidate, observation, neighbours)
        all_signs += (*observation.signs, *signs.of_observation(observation, self.task.objective))
        return apply_policy(
            self.policy,
            msgspec.structs.replace(observation, signs=all_signs) if all_signs else observation,
        )

    def _is_better(self, score: float, other: float) -> bool:
        reward = self.task.objective.reward
        return reward(score) > reward(other)

    async def _evaluate_plainly(
        self, candidate: Candidate, case: Case | None, seed: int
    ) -> Observation:
        return await self._evaluate_with_retries(candidate, case, seed, False)

    async def _evaluate_with_retries(
        self, candidate: Candidate, case: Case | None, seed: int, certify: bool
    ) -> Observation:
        # backends of tasks without a verifier need not know
        more = {"certify": True} if certify else {}
        with change_ends_run():
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
            # these texts need not be scanned again
            if len(self._signs_by_digest) > 4096:
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
    grave = observation.grave_sign
    return grave is not None and grave.name in ("forgiven", "edge")


# The evaluator's files under seal: its programs and data must not change while evaluations run.
#
# A look costs one `stat` per file; only changed files are read again.

Identity = tuple[int, int, int, int, int]

REWRITTEN = " (rewritten)"  # after the name of a file that evaluations changed otherwise than a log
_AGAIN = "restore it, or repeat the command and leave the file as it is meanwhile"
_RESUME = (
    "restore it, then culmen resume RUN; or continue with the files of now: culmen runs fork RUN"
)
APART = (
    "write it to a folder named logs or results, open it read-only, or set keeps_state = true "
    "under [evaluator] in task.toml"
)


class EvaluatorChanged(TaskError):
    """A file of the evaluator changed, so that scores could not be compared."""

    def in_run(self) -> EvaluatorChanged:
        """The error with the next step in a run."""
        steps = {_AGAIN: _RESUME, APART: f"{APART}; then start a new run"}
        return EvaluatorChanged(self.what, where=self.where, fix=steps.get(self.fix, self.fix))


@contextmanager
def change_ends_run() -> Generator[None]:
    """Raise an `EvaluatorChanged` with the next step in a run."""
    try:
        yield
    except EvaluatorChanged as error:
        raise error.in_run() from None


class EvaluatorSeal:
    """The files of one evaluator: those its task names, at least itself and its verifier.

    Programs and settings must not change. Other files may grow: that is a log, which is no
    input. If it changes otherwise, an evaluator that keeps state has written its state; for
    others that is an error. `written` are the names of logs and state seen so far, and of files
    that the evaluator's text names and that were not there before; "NAME (rewritten)" if a file
    did not only grow.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.written: set[str] = set()
        self._folder = Path(evaluator.path).parent
        self._records = dict(evaluator.files)
        for path in filter(None, (evaluator.path, evaluator.verifier) if evaluator.path else ()):
            # a task without recorded digests is sealed in its present state
            name = os.path.relpath(path, self._folder)
            if name not in self._records and os.path.isfile(path):
                self._records[name] = reading.file_sha256(Path(path))
        self._keeps_state = evaluator.keeps_state
        self._paths = {name: str(self._folder / name) for name in self._records}
        self._drop_own_outputs()
        self._identities: dict[str, Identity] = {}
        self._judging = 0
        self._new: set[str] = set()
        self._unreported: list[str] = []
        self._listed = _modified_ns(self._folder)
        self._present = self._list_names() if evaluator.path else set[str]()

    def _drop_own_outputs(self) -> None:
        outputs = reading.own_outputs()
        for name, path in list(self._paths.items()):
            with suppress(OSError):
                if reading.file_number(path) in outputs:
                    del self._paths[name]

    def require_unchanged(self) -> None:
        """Raise EvaluatorChanged for the first file that changed or is missing."""
        self._look(judging=False)
        self._unreported.clear()

    @contextmanager
    def watch_evaluation(self) -> Generator[list[str]]:
        """Look at the files before and after an evaluation; raise EvaluatorChanged.

        Afterwards the list has the names of files that were seen written for the first time.
        """
        first_seen: list[str] = []
        self._look(judging=self._judging > 0)
        self._judging += 1
        try:
            yield first_seen
            self._look(judging=True)
            self._look_for_new_files()
        finally:
            self._judging -= 1
        first_seen += self._unreported
        self._unreported.clear()

    def _look(self, *, judging: bool) -> None:
        """Look at each file. `judging`: an evaluation has been going on since the last look."""
        for name, path in list(self._paths.items()):
            identity = _file_identity(path)
            if identity is not None and identity == self._identities.get(name):
                continue
            record = self._records[name]
            change = reading.compare_file(Path(path), record)
            if change == "grown":
                self._report(name)
                # bytes of a known log's start that are compared when it has grown again
                start = min(os.path.getsize(path), 1 << 16)
                self._records[name] = reading.record_start(Path(path), start)
            elif change and reading.may_grow(record) and (self._keeps_state or name in self._new):
                self._report(name + REWRITTEN if change == "changed" else name)
                del self._paths[name]
            elif change:
                raise _changed_error(path, record, gone=change == "missing", judging=judging)
            if identity is not None:
                self._identities[name] = identity

    def _report(self, name: str) -> None:
        if name not in self.written:
            self.written.add(name)
            self._unreported.append(name)

    def _look_for_new_files(self) -> None:
        """Report files that are new in the evaluator's folder, if its text names them."""
        modified = _modified_ns(self._folder)
        if modified == self._listed:
            return
        self._listed, present = modified, self._list_names()
        new, self._present = sorted(present - self._present), self._present | present
        if not new:
            return
        named: set[str] = set()
        for path in self._paths.values():
            if path.endswith(".py"):
                text = Path(path).read_text(encoding="utf-8", errors="replace")
                named |= reading.possible_file_names(text)
        for name in new:
            file = self._folder / name
            if named & {name, file.suffix or name} and file.is_file():
                self._report(name)
                self._new.add(name)
                self._paths[name], self._records[name] = str(file), reading.record_file(file)

    def _list_names(self) -> set[str]:
        try:
            with os.scandir(self._folder) as entries:
                names = {entry.name for entry in entries if entry.is_file()}
        except OSError:
            return set()
        return {name for name in names if reading.is_relevant_name(name)}


def _modified_ns(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _file_identity(path: str) -> Identity | None:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _changed_error(path: str, record: str, *, gone: bool, judging: bool) -> EvaluatorChanged:
    name, where = os.path.basename(path), f"{path} (SHA-256 was {record[:16]}...)"
    if judging and not gone and reading.may_grow(record):
        return EvaluatorChanged(
            f"{name} was changed while the evaluator judged: evaluations could depend on "
            "one another",
            where=where,
            fix=APART,
        )
    what = f"{name} is missing" if gone else f"{name} was changed"
    return EvaluatorChanged(
        f"{what}: scores from before and after could not be compared", where=where, fix=_AGAIN
    )
