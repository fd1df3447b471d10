"""Facts about a run and its result: what sentences are made of, read once from the journal."""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import msgspec

from culmen.core import errors
from culmen.core.evaluation import Observation, Refusal
from culmen.core.foreign import parse_python_or_none
from culmen.core.json import JsonObject
from culmen.core.result import NoiseReport, RunResult
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget
from culmen.report.figures import run_name, short_path
from culmen.store import views
from culmen.store.reader import JournalObservations
from culmen.store.views import Front, ProgressPoint, RunStatus
from culmen.store.views.evaluations import FailureCauses
from culmen.store.views.run import FewTurns, Spent, Unanswered

LOOKED = 200  # evaluations read, and failed ones
NOTABLE = 0.05  # share of failed evaluations, or three of them, from which on they are read
STALL = 30  # smallest number of evaluations of a stall


def task_root(task: Task) -> str:
    """The folder that names a task to a verb; "" for the task of a command, which has none."""
    is_command = task.evaluator.program and not Path(task.root, "task.toml").is_file()
    return "" if is_command else task.root


def check_command(form: str, root: str) -> str:
    """The command that tests a task without a search; "" for one that lies in no folder."""
    if form == "function":
        return "culmen.check(seed, evaluator)"
    if not root or (form == "rollout" and not Path(root, "task.toml").is_file()):
        return ""
    return f"culmen check {shlex.quote(short_path(root))}"


_COMBINED = ("score", "se", "margin", "search_score", "initial", "challenger")
_COMBINED += ("gain", "gain_margin")


def result_document(best: RunResult) -> JsonObject:
    """The result as plain data; a front has no combined score, as its weights are not given."""
    document = msgspec.to_builtins(best)
    return document | dict.fromkeys(_COMBINED) if best.front else document


class Facts(msgspec.Struct, frozen=True):
    """Facts at one moment; the defaults are those of a finished run of which nothing is known.

    `run` is the run's name in commands; `state` is the one that the journal records, the fields
    from it to `drew` are those of `RunStatus`. `initials`
    is the number of initial programs, `carried` that of candidates of another run or a pool, which
    a search starts from, too, `form` the evaluator's, `cases` of training cases, `seconds` an
    evaluation's limit; `is_marked`: markers bound what may change; `inherits`: it began with
    candidates or results of another run. The rest is read where the numbers before may call for a
    sentence on it: `requests` for candidates, `failed` and `seen` evaluations (the first ones),
    `points` of the best so far, seconds of evaluations that the end `cut` off, the first program's
    score, the first evaluation that `scored`, and those `paying`: of programs that failed and yet
    score more than the initial one.
    """

    run: str = "RUN"
    result: RunResult | None = None
    front: Front | None = None
    objective: Objective = Objective()
    noise: NoiseReport = NoiseReport()
    state: str = "finished"
    reason: str = ""
    error: str = ""
    evaluations: int = 0
    candidates: int = 0
    workers: int = 1
    budget: Budget = Budget()
    usage: Spent = Spent()
    statuses: dict[str, int] = {}
    failures: dict[str, int] = {}
    faults: dict[str, int] = {}
    server_errors: int = 0
    unanswered: tuple[Unanswered, ...] = ()
    models: dict[str, str] = {}
    findings: int = 0
    integrity: str = "warn"
    best_before_first_finding: RunResult | None = None
    few_turns: FewTurns | None = None
    drew: dict[str, int] = {}
    initials: int = 1
    carried: int = 0
    cases: int = 1
    seconds: float = 60.0
    deterministic: bool = False
    form: str = ""
    has_own_model: bool = False
    is_marked: bool = False
    root: str = ""
    inherits: bool = False
    bank: int = 0
    requests: int = 0
    causes: FailureCauses = FailureCauses(0, 0)
    failed: tuple[Observation, ...] = ()
    seen: tuple[Observation, ...] = ()
    points: tuple[ProgressPoint, ...] = ()
    cut: tuple[float, ...] = ()
    first_score: float | None = None
    scored: Observation | None = None
    paying: tuple[Observation, ...] = ()

    @property
    def is_finished(self) -> bool:
        """True if the search and its final choice are over."""
        return self.state == "finished"

    @property
    def has_failed(self) -> bool:
        """True for a run that broke, or that ended without a score."""
        scored = self.result is not None or self.statuses.get("ok") or not self.evaluations
        return self.state == "failed" or (self.is_finished and not scored)

    @property
    def so_far(self) -> str:
        """` so far` unless the run has finished."""
        return "" if self.is_finished else " so far"

    @property
    def is_compared(self) -> bool:
        """True if the result can be compared with the initial program."""
        best = self.result
        if best is None or best.initial is None:
            return False
        return best.kept_initial or best.gain is not None or not best.confirmed

    @property
    def is_alone(self) -> bool:
        """True if no candidate but initial programs has scored."""
        best = self.result
        if best is None or best.front or best.initial is None or best.id != best.initial.id:
            return False
        return best.challenger is None and best.scored <= self.initials

    @property
    def is_untried(self) -> bool:
        """True if nothing but initial programs was evaluated."""
        return self.is_alone and not set(self.statuses) - {"ok"}

    @property
    def gain(self) -> float:
        """Gain of the result over the initial program, positive if better; 0 without one."""
        best = self.result
        if best is None or best.initial is None or best.initial.id == best.id:
            return 0.0
        if best.confirmed:
            return best.score_difference(best.gain or 0.0, 0.0)
        return best.score_difference(best.score, best.initial.score)

    @property
    def gain_margin(self) -> float:
        """Margin of the gain: the paired one, or that of two estimates of the search; 0: none."""
        best = self.result
        if best is None or best.initial is None:
            return 0.0
        if best.confirmed:
            return best.gain_margin or 0.0
        return math.hypot(best.margin or 0.0, best.initial.margin or 0.0)

    @property
    def new_candidates(self) -> int:
        """Number of candidates besides those that the search started from."""
        return max(0, self.candidates - self.initials - self.carried)

    @property
    def is_offline(self) -> bool:
        """True if no language model proposes."""
        return set(self.models.values()) <= {"offline"}

    @property
    def model(self) -> str:
        """Name of the model that proposes, for use in a sentence."""
        if self.is_offline:
            return "the offline proposer"
        return self.models.get("proposer") or self.models.get("default", "the model")

    @property
    def best_possible(self) -> float | None:
        """The best score within the task's bounds; None without a bound."""
        low, high = self.objective.bounds
        return high if self.objective.direction == "max" else low

    @property
    def level(self) -> float | None:
        """The score at which nothing more is wanted: the target, or the best possible one."""
        return self.best_possible if self.objective.target is None else self.objective.target

    @property
    def is_met(self) -> bool:
        """True if the result is at that level."""
        best, level = self.result, self.level
        return best is not None and level is not None and self.meets(best.value, level)

    def meets(self, score: float, level: float) -> bool:
        """True if a score is at least as good as a level."""
        return self.objective.reward(score) >= self.objective.reward(level)

    # Commands that sentences propose.

    @property
    def check_command(self) -> str:
        """The command that tests the task without a search, or shows what happened."""
        return check_command(self.form, self.root) or f"culmen show {self.run} --log"

    @property
    def resume_command(self) -> str:
        """The command that continues an interrupted run."""
        if own := ", ".join(self._own_objects):
            return f'culmen.Study.resume("{self.run}", {own}).run()'
        return f"culmen resume {self.run}"

    @property
    def _own_objects(self) -> list[str]:
        """Keywords for the Python objects without which the run cannot go on."""
        wanted = {"evaluator": self.form == "function", "model": self.has_own_model}
        return [f"{name}={name}" for name, is_wanted in wanted.items() if is_wanted]

    @property
    def budget_extension(self) -> str:
        """The amount of the budget that ended the run, once more; "" if no budget did."""
        return self.budget.extension_text(self.reason)

    def fork_command(self, options: str = "", more: bool = False) -> str:
        """The command that continues with other options and reuses earlier results.

        With `more`, also with as much again of the budget that ended the run.
        """
        if more and self.budget_extension:
            options = f"{options} --budget {self.budget_extension}".strip()
        if own := self._own_objects:
            keywords = self._keywords(options)
            if any(each.startswith("model=") for each in keywords):
                own = [each for each in own if each != "model=model"]
            return f'culmen.Study.fork("{self.run}", {", ".join([*own, *keywords])}).run()'
        return f"culmen runs fork {self.run} {options}".rstrip()

    def _keywords(self, options: str) -> list[str]:
        """Options of the command line as keywords of `Study.fork`; a budget with its totals."""
        keywords: list[str] = []
        for option in re.split(r"(?:^|\s)--", options)[1:]:
            name, _, value = option.strip().partition(" ")
            if name == "set":  # of the run's own settings alone
                name, _, value = value.partition("=")
            name = "models_file" if name == "models" else name.replace("-", "_")
            text = " ".join(shlex.split(value))
            if name == "budget" and "--carry" not in options:
                text = re.sub(r"(\w+)=\+([\d.]+)", self._total_limit, text)
            text = text.replace("=+", "=")  # all that a fork makes that carries candidates
            is_plain = not value or text.isdecimal()
            keywords.append(f"{name}={(text or True) if is_plain else json.dumps(text)}")
        return keywords

    def _total_limit(self, extension: re.Match[str]) -> str:
        """`evaluations=400` for `evaluations=+200` of a run with 200."""
        total = (getattr(self.budget, extension[1], None) or 0) + float(extension[2])
        return f"{extension[1]}={total:g}" if total < 1e6 else f"{extension[1]}={total:.0f}"


_OF_STATUS = [name for name in Facts.__struct_fields__ if name in RunStatus.__struct_fields__]


def result_facts(run: Path, now: RunStatus | None = None, name: str = "") -> Facts:
    """The facts of a run's result, which are quick to read; `name` as in `read_facts`."""
    now, meta = now or views.run_status(run), views.run_meta(run)
    task, front = meta.task, views.pareto_front(run)
    return Facts(
        **{field: getattr(now, field) for field in _OF_STATUS if field not in ("run", "state")},
        run=name or run_name(run),
        state=now.recorded,
        result=now.best,
        front=front,
        objective=task.objective,
        noise=NoiseReport() if now.best is None else now.best.noise,
        initials=len(task.seeds),
        carried=len(task.carried),
        cases=len(task.split("train")),
        seconds=task.limits.seconds or 60,
        deterministic=bool(task.deterministic),
        form=task.evaluator.form,
        has_own_model=meta.has_own_model,
        is_marked=_is_marked(task),
        root=task_root(task),
        inherits=bool(meta.fork_of or meta.pool),
        bank=len(meta.bank),
    )


def _is_marked(task: Task) -> bool:
    """True if markers bound what may change in an initial program."""
    texts = (text for seed in task.seeds for text in seed.values())
    return task.surface.markers != "off" and any("EVOLVE-BLOCK-START" in text for text in texts)


def read_facts(run: Path, now: RunStatus | None = None, name: str = "") -> Facts:
    """All facts of a run at this moment.

    `name` is the run's name in commands ("": a name that works in this folder).
    """
    facts = result_facts(run, now, name)
    failed = sum(facts.statuses.values()) - facts.statuses.get("ok", 0)
    many = failed >= min(3, NOTABLE * facts.evaluations) and failed > 0
    seen = tuple(islice(views.stream_observations(run), LOOKED)) if many else ()
    failures = views.stream_observations(run, ok=False)
    return msgspec.structs.replace(
        facts,
        requests=sum(row.effects for row in views.call_costs(run) if row.effect == "propose"),
        causes=views.failure_causes(run) if failed or facts.error else facts.causes,
        seen=seen,
        failed=tuple(islice(failures, LOOKED)) if many else (),
        points=tuple(views.progress_points(run)) if _needs_points(facts) else (),
        cut=tuple(views.cut_off_evaluations(run)) if facts.reason == "seconds" else (),
        first_score=_first_score(run, facts.result),
        scored=None
        if facts.result is None
        else next(views.stream_observations(run, ok=True), None),
        paying=_paying_failures(run, facts),
    )


def _paying_failures(run: Path, facts: Facts) -> tuple[Observation, ...]:
    """Scores above the initial program's of programs that failed, with words on the failure.

    Their evaluator reports it, or got an exception of theirs, or their text does nothing.
    """
    best = facts.result
    if best is None or best.initial is None or facts.gain <= 0:
        return ()
    reward, level = facts.objective.reward, best.initial.score
    seen = islice(views.stream_observations(run), LOOKED)
    above = [o for o in seen if o.score is not None and reward(o.score) > reward(level)]
    leaders = list(dict.fromkeys([best.id, *(o.candidate for o in above if o.score == best.score)]))
    words = {name: _emptiness(run, name) for name in leaders[:10]}
    refusals = [o.refusal or Refusal(words.get(o.candidate, "")) for o in above]
    pairs = zip(above, refusals, strict=True)
    return tuple(msgspec.structs.replace(o, refusal=said) for o, said in pairs if said.words)


_IDLE = (ast.Pass, ast.Raise)


def _emptiness(run: Path, candidate: str) -> str:
    """Words on a candidate whose Python cannot be parsed, or whose functions all do nothing."""
    for name, text in JournalObservations(run).candidate(candidate).parts.items():
        if not name.endswith(".py"):
            continue
        tree = parse_python_or_none(text)
        if tree is None:
            return f"{name} is no Python"
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        if functions and all(_is_idle(each) for function in functions for each in function.body):
            return f"the functions of {name} do nothing"
    return ""


def _is_idle(statement: ast.stmt) -> bool:
    """True for a statement of a function that returns nothing."""
    if isinstance(statement, ast.Return):
        value = statement.value
        return value is None or (isinstance(value, ast.Constant) and value.value is None)
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, _IDLE)


def _needs_points(facts: Facts) -> bool:
    """True if the search may have stalled, or met its target early."""
    return facts.is_met or facts.evaluations >= 2 * STALL


def _first_score(run: Path, best: RunResult | None) -> float | None:
    if best is None or best.initial is not None:
        return None if best is None or best.initial is None else best.initial.score
    first = next(iter(views.candidate_rows(run, "old", operator="seed", limit=1)), None)
    return None if first is None else first.mean


def common_failure(failed: Sequence[Observation]) -> Observation | None:
    """The first failure of the most frequent kind."""
    kinds = Counter(each.failure_kind for each in failed)
    return max(failed, key=lambda each: kinds[each.failure_kind], default=None)


def last_words(failed: Observation) -> str:
    """The evaluator's last line on a failed evaluation; else the reason of the failure."""
    line = failed.last_words.rstrip(".")
    return line[:200] if line else (failed.reason or failed.status.value).replace("_", " ")


def failure_location(failed: Observation) -> str:
    """The user's own `file:line` in a traceback; "" without one."""
    location = errors.place_in_text(failed.feedback)
    return "" if location is None else location.file_and_line


_NAMED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit|Interrupt|Invalid))\b")


def kind_of(words: str) -> str:
    """`SyntaxError` from the last line of feedback or, without an exception in it, the reason.

    `words` are the reason and that line, as `FailureCauses` joins them.
    """
    reason, _, last = words.partition("\n")
    named = _NAMED.match(last)
    return named[1].rpartition(".")[2] if named else reason.replace("_", " ")


def is_exception(kind: str) -> bool:
    """True for the name of an exception."""
    return bool(_NAMED.match(kind))


def failure_key(failed: Observation) -> str:
    """Reason and last line of a failed evaluation, as `FailureCauses` joins them."""
    return f"{failed.reason or failed.status.value}\n{failed.last_words}"
