"""A task: the texts to improve, their evaluation, and its limits."""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import msgspec

from culmen.core.candidate import CARRIED, Candidate, Origin
from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import Case, Observation
from culmen.core.json import JsonObject
from culmen.core.options import TaskDefaults

# Several objectives of a task: metrics with directions, and constraints on metrics.

Way = Literal["max", "min"]
_PENALTY = 10.0  # weight of a violated constraint in the combined score, relative to an objective


def parse_direction(text: object, where: str = "direction") -> Way:
    """The direction of better scores in a user's word: max, maximize, maximise, MIN, ...

    Raises `UserError` for any other word.
    """
    word = text.strip().lower() if isinstance(text, str) else ""
    if word in ("max", "maximize", "maximise"):
        return "max"
    if word in ("min", "minimize", "minimise"):
        return "min"
    raise UserError(
        f"unknown direction {text!r}",
        where=where,
        fix="write max (or maximize) or min (or minimize)",
    )


class MetricGoal(msgspec.Struct, frozen=True, omit_defaults=True):
    """One objective: a metric that every evaluation must report, and its better direction.

    `reference` is the worst value that counts, one coordinate of the reference point of the
    hypervolume (None: found from the candidates). `unit` is the size of a typical value, used by
    the combined score alone (0: the reference's, else 1).
    """

    name: str
    direction: Way = "max"
    reference: float | None = None
    unit: float = 0.0

    def reward(self, value: float) -> float:
        """The value turned so that higher is better; its own inverse."""
        return value if self.direction == "max" else -value

    @property
    def effective_unit(self) -> float:
        """The unit in force."""
        return self.unit or abs(self.reference or 0.0) or 1.0


class Constraint(msgspec.Struct, frozen=True):
    """`metric <= level` or `metric >= level`."""

    metric: str
    sense: Literal["<=", ">="]
    level: float

    def __str__(self) -> str:
        return f"{self.metric} {self.sense} {self.level:g}"

    def excess(self, value: float) -> float:
        """Amount by which a value violates the constraint, 0 if it does not."""
        return max(0.0, value - self.level if self.sense == "<=" else self.level - value)


def parse_constraint(text: object, where: str = "constraints") -> Constraint:
    """`latency <= 20` as a `Constraint`. Raises `UserError` for any other form."""
    match = (
        re.fullmatch(r"\s*(.+?)\s*(<=|>=|<|>)\s*(\S+)\s*", text) if isinstance(text, str) else None
    )
    try:
        level = float(match[3]) if match else math.nan
    except ValueError:
        level = math.nan
    if match is None or not math.isfinite(level):
        raise UserError(
            f"{text!r} is not a constraint",
            where=where,
            fix="write METRIC <= NUMBER or METRIC >= NUMBER",
        )
    return Constraint(match[1], "<=" if match[2][0] == "<" else ">=", level)


def parse_metric_goals(goals: Mapping[str, object]) -> tuple[MetricGoal, ...]:
    """`{"accuracy": "max", "latency": {"direction": "min", "reference": 100}}` as objectives.

    Raises `UserError` for any other form.
    """
    return tuple(
        _parse_metric_goal(str(name), value, f"objectives: {name}") for name, value in goals.items()
    )


def _parse_metric_goal(name: str, goal: object, where: str) -> MetricGoal:
    table = cast("Mapping[str, object]", goal) if isinstance(goal, Mapping) else {"direction": goal}
    if unknown := table.keys() - {"direction", "reference", "unit"}:
        raise UserError(
            f"unknown key {sorted(unknown)[0]!r}", where=where, fix="use direction, reference, unit"
        )
    numbers: dict[str, float] = {}
    for key in ("reference", "unit"):
        value = table.get(key)
        if value is None:
            continue
        number = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value)
        if not math.isfinite(number) or (key == "unit" and number <= 0):
            raise UserError(
                f"{key} = {value!r} is not acceptable",
                where=where,
                fix=f"give {key} as a finite number",
            )
        numbers[key] = number
    return MetricGoal(
        name,
        parse_direction(table.get("direction", "max"), where),
        **numbers,
    )


def missing_metrics(
    metrics: Mapping[str, float],
    objectives: Sequence[MetricGoal],
    constraints: Sequence[Constraint],
) -> tuple[str, ...]:
    """Names that the objectives and constraints need and that have no finite value."""
    named = dict.fromkeys(
        [*(goal.name for goal in objectives), *(each.metric for each in constraints)]
    )
    return tuple(name for name in named if not math.isfinite(metrics.get(name, math.nan)))


def combined_score(
    metrics: Mapping[str, float],
    objectives: Sequence[MetricGoal],
    constraints: Sequence[Constraint],
) -> float:
    """One score of several metrics, for strategies that need a single score.

    The mean of asinh(value / unit), each turned so that higher is better, minus ten times the
    distance to each violated constraint on the same scale. asinh is linear for values well below
    the unit and logarithmic above it, so that a metric of large numbers does not drown the others.
    """
    units = {goal.name: goal.effective_unit for goal in objectives}
    score = math.fsum(
        goal.reward(math.asinh(metrics[goal.name] / goal.effective_unit)) for goal in objectives
    ) / len(objectives)
    for each in constraints:
        unit = units.get(each.metric) or abs(each.level) or 1.0
        if each.excess(metrics[each.metric]):
            score -= _PENALTY * abs(
                math.asinh(metrics[each.metric] / unit) - math.asinh(each.level / unit)
            )
    return score


# share by which a score must pass the best known value before it counts as beyond it
KNOWN_SLACK = 1e-9
WIDEST = 1e100  # largest magnitude of a score: statistics add up squares of scores


IMAGE_PREFIX = "docker:"
"""Prefix of an evaluator that is a container's image, for podman too."""


class Objective(msgspec.Struct, frozen=True, omit_defaults=True):
    """Direction and levels of the score.

    `bounds` are the values that an honest score can take (None: open). `known` is the best value
    known to be true: a score beyond it is a record or an error, and is checked at once. With
    `metrics` there are several objectives, or `constraints` on some: then the score is `combined`.
    """

    direction: Way = "max"
    start: float | None = None
    target: float | None = None
    bounds: tuple[float | None, float | None] = (None, None)
    known: float | None = None
    metrics: tuple[MetricGoal, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    def reward(self, score: float) -> float:
        """The score turned so that higher is better."""
        return score if self.direction == "max" else -score

    def score(self, reward: float) -> float:
        """The inverse of `reward`."""
        return reward if self.direction == "max" else 0.0 - reward  # never -0.0

    def reaches_target(self, score: float) -> bool:
        """True if a target is declared and met."""
        return self.target is not None and self.reward(score) >= self.reward(self.target)

    def is_beyond_known(self, score: float) -> bool:
        """True if a score is better than the best known value by more than rounding."""
        known = self.known
        return known is not None and self.reward(score) > self.reward(known) + KNOWN_SLACK * max(
            1.0, abs(known)
        )

    def score_fault(self, score: object) -> str:
        """The reason that a score is not acceptable, "" if it is.

        Only finite int or float inside the bounds are acceptable; `WIDEST` bounds an open side.
        """
        if isinstance(score, bool) or not isinstance(score, int | float):
            return "score_not_a_number"
        try:
            value = float(score)
        except OverflowError:
            return "score_infinite"
        if math.isnan(value):
            return "score_nan"
        if math.isinf(value):
            return "score_infinite"
        low, high = self.bounds
        if (
            (low is not None and value < low)
            or (high is not None and value > high)
            or abs(value) > WIDEST
        ):
            return "score_out_of_bounds"
        return ""

    @property
    def floor(self) -> float | None:
        """The lowest reward the bounds allow, None if that side is open."""
        worst = self.bounds[0] if self.direction == "max" else self.bounds[1]
        return None if worst is None else self.reward(worst)

    @property
    def reward_range(self) -> tuple[float, float]:
        """The lowest and the highest reward the bounds allow; infinite at an open side."""
        low, high = self.bounds
        ends = (-math.inf if low is None else low, math.inf if high is None else high)
        return ends if self.direction == "max" else (-ends[1], -ends[0])


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits of one evaluation, and of the process that runs several.

    Wall seconds, megabytes of memory and of files, processes, kilobytes of output kept.
    `scorer_memory_mb` is what judging one output may take beyond the memory of the loaded
    evaluator. `calls` is the number of evaluations after which the process of a Python function is
    replaced; 1: each evaluation has a process of its own, as candidates in the jail always have.
    """

    seconds: float = 60.0
    memory_mb: int = 2048
    processes: int = 64
    files_mb: int = 256
    output_kb: int = 1024
    scorer_seconds: float = 60.0
    calls: int = 1000
    scorer_memory_mb: int = 2048


LONGEST_SECONDS = 366 * 86_400.0
"""A year: the longest time limit, so that no clock of a system overflows."""


def limit_fault(name: str, value: object) -> str:
    """The reason for which a number cannot be this limit of an evaluation; "" if it can.

    Times are in seconds. A text is no number.
    """
    is_time = isinstance(Limits.__struct_defaults__[Limits.__struct_fields__.index(name)], float)
    # the largest whole number that resource limits and stores hold
    most = LONGEST_SECONDS if is_time else 2**31 - 1
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"must be a number, not {value!r:.60}"
    shown = f", not {value:g}" if abs(value) <= 1e308 else ""  # a larger one has no such form
    return "" if 0 < value <= most else f"must be above 0 and at most {most:.0f}{shown}"


def check_limits(limits: Limits) -> None:
    """Raise `UserError` if a limit is no number that can be one."""
    for name in limits.__struct_fields__:
        if fault := limit_fault(name, getattr(limits, name)):
            fix = "Limits(seconds=60) are the seconds of one evaluation"
            raise UserError(f"{name} {fault}", where="limits=", fix=fix)


def checked_seconds(value: object, where: str) -> float:
    """A time limit from somebody's task, in seconds. Raises `TaskError` if it can be none."""
    if fault := limit_fault("seconds", value):
        raise TaskError(f"a time limit {fault}", where=where, fix="write seconds, such as 600")
    return float(cast("float", value))


NOT_PUSHED = "not looked for by pushing"
"""Note about a tolerance that only pushes of the output would show."""

NO_TOLERANCE = f"not checked: {NOT_PUSHED}; the evaluator's text shows no tolerance"
"""Note about a winner whose evaluator has no tolerance, as far as its text shows."""


OWN_FORMS = ("call", "serve", "command")  # of evaluators with score(); culmen runs the program


class Evaluator(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rules for running and judging candidates.

    form        call: the jailed process calls `entry(case.input, ...)` and the scorer (another
                process) judges its data
                serve: the scorer drives the candidate call by call
                command: `command` run in the jail, any language
                legacy: `evaluate(path)` of OpenEvolve, whole inside the jail, the candidate in
                another one (see proxy)
                function: a Python callable of the user's own process
                (`culmen.optimize(evaluator=fn)`)
                rollout: an agent works on the case with the candidate, tests judge its work
                prompt: a model answers the case with the candidate, a label or a model judges
    path        the evaluator file, absolute; "" for function
    entry       name of the candidate's function (call, serve), default "run"
    module      the candidate part that is imported as the program, default the first
    command     argument list; {part} names stand for file paths (command form)
    build       argument list of a compiler that makes files for `command`; run once a candidate
    suffix      file suffix of a legacy program
    thresholds  cascade thresholds (legacy); None: no cascade
    packages    importable package names to preload in the fork-server
    optional_packages  packages that candidates may use: preloaded if they are installed
    features    extra numbers a contract needs, unchanged
    verifier    a file with certify(output, ...), absolute: exact, asked for the final choice only;
                "" for none
    files       SHA-256 of the evaluator and the files beside it, by name; with `:SIZE`, in bytes,
                for data, which may grow. They must not change otherwise while a run lasts
    shown       the text of the evaluator's file that coding agents may read
    program     command of an evaluator that is asked by JSON lines; it runs in the folder of `path`
    url         address of an evaluator that is a server, on the loopback
    image       container image for candidates, with Python; used at level container
    tolerances  True if its text has a number that may be a tolerance, so that a winner may depend
                on it
    proxy       legacy: run the candidate in a process of its own; auto: if its score stays the same
    metric      "speedup": culmen measures the candidate against the evaluator's reference (form
                serve); "": the evaluator's `score` judges
    keeps_state  what an evaluation leaves in the evaluator's process is there for the next one
    """

    form: str = "call"
    path: str = ""
    entry: str = "run"
    module: str = ""
    command: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    suffix: str = ".py"
    thresholds: tuple[float, ...] | None = None
    packages: tuple[str, ...] = ("numpy",)
    optional_packages: tuple[str, ...] = ()
    digest: str = ""
    options: JsonObject = {}
    verifier: str = ""
    files: dict[str, str] = {}
    proxy: Literal["auto", "always", "never"] = "auto"
    metric: str = ""
    shown: str = ""
    program: tuple[str, ...] = ()
    url: str = ""
    image: str = ""
    tolerances: bool = True
    keeps_state: bool = False

    def __post_init__(self) -> None:
        # a default is left out of the digest by its identity, and the form may have been read
        msgspec.structs.force_setattr(self, "form", sys.intern(self.form))

    @property
    def is_python(self) -> bool:
        """True if it is a Python file, and not a function, a program or a server."""
        return self.path.endswith(".py") and not self.program and not self.url


SKILL_FILE = "SKILL.md"  # the part that every skill of a set has


class Surface(msgspec.Struct, frozen=True, omit_defaults=True):
    """The editable text of a task.

    `frozen` parts may never change; with `markers` = enforced, only text between EVOLVE-BLOCK
    markers. With `frontmatter` = frozen, the YAML at the head of a part (between lines ---) may
    not change. With `skills` > 0 a candidate is a set of at most that many skills, folders with a
    SKILL.md each, which may be added, changed and dropped; 0: its parts are those of the first.
    With `tools` a candidate is a set of tools that agents are served, whose names are frozen or
    free.
    """

    frozen: tuple[str, ...] = ()
    markers: Literal["off", "optional", "enforced"] = "optional"
    language: str = "python"
    max_chars: int = 200_000
    frontmatter: Literal["free", "frozen"] = "free"
    skills: int = 0
    tools: Literal["", "frozen", "free"] = ""


class Asks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Use of a model by one evaluation, on average: calls, and tokens of all of them together."""

    calls: float = 1.0
    input: float = 0.0
    output: float = 0.0


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """The problem of a search.

    Paths are absolute; `digest` covers everything that shapes a score. `deterministic` tasks give
    the same observation for the same candidate and case: the lab evaluates once and remembers.
    None: not declared, so it is measured. With `same_draws` all evaluations on one case have the
    same random seed, so programs are compared on one draw. `notes` are warnings for people, from
    the loader (ignored keys, guessed settings). `stated` are scores that a pool states of its
    programs, by the candidate's id: claims, never observations. `asks` is what an evaluation is
    declared to ask of models, by role: forecasts use it, nothing else. `data` names made-up data
    that stand for missing files ("": there are none). `seeds` are the initial programs, `carried`
    the candidates of another run or of a pool that a search starts from besides them.
    `system` is the system text of requests, "" for culmen's own; `island_systems` has those of
    single islands, "" for the common one.
    """

    name: str
    goal: str = ""
    seeds: tuple[dict[str, str], ...] = ()
    evaluator: Evaluator = Evaluator()
    cases: tuple[Case, ...] = ()
    objective: Objective = Objective()
    surface: Surface = Surface()
    limits: Limits = Limits()
    features: tuple[str, ...] = ()
    deterministic: bool | None = None
    system: str = ""
    island_systems: tuple[str, ...] = ()
    defaults: TaskDefaults = TaskDefaults()
    notes: tuple[str, ...] = ()
    root: str = ""
    digest: str = ""
    stated: dict[str, float] = {}
    asks: dict[str, Asks] = {}
    data: str = ""
    same_draws: bool = False
    carried: tuple[dict[str, str], ...] = ()

    @property
    def is_evaluated_once(self) -> bool:
        """True if repeating an evaluation of a candidate on a case could teach nothing."""
        return bool(self.deterministic) or self.same_draws

    @property
    def label(self) -> str:
        """The name for tables; made-up data are named in brackets."""
        return f"{self.name} ({self.data})" if self.data else self.name

    def split(self, name: str) -> tuple[Case, ...]:
        """The cases of one split."""
        return tuple(case for case in self.cases if case.split == name)

    def initial_candidates(self) -> tuple[Candidate, ...]:
        """The initial programs as candidates, without repeats, in their order."""
        unique = {c.id: c for c in (Candidate.of(parts) for parts in self.seeds)}
        return tuple(unique.values())

    def starting_candidates(self) -> tuple[Candidate, ...]:
        """All candidates that a search starts from: the initial programs, then the carried ones."""
        unique = {c.id: c for c in self.initial_candidates()}
        for parts in self.carried:
            candidate = Candidate.of(parts, origin=Origin(CARRIED))
            unique.setdefault(candidate.id, candidate)
        return tuple(unique.values())

    def reward(self, observation: Observation) -> float | None:
        """The observation's score turned so that higher is better; None without a score."""
        return None if observation.score is None else self.objective.reward(observation.score)

    def effective_reward(self, observation: Observation) -> float | None:
        """Like `reward`, of the certified value if there is one; used for bests and thresholds."""
        if observation.score is None or observation.certified is None:
            return self.reward(observation)
        return self.objective.reward(observation.certified)


def digest_pieces(*pieces: bytes | str) -> str:
    """SHA-256 (hex) over length-prefixed pieces."""
    raws: list[bytes] = []
    for piece in pieces:
        raw = piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece
        raws += (len(raw).to_bytes(8, "big"), raw)
    return hashlib.sha256(b"".join(raws)).hexdigest()
