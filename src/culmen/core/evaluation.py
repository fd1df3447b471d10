"""Results of evaluations: status, score, signs of gaming, level of trust."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from culmen.core import errors
from culmen.core.candidate import Candidate
from culmen.core.pictures import is_picture
from culmen.core.spread import sum_floats
from culmen.core.usage import Usage


class Status(StrEnum):
    """The outcome of one evaluation; only `ok` has a score.

    `lost` is a failure of culmen or the machine, never counted against a candidate.
    """

    OK = "ok"
    # ran, but the output or the score is not acceptable (wrong shape, NaN, constraint violated)
    INVALID = "invalid"
    ERROR = "error"  # raised, crashed or left early
    TIMEOUT = "timeout"  # wall clock or CPU limit
    REJECTED = "rejected"  # broke a limit or a rule: memory, output size, immutable text, tampering
    LOST = "lost"  # jail, scorer, worker or node failed, also on a second try


class Case(msgspec.Struct, frozen=True):
    """One example of the data set.

    `input` goes to the candidate, `info` (the answer) only to the scorer.
    """

    id: str
    input: Any = None
    info: Any = None
    split: str = "train"  # train | val | test


class Sign(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sign that a candidate games the evaluator, with the evidence.

    `name` is a machine word (frames, tolerance, certified_gap, ...; see
    `culmen.evaluate.integrity.signs`), `line` the line of `part` it was found on (0: not in the
    text). `grave` signs rarely have an honest use: `--set integrity` acts on them.
    """

    name: str
    evidence: str = ""
    grave: bool = False
    part: str = ""
    line: int = 0


SIGNS: dict[str, tuple[bool, str]] = {
    "frames": (True, "looks into call frames or all live objects"),
    "patching": (True, "replaces functions of modules that others use"),
    "modules": (True, "reaches into the table of loaded modules"),
    "evaluator": (True, "names the evaluator, its verifier or culmen itself"),
    "answers": (True, "names files of the task or of other processes"),
    "native": (True, "calls machine code past Python (ctypes, cffi)"),
    "exit": (True, "leaves its process, or leaves something behind for its end"),
    "processes": (True, "forks, leaves its session, or signals processes"),
    "forged": (True, "prints something that looks like an evaluator's result"),
    "lying": (True, "numbers or lists with comparisons of their own"),
    "known_copy": (True, "holds the known answer that the task ships"),
    "admits": (True, "admits in words that it games the evaluator"),
    "certified_gap": (True, "the exact verifier certifies less than was scored"),
    "not_accepted": (True, "scored, but the exact verifier does not accept it"),
    "forgiven": (True, "scores by a tolerance of the evaluator: a tenth of it refuses the output"),
    "edge": (
        True,
        "scores by the last hair before a refusal, beyond an output that is nearly equal",
    ),
    "beyond_known": (True, "better than the best value known to be true, and not certified"),
    "moves": (False, "the same evaluation gave different scores on a task declared deterministic"),
    "record": (
        False,
        "certified beyond the best value known: a record, or the declared value is old",
    ),
    "rounding": (False, "certified a little less than scored: rounding of a solver"),
    "leans": (
        False,
        "scores less once a tolerance of the evaluator is smaller: a solver's rounding, or a "
        "threshold",
    ),
    "lucky": (False, "fresh evaluations were worse than what the search saw"),
    "tolerance": (False, "works with a tolerance or pushes numbers outwards by a tiny amount"),
    "mentions": (False, "mentions a tolerance as something to stay within"),
    "clocks": (False, "reads clocks"),
    "literals": (False, "holds many numbers that no seed has"),
}
"""All signs: (grave, meaning) by name."""

PRINTED_MARK = "printed, at the end:"
"""Separates the message of a failed evaluation from the end of the printed output."""

DIFFERENCE = "difference"
"""The artifact that says how another ecosystem's package would count the same answer."""

LOG, EVALUATOR_LOG = "log", "evaluator log"
"""Artifacts with printed output: the candidate's, and the evaluator's own.

A Python function's log has the output of both; the other is of an evaluator in a process of its
own. It is for people alone: it may reveal the answers.
"""

BARRED = "integrity_"
"""Prefix of the `reason` of an observation rejected for a sign; the sign's name follows."""


class RoleUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Number and cost of the questions that an evaluation asked one model in one role.

    `errors` are attempts that the provider answered with a status of 5xx, and that cost nothing.
    """

    role: str
    model: str
    asked: int = 0
    usage: Usage = Usage()
    errors: int = 0


OUTPUT = "output"
"""The artifact with the candidate's output for a case.

An artifact of that name from the evaluator itself takes precedence.
"""

TRAJECTORY = "trajectory.json"
"""The artifact with an agent's steps in a rollout (ATIF), for people: models read its digest."""

CONVERSATION = "conversation"
"""The artifact with the questions that an evaluator asked models, and the answers."""


REFUSED = "refused"
"""Reason of an observation whose evaluator reports its own failure."""


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """An evaluator's own words, beside a number, that it or the program failed.

    `whole`: the answer itself reports it by a status, a validity or an error, not by a text alone.
    `absent` is the missing thing: "service" (a judge, a server), "package" (a package, a program, a
    device) or "". `raised`: the words are not the evaluator's but those of an
    exception that the program raised to it, and that it scored.
    """

    words: str
    whole: bool = False
    absent: str = ""
    raised: bool = False


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One evaluation of one candidate on one case (`case` = "" when the task has no data set).

    `score` is in the task's own direction and unit, a finite float exactly when `status` is ok.
    `reason` is a short machine word refining the status (memory_limit, nan_score, ...), `feedback`
    text for people and models, `seconds` the wall time of the evaluation, `seed` the seed of the
    candidate's random state, `evaluator` the digest of the evaluator, `trust` the level of trust in
    the score (`LEVELS`; "": unknown).

    If the task's verifier was asked, `strict` is True if the output passed it unchanged, with zero
    tolerance, and `certified` is the exact value of the output or of its strictly feasible repair,
    rounded towards the worse side (None: not accepted). The exact form is the artifact
    "certificate".

    `signs` are the signs of gaming found; if the run rejected the observation for one, `reason`
    names it.

    `asked` is the evaluator's use of models, by role and model; `usage` has the sum.

    `culprit` is one of `CULPRITS` if the evaluation showed more than status and reason express;
    read it with `culprit_of`.

    `drew` names the random generators that moved from where the evaluation's seed had set them
    ("evaluator.rng", "program random"): with another seed the score may differ. `left` names what
    the evaluation changed in its process ("os.environ", "data ITEMS"); the next one did not find
    it, unless the evaluator keeps state. A file is named ("file log.txt") by the evaluation
    during which it was first seen to be written beside the evaluator.

    `refusal` has the words of an answer that says that it failed (`core.answers`).
    """

    candidate: str
    status: Status
    score: float | None = None
    case: str = ""
    reason: str = ""
    metrics: dict[str, float] = {}
    feedback: str = ""
    seconds: float = 0.0
    seed: int = 0
    evaluator: str = ""
    trust: str = ""
    artifacts: dict[str, str] = {}
    usage: Usage = Usage()
    certified: float | None = None
    strict: bool | None = None
    signs: tuple[Sign, ...] = ()
    asked: tuple[RoleUsage, ...] = ()
    culprit: str = ""
    drew: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    refusal: Refusal | None = None

    @property
    def ok(self) -> bool:
        """True if there is a score."""
        return self.status is Status.OK

    @property
    def readable_artifacts(self) -> list[tuple[str, str]]:
        """The artifacts that models may read, by name: texts, without logs and certificates."""
        hidden = (LOG, EVALUATOR_LOG, DIFFERENCE, TRAJECTORY, "certificate")
        return [
            (name, text)
            for name, text in sorted(self.artifacts.items())
            if name not in hidden and not is_picture(text)
        ]

    @property
    def last_words(self) -> str:
        """The last line of the feedback, printed output excluded; a compiler's first error."""
        feedback = self.feedback.partition(PRINTED_MARK)[0].strip() or self.feedback.strip()
        if self.reason == "build":
            lines = feedback.splitlines()
            return next((line for line in lines if "error" in line.lower()), lines[0]).strip()
        return feedback.rpartition("\n")[2].strip()

    @property
    def failure_kind(self) -> str:
        """Common mark of failures that are alike, "" for a score.

        Status, reason and last line of the feedback with numbers left out and, unless the
        candidate's text raised, the evaluator's line: ` @ evaluator.py:12`.
        """
        if self.ok:
            return ""
        evaluator_line = _evaluator_place(self)
        words = _VARYING.sub("#", self.last_words)[:400]
        return f"{self.status.value} {self.reason} {words}" + (
            f" @ {evaluator_line}" if evaluator_line else ""
        )

    @property
    def is_repeatable(self) -> bool:
        """True for a failure that might not recur: not an error that a text always makes."""
        if self.status not in (Status.ERROR, Status.TIMEOUT, Status.INVALID):
            return False
        return not _PERMANENT.search(self.last_words)

    @property
    def may_be_chance(self) -> bool:
        """True for a failure of the evaluator that may be gone the next time.

        Its own line raised, or its answer reports a failure; not by an error that the same text
        or the same data make again.
        """
        if culprit_of(self) == "candidate" or _OF_DATA.search(self.last_words):
            return False
        is_evaluators = self.reason == REFUSED or bool(place_in(self.failure_kind))
        return self.is_repeatable and is_evaluators

    @property
    def grave_sign(self) -> Sign | None:
        """The first grave sign, None if there is none."""
        return next((sign for sign in self.signs if sign.grave), None)

    @property
    def bars_candidate(self) -> bool:
        """True if it was rejected for a sign, which bars its candidate from being the best."""
        return self.status is Status.REJECTED and self.reason.startswith(BARRED)


_PERMANENT = re.compile(
    r"\b(Syntax|Indentation|Name|Import|ModuleNotFound|FileNotFound|Attribute|Type)Error\b"
    r"|\bNo module named\b"
)
_OF_DATA = re.compile(r"\b(Key|Index|ZeroDivision|Assertion)Error\b")
CHANCE_LOOKS = 8
"""Failures in a row of an initial program that may be chance, until it is given up.

Of an evaluator that fails in 30 % of evaluations, 1 of 15,000 is given up by mistake.
"""

_VARYING = re.compile(r"0x[0-9a-f]+|\d+")
_PLACED = re.compile(r" @ (.+:\d+)$")  # no other part of a kind contains a number

CULPRITS = ("candidate", "scorer", "provider", "machine", "budget")
"""Origins of failures.

The candidate · the evaluator's own text · a model or service that it asks · this machine or another
one · a budget that had no room.
"""

# undecided by one observation alone: the candidate's output may have made the evaluator fail
_UNDECIDED = {
    Status.INVALID: (
        "scorer_raised",
        "score_not_a_number",
        "score_out_of_bounds",
        "score_missing",
        "metric_missing",
        "text_read",
    ),
    Status.ERROR: ("", "exception", "exit", "crash", "no_output"),
    Status.REJECTED: ("scorer_stalled",),
}
_LOST = {"provider_away": "provider", "scorer_error": "scorer"}


def culprit_of(observation: Observation) -> str:
    """One of `CULPRITS`, by status and reason if the observation names none.

    "" for a score, and if one observation cannot decide between candidate and evaluator.
    """
    if observation.ok or observation.culprit:
        return observation.culprit
    status, reason = observation.status, observation.reason
    if status is Status.LOST:
        return _LOST.get(reason, "budget" if reason.startswith("budget_") else "machine")
    return "" if reason in _UNDECIDED.get(status, ()) else "candidate"


def is_excused(observation: Observation) -> bool:
    """True if the failure is not its candidate's fault, and so never counts against it."""
    return culprit_of(observation) in CULPRITS[1:]


def place_in(kind: str) -> str:
    """The evaluator's `file:line` named in a kind of failure, "" if there is none."""
    match = _PLACED.search(kind)
    return match[1] if match else ""


def _evaluator_place(observation: Observation) -> str:
    if culprit_of(observation) not in ("", "scorer"):
        return ""
    place = errors.place_in_text(observation.feedback.partition(PRINTED_MARK)[0])
    if place is None or errors.is_jailed(place.file):
        return ""
    return f"{os.path.basename(place.file)}:{place.line}"


FILE_MARK = "file "
"""Beginning of a value of `Observation.left` that names a file."""


def mark_files(names: Iterable[str]) -> tuple[str, ...]:
    """Names of files that an evaluation wrote, as values of `Observation.left`."""
    return tuple(FILE_MARK + name for name in names)


def names_of_files(left: Iterable[str]) -> tuple[str, ...]:
    """The inverse: names of files among values of `Observation.left`, sorted."""
    return tuple(
        sorted(each.removeprefix(FILE_MARK) for each in left if each.startswith(FILE_MARK))
    )


class Rollout(msgspec.Struct, frozen=True):
    """One candidate with the observations of one `lab.evaluate` (paper: S_theta).

    Observations and rewards are in the order of the cases.
    """

    candidate: Candidate
    observations: tuple[Observation, ...]
    # higher is better whatever the task's direction; None without a score
    rewards: tuple[float | None, ...]

    @property
    def reward(self) -> float | None:
        """Mean reward over the scored observations; None if any of them failed or none was made."""
        if not self.rewards or any(r is None for r in self.rewards):
            return None
        return sum_floats(r for r in self.rewards if r is not None) / len(self.rewards)


LEVELS = ("certified", "verified", "proxied", "self-reported")
SHOWN = {
    "verified": "scored apart"
}  # display names of levels whose own name would promise too much

MEANINGS = {
    "certified": "the task's exact verifier vouches for the value",
    "verified": "in a process that candidate code never enters, from plain data",
    "proxied": (
        "scored by evaluate(path) in a jailed process of its own; the candidate answered from "
        "another one"
    ),
    "self-reported": "evaluator and candidate share a process, so a candidate can forge its score",
}


class Scoring(msgspec.Struct, frozen=True, omit_defaults=True):
    """Trust in a run's scores: the level `trust`, and `why` it is not the form's strongest.

    `accept` names the values besides plain finite data that an evaluator at level proxied takes
    from a candidate.
    """

    trust: str = ""
    why: str = ""
    accept: tuple[str, ...] = ()


class BackendNote(NamedTuple):
    """A remark of a backend on its evaluator, for people: a problem and its remedy."""

    what: str
    fix: str = ""


def trust_rank(level: str) -> int:
    """Rank of a level of trust: 0 for the strongest.

    "" (unknown) counts as self-reported. Raises ValueError for an unknown name.
    """
    return LEVELS.index(level or LEVELS[-1])


def weakest_trust(levels: Iterable[str]) -> str:
    """The level of a value made from several: that of its weakest part; "" if there are none."""
    return max((level or LEVELS[-1] for level in levels), key=trust_rank, default="")


def meets_trust_level(level: str, wanted: str) -> bool:
    """True if `level` is at least as strong as `wanted`."""
    return trust_rank(level) <= trust_rank(wanted)
