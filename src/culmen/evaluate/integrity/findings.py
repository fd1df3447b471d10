"""What looks wrong with a task, from its declarations and what its seeds did: sentences with a remedy."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from statistics import fmean, median, stdev
from typing import Literal

import msgspec

from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.core.trust import reaches

START_SHARE = 0.05  # a mean further than this share (and three standard errors) from the declared start is reported
SLOW_SHARE = 0.5  # evaluations longer than this share of the limit are reported


_NOT_THEIRS = re.compile(r"/culmen/evaluate/|/lib/python\d|/site-packages/")


class Finding(msgspec.Struct, frozen=True):
    """error: no search can start or be trusted · warning: probably a mistake · note: good to know."""

    level: Literal["error", "warning", "note"]
    what: str
    fix: str = ""


class Seen(msgspec.Struct, frozen=True):
    """What the rules look at."""

    task: Task
    isolation: str
    observations: tuple[Observation, ...]
    repeatable: bool | None
    seed_free: bool | None
    why: str = ""

    @property
    def scores(self) -> list[float]:
        """One score for each seed, case and random seed, in the task's unit."""
        unique = {(o.candidate, o.case, o.seed): o.score for o in self.observations if o.score is not None}
        return list(unique.values())


def of(
    task: Task,
    isolation: str,
    observations: Iterable[Observation],
    repeatable: bool | None,
    seed_free: bool | None,
    why: str = "",
) -> list[Finding]:
    """All findings, errors first; `why` says what keeps scores from being trusted more."""
    seen = Seen(task, isolation, tuple(observations), repeatable, seed_free, why)
    found = [finding for rule in _RULES for finding in rule(seen)]
    found += [Finding("note", note) for note in task.notes]
    return sorted(found, key=lambda finding: ("error", "warning", "note").index(finding.level))


def describe(observation: Observation) -> str:
    """Status, reason and the last words of a failed evaluation."""
    case = f" on case {observation.case}" if observation.case else ""
    reason = f" ({observation.reason})" if observation.reason and observation.reason != observation.status else ""
    last = [line.strip() for line in observation.feedback.splitlines() if line.strip()]
    if last and observation.reason in last[-1]:
        reason = ""
    return f"{observation.status.value}{reason}{case}" + (f": {last[-1][:300]}{_where(observation)}" if last else "")


def _where(observation: Observation) -> str:
    """` (evaluator.py line 12)`: the last place of a traceback that is the user's own; "" without one."""
    places = re.findall(r'File "([^"]+)", line (\d+)', observation.feedback)
    own = [(path, line) for path, line in places if not path.startswith("<") and not _NOT_THEIRS.search(path)]
    return f" ({PurePath(own[-1][0]).name} line {own[-1][1]})" if own else ""


def _failures(seen: Seen) -> Iterator[Finding]:
    if not seen.task.seeds:
        yield Finding("note", "the task has no seed: a model writes the first program, nothing was run", "")
    shown: set[tuple[str, str]] = set()
    for observation in seen.observations:
        kind = (observation.candidate, observation.reason)
        if observation.ok or kind in shown:
            continue
        shown.add(kind)
        level = "warning" if any(o.ok and o.candidate == observation.candidate for o in seen.observations) else "error"
        if seen.task.evaluator.options.get("made") and seen.scores:
            level = "note"  # several were made on the chance that one of them is acceptable
        yield Finding(
            level, f"seed {observation.candidate} ends with {describe(observation)}", _remedy(seen, observation)
        )


def _reported(seen: Seen) -> Iterator[Finding]:
    """A seed that scored, of which the evaluator itself says that something went wrong."""
    if seen.task.evaluator.form != "legacy":
        return
    for observation in seen.observations:
        said = next((line for line in observation.feedback.splitlines() if line.startswith("error: ")), "")
        if observation.ok and said:
            what = f"seed {observation.candidate} scores {observation.score:.6g}, but its evaluator says {said[:300]}"
            yield Finding("warning", what, "let the seed work before a search starts from it")
            return


def _remedy(seen: Seen, observation: Observation) -> str:
    remedies = {
        "memory_limit": "raise [limits] memory_mb, or make the seed need less",
        "output_limit": "raise [limits] output_kb, or let the seed print and return less",
        "score_out_of_bounds": "correct [objective] bounds, or the evaluator",
        "scorer_error": "correct the evaluator",
        "scorer_raised": "correct the evaluator: it must be able to judge its own seed",
        "score_nan": "let the evaluator return None for outputs it does not accept",
    }
    if observation.reason in remedies:
        return remedies[observation.reason]
    if observation.status is Status.TIMEOUT:
        return f"raise {_limit(seen.task)}, or make the seed faster"
    if fix := installing(observation.feedback):
        return fix
    if "Read-only file system" in observation.feedback:
        return "an evaluator's folder is read-only to it: write to its working directory, or with tempfile"
    if observation.status is Status.LOST:
        return "this is the evaluator's or the machine's failure, not the seed's: see the feedback, and culmen doctor"
    return "correct the seed, or the evaluator if the seed is right"


def installing(traceback: str) -> str:
    """How to get the module that a traceback says is missing; "" if none is."""
    module = re.search(r"No module named '([\w.]+)'", traceback)
    return (
        f"install it where culmen is: {sys.executable} -m pip install {module[1].partition('.')[0]}" if module else ""
    )


def _limit(task: Task) -> str:
    """The setting that cuts an evaluation off."""
    own = task.evaluator.form != "legacy" or Path(task.root, "task.toml").is_file()
    return "[limits] seconds" if own else f"timeout under evaluator in config.yaml (now {task.limits.seconds:g} s)"


def _determinism(seen: Seen) -> Iterator[Finding]:
    if seen.repeatable is None:
        return
    if seen.task.deterministic and not seen.seed_free:
        cause = "the random seed" if seen.repeatable else "one run to the next, even with the same random seed"
        yield Finding(
            "warning",
            f"the task is declared deterministic, but results change with {cause}",
            "remove deterministic = true, or make evaluator and seed deterministic",
        )
    elif not seen.task.deterministic and seen.seed_free:
        yield Finding(
            "note",
            "all repeated evaluations agreed",
            "if candidates use no randomness either, deterministic = true saves evaluating them again",
        )
    elif not seen.task.deterministic and not seen.repeatable and seen.task.evaluator.form != "legacy":
        yield Finding(
            "note",
            "results change even with the same random seed, so a single result cannot be reproduced",
            "draw random numbers from the seed the evaluation is given",
        )


def _levels(seen: Seen) -> Iterator[Finding]:
    """The mean against the declared start and target."""
    scores, objective = seen.scores, seen.task.objective
    if not scores:
        return
    mean = fmean(scores)
    if objective.reached(mean):
        yield Finding(
            "warning",
            f"the seeds score {mean:.6g} and so already reach the target {objective.target:.6g}",
            f"raise the target, or check that direction = {objective.direction} is right",
        )
    error = stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
    start = objective.start
    if start is not None and abs(mean - start) > max(3 * error, START_SHARE * max(abs(start), abs(mean))):
        fix = "correct [objective] start, or find out what changed"
        yield Finding("warning", f"the seeds score {mean:.6g}, the task says they start at {start:.6g}", fix)
    worst = objective.floor
    if worst is not None and all(objective.reward(score) <= worst for score in scores):
        fix = "a seed that scores a little more gives a search something to improve"
        yield Finding("warning", f"every evaluation scored {mean:.6g}, the worst the bounds allow", fix)


def _integrity(seen: Seen) -> Iterator[Finding]:
    if any(o.ok and not reaches(o.trust, "proxied") for o in seen.observations):
        what = (
            "scores are self-reported: the evaluator runs in the candidate's process and a candidate could forge them"
        )
        form = "call" if seen.task.evaluator.suffix == ".py" else "command"
        fix = f"write the evaluator as score(output) with form = {form} to have scores verified"
        if seen.isolation in ("limits", "none"):
            fix = "have a stronger isolation first: see culmen doctor"
        yield Finding("warning" if seen.why else "note", f"{what} ({seen.why})" if seen.why else what, fix)
    if seen.isolation in ("limits", "none"):
        yield Finding(
            "warning",
            f"isolation is only '{seen.isolation}': candidates can read your files and use the network",
            "run culmen doctor to see what is missing (usually: apt install bubblewrap)",
        )


def _cascade(seen: Seen) -> Iterator[Finding]:
    thresholds, scores = seen.task.evaluator.thresholds, seen.scores
    if thresholds and scores and max(scores) < thresholds[0]:
        yield Finding(
            "warning",
            f"no seed reaches the first cascade threshold ({max(scores):.6g} < {thresholds[0]:.6g}), "
            "so later stages never run",
            "lower cascade_thresholds, or let the stages score on one scale",
        )


def _time(seen: Seen) -> Iterator[Finding]:
    times = [o.seconds for o in seen.observations if o.ok]
    limit = seen.task.limits.seconds
    if times and max(times) > SLOW_SHARE * limit:
        yield Finding(
            "warning",
            f"evaluations take up to {max(times):.3g} s (median {median(times):.3g} s) of the {limit:g} s allowed",
            f"raise {_limit(seen.task)}, for slower candidates would be cut off",
        )


_RULES: Sequence[Callable[[Seen], Iterator[Finding]]] = (
    _failures,
    _reported,
    _determinism,
    _levels,
    _integrity,
    _cascade,
    _time,
)
