"""The sandbox of attacks: a copy of the task's folder, and a backend on that copy.

The copy has a hidden file in it. Attack programs are the honest program with an attack put before
its main block. The honest program is measured first: its score, the score's spread, and the shape
of its output.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.ports import Backend
from culmen.core.spread import pooled_deviation
from culmen.core.task import Objective, Task
from culmen.extensions.audit.attack import Attack, AttackTry, HonestResult, all_attacks
from culmen.extensions.audit.outputs import (
    callable_functions,
    has_own_backend,
    insert_code,
    program_part,
    reported_facts,
)
from culmen.extensions.audit.tolerances import evaluator_sources

ROLLOUT = "tests judge what an agent does with it"  # where evaluations are rollouts
MOST_BYTES = 256 * 2**20  # of an evaluator's folder
_SKIPPED = ("__pycache__", ".git", "node_modules", "venv", ".venv", "runs", "openevolve_output")
Make = Callable[[Task], Backend]


class SandboxCopy:
    """One program of one task, evaluated with and without attacks.

    `task` is that of the copy. `missing` is the reason if there is no copy, "" if there is one;
    without a copy files are not attacked.
    """

    def __init__(
        self, task: Task, parts: Mapping[str, str], make: Make, folder: Path | None = None
    ) -> None:
        self.original, self.parts, self.make = task, dict(parts), make
        self.token, self.canary = secrets.token_hex(8), secrets.token_hex(16)
        self.folder, self.missing = (folder, "") if folder else copy_task_folder(task, self.canary)
        self.task = task if self.folder is None else relocated_task(task, self.folder)
        self.part = program_part(task, self.parts)
        self.evaluators = evaluator_sources(self.task)
        self.targets = (
            callable_functions(task, self.parts[self.part], self.evaluators.values())
            if self.part
            else []
        )
        self.case: Case | None = next(iter(task.split("train")), None)
        self.backend = make(self.task)
        self.isolation = ""
        self.evaluations = 0

    @property
    def process_name(self) -> str:
        """Name of processes that attacks leave behind."""
        return f"cu{self.token[:12]}"

    async def start(self) -> str:
        """Start the backend; return the isolation level in force."""
        self.isolation = await self.backend.start()
        return self.isolation

    async def limit_seconds(self, seconds: float) -> None:
        """Limit the time of evaluations: a hanging attack need not use the task's full limit."""
        limited = limited_task(self.task, seconds)
        if limited.limits.seconds < self.task.limits.seconds:
            self.task = limited
            await self.backend.close()
            self.backend = self.make(self.task)
            await self.start()

    async def evaluate(
        self, parts: Mapping[str, str], seed: int = 0, certify: bool = True
    ) -> Observation:
        """Evaluate texts; certify the result if the task has a verifier and `certify` is set."""
        self.evaluations += 1
        more = {"certify": True} if certify and self.task.evaluator.verifier else {}
        candidate = Candidate.of(parts)
        try:
            return await self.backend.evaluate(candidate, self.case, seed, **more)
        except TaskError as error:  # the evaluator's seal was broken: an attack reached its files
            return Observation(
                candidate.id, Status.LOST, reason="evaluator_changed", feedback=str(error)
            )

    def attacked_parts(self, attack: Attack, value: object, **facts: object) -> dict[str, str]:
        """The program with an attack in it."""
        known = {
            "value": value,
            "token": self.token,
            "targets": self.targets,
            "comm": self.process_name,
            # reversed: the program's own text must not look like the hidden file
            "canary": self.canary[::-1],
            "folder": str(self.folder or "/nonexistent"),
            "private": self.isolation == "namespaces",
            "files": sorted(path.name for path in self.folder.iterdir() if path.is_file())
            if self.folder
            else [],
            "results": sorted(
                {name for text in self.evaluators.values() for name in _result_file_names(text)}
            ),
            **facts,
        }
        return {**self.parts, self.part: insert_code(self.parts[self.part], attack.code, known)}

    async def start_variant(self, source: Mapping[str, str]) -> SandboxCopy:
        """Another, started sandbox in which evaluator files, by name, have other texts."""
        folder, missing = copy_task_folder(self.original, self.canary)
        if folder is None:
            raise OSError(missing)
        for name, text in source.items():
            (folder / name).write_text(text, encoding="utf-8")
        variant = SandboxCopy(self.original, self.parts, self.make, folder)
        try:
            await variant.start()
        except BaseException:
            await variant.close()
            raise
        return variant

    def copied_file_states(self) -> dict[str, tuple[int, int, int]]:
        """Files of the copy by name: size, time of modification and inode.

        Python's caches are left out.
        """
        if self.folder is None:
            return {}
        files = (
            path
            for path in sorted(self.folder.rglob("*"))
            if "__pycache__" not in path.parts and path.is_file()
        )
        return {
            str(path.relative_to(self.folder)): (status.st_size, status.st_mtime_ns, status.st_ino)
            for path, status in ((path, path.stat()) for path in files)
        }

    def revert_changes(self, before: Mapping[str, tuple[int, int, int]]) -> list[str]:
        """Names of changed files; the copy is then restored."""
        after = self.copied_file_states()
        names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        if names and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            _fill_copy(Path(self.original.evaluator.path).parent, self.folder, self.canary)
        return names

    async def close(self) -> None:
        """Close the backend and remove the copy."""
        await self.backend.close()
        if self.folder is not None:
            shutil.rmtree(self.folder.parent, ignore_errors=True)


def limited_task(task: Task, seconds: float) -> Task:
    """The task with no longer evaluations than that."""
    limits, seconds = task.limits, min(task.limits.seconds, seconds)
    scorer = min(limits.scorer_seconds, max(seconds, 20.0))  # least seconds of a scorer
    limits = msgspec.structs.replace(limits, seconds=seconds, scorer_seconds=scorer)
    return msgspec.structs.replace(task, limits=limits)


def attack_seconds(honest: float) -> float:
    """Time for an attack on a program that took `honest` seconds."""
    return 5.0 + 10.0 * honest


def attack_try(value: object, observation: Observation) -> AttackTry:
    """An evaluation of an attack, for the report."""
    return AttackTry(
        value,
        observation.status.value,
        observation.score,
        observation.certified,
        observation.reason,
    )


def copy_task_folder(task: Task, canary: str) -> tuple[Path | None, str]:
    """Folder of a new copy with a hidden file in it; None and the reason if there is none."""
    if not task.evaluator.path:
        return None, "the evaluator is a function, not a file"
    if has_own_backend(task):
        return None, ROLLOUT
    source = Path(task.evaluator.path).parent
    size = sum(
        path.stat().st_size
        for path in source.rglob("*")
        if path.is_file() and not _is_skipped(path, source)
    )
    if size > MOST_BYTES:
        return None, f"the evaluator's folder is larger than {MOST_BYTES >> 20} MB"
    parent = Path(tempfile.mkdtemp(prefix="culmen-audit-"))
    parent.chmod(0o755)
    copy = parent / source.name
    _fill_copy(source, copy, canary)
    return copy, ""


def _fill_copy(source: Path, copy: Path, canary: str) -> None:
    ignored = shutil.ignore_patterns(*_SKIPPED)
    shutil.copytree(source, copy, ignore=ignored, symlinks=False, ignore_dangling_symlinks=True)
    (copy / "hidden-answers.txt").write_text(canary)


def _is_skipped(path: Path, source: Path) -> bool:
    return any(part in _SKIPPED for part in path.relative_to(source).parts)


def relocated_task(task: Task, folder: Path) -> Task:
    """The task with its evaluator and verifier in another folder."""
    evaluator = task.evaluator
    path = str(folder / Path(evaluator.path).name)
    verifier = str(folder / Path(evaluator.verifier).name) if evaluator.verifier else ""
    # without hashes of files: the backend seals the files of the copy
    evaluator_copy = msgspec.structs.replace(evaluator, path=path, verifier=verifier, files={})
    return msgspec.structs.replace(task, evaluator=evaluator_copy)


def _result_file_names(text: str) -> list[str]:
    """File names in a text that may be result files."""
    return re.findall(r"""["']([\w.-]+\.(?:json|pkl|pickle|results|txt))["']""", text)[:20]


def processes_named(comm: str) -> list[int]:
    """Processes of this name."""
    pids: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{name}/comm").read_text().strip() == comm:
                pids.append(int(name))
    return pids


def process_start(pid: int) -> str:
    """Start time of a process in the kernel's ticks; with its pid, a unique identity."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    return ""


SAME, OTHER = 4, 8  # evaluations with one random seed, and with others
AGAIN = 3  # later evaluations of the honest program beside an attack that seems to pay
_SPREADS = 4.0  # standard deviations by which a score must beat a noisy one


class Baseline:
    """The honest score, and comparisons with it by more than rounding and noise."""

    def __init__(self, objective: Objective, honest: HonestResult, scores: Sequence[float]) -> None:
        self.objective, self.honest, self._scores = objective, honest, list(scores)
        self.best = max(scores, key=objective.reward)
        self._noise = _SPREADS * honest.noise

    def add_scores(self, scores: Iterable[float]) -> None:
        """Count further honest scores with the one random seed, as the machine is now."""
        self._scores += scores
        self.best = max(self._scores, key=self.objective.reward)
        self._noise = _SPREADS * max(self.honest.noise, pooled_deviation([self._scores]) or 0.0)

    def is_clearly_better(self, score: float | None, than: float | None = None) -> bool:
        """True if a score beats another (default: the best honest one)."""
        base = self.best if than is None else than
        if score is None:
            return False
        # share of a score that counts as rounding
        margin = max(1e-12 * max(abs(base), abs(score)), self._noise)
        return self.objective.reward(score) > self.objective.reward(base) + margin

    def forged_score(self) -> float:
        """A score within the bounds that is not reached by accident."""
        low, high = self.objective.bounds
        end = high if self.objective.direction == "max" else low
        if end is not None:
            return self.best + 0.4375 * (end - self.best)
        return self.objective.score(
            self.objective.reward(self.best) + 10.0 * max(1.0, abs(self.best))
        )


async def measure_honest(sandbox: SandboxCopy) -> tuple[HonestResult, list[Observation]]:
    """Evaluate the unchanged program with one random seed and with others.

    Returns the result, and the observations with the one random seed.
    """
    first = await sandbox.evaluate(sandbox.parts)
    if first.score is None:
        return HonestResult(
            first.candidate, failure=f"{first.status.value} ({first.reason})\n{first.feedback}"
        ), [first]
    seeds = [*[0] * (SAME - 1), *range(1, OTHER)]
    rest = await asyncio.gather(
        *(sandbox.evaluate(sandbox.parts, seed, certify=False) for seed in seeds)
    )
    same = [o.score for o in (first, *rest[: SAME - 1]) if o.score is not None]
    other = [o.score for o in (first, *rest[SAME - 1 :]) if o.score is not None]
    honest = HonestResult(
        candidate=first.candidate,
        score=fmean(same),
        noise=pooled_deviation([same]) or 0.0,
        seed_noise=pooled_deviation([other]) or 0.0,
        lucky=max(other, key=sandbox.task.objective.reward),
        certified=first.certified,
        seconds=first.seconds,
    )
    return honest, [first, *rest[: SAME - 1]]


async def output_shape(sandbox: SandboxCopy) -> list[tuple[list[int], bool]] | None:
    """Blocks of numbers in the output; None if the output was not observed.

    For each block its shape, and True if any number has a fraction.
    """
    for value in ("tell", "raise"):
        observation = await sandbox.evaluate(
            sandbox.attacked_parts(all_attacks()["shape"], value), certify=False
        )
        for report in reported_facts(observation, sandbox.token):
            if report[0] == "shape":
                return [(list(sizes), bool(fraction)) for sizes, fraction in report[1:]]
    return None
