"""Identity, state and cost of a run, and the list of runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

from culmen.core.brief import ANSWERED, LEARNT, SILENT, UNANSWERED, is_unusable, refused_budget
from culmen.core.errors import CulmenError, JournalDamaged, UserError
from culmen.core.evaluation import Scoring, names_of_files
from culmen.core.json import JsonObject
from culmen.core.result import RunResult
from culmen.core.task import NOT_PUSHED, Task
from culmen.core.usage import Budget, Usage, total_usage
from culmen.store.address import (
    Owner,
    has_run,
    is_address,
    journal_file,
    local_folder,
    parse_address,
    read_pointer,
)
from culmen.store.codec import decode_value, escape_text, unescape_text
from culmen.store.database import RunMeta, open_snapshot, read_meta, run_folders
from culmen.store.evidence import RunEvidence, last_state, result_before, result_of
from culmen.store.lease import current_owner
from culmen.store.schema import JUDGED, TABLES
from culmen.store.sidecar import sampling_line
from culmen.store.sql import Connection

if TYPE_CHECKING:
    from culmen.evidence.pedigree import StepLaw


class Spent(msgspec.Struct, frozen=True):
    """Cost of a run.

    Not included, as upper bounds: `possibly_lost` for effects that were cut off (by a crash, or at
    the end of the search), `uncertain` for calls whose reply broke off or did not report its cost.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    cache_hits: int = 0
    possibly_lost: Usage = Usage()
    uncertain: Usage = Usage()


class RunStatus(msgspec.Struct, frozen=True):
    """State of a run.

    `state`: running | interrupted (its process is gone) | paused | finished | failed, which a
    search that ended without a score is, too; `recorded` is finished then. `integrity`
    is the run's reaction to grave signs, `findings` the number of candidates that showed one, and
    `best_before_first_finding` the best candidate by the evidence before the first finding (None:
    no finding). `written` are the names of files that were written beside the evaluator.
    """

    run: str
    path: str
    task: str
    strategy: str
    state: str
    reason: str
    evaluations: int
    in_flight: int
    best: RunResult | None
    usage: Spent
    elapsed_seconds: float
    isolation: str
    scoring: Scoring
    budget: Budget
    models: dict[str, str]
    owner: Owner | None
    statuses: dict[str, int]
    faults: dict[str, int]
    failures: dict[str, int]
    candidates: int
    events: int
    direction: str
    target: float | None
    seed: int
    workers: int
    created: float
    error: str = ""
    integrity: str = "warn"
    findings: int = 0
    best_before_first_finding: RunResult | None = None
    agents: Agents | None = None  # None for strategies without agents
    training: Training | None = None  # None for strategies that train nothing
    sampling: str = ""  # progress of the advisor's replies that are being drawn
    # None if the strategy had enough turns, or while the search runs
    few_turns: FewTurns | None = None
    reserve: KeptReserve | None = None  # of the final choice, if it was planned by the gain
    data: str = ""  # made-up data of the task, in words
    written: tuple[str, ...] = ()
    # evaluations by random generator that they drew from (those with a score), and by what they
    # left in their process; `keeps_state`: it is there for the next one
    drew: dict[str, int] = {}
    left: dict[str, int] = {}
    keeps_state: bool = False
    unanswered: tuple[Unanswered, ...] = ()  # models none of whose answers could be used
    server_errors: int = 0  # attempts answered with a status of 5xx, which no budget counts
    recorded: str = ""

    def budget_share(self, elapsed: float) -> float | None:
        """Used share of the tightest budget after `elapsed` seconds, 0..1; None without a limit."""
        usage = self.usage
        used = {
            "evaluations": self.evaluations,
            "calls": usage.calls,
            "tokens": usage.input_tokens + usage.output_tokens,
            "dollars": usage.dollars,
            "seconds": elapsed,
        }
        limits = ((part, getattr(self.budget, name)) for name, part in used.items())
        return max((min(1.0, part / limit) for part, limit in limits if limit), default=None)

    @property
    def is_finished(self) -> bool:
        """True if the search and its final choice are over."""
        return self.recorded == "finished"

    @property
    def is_unanswered(self) -> bool:
        """True if a search or its evaluator had not one usable answer of a model."""
        return any(each.is_alone for each in self.unanswered)

    @property
    def task_label(self) -> str:
        """The task's name for tables, as `Task.label`."""
        return f"{self.task} ({self.data})" if self.data else self.task

    def __str__(self) -> str:
        """The state for people: labels and values, one a line."""
        limit, best, spent = self.budget.evaluations, self.best, self.usage
        margin = f" ± {best.margin:.2g}" if best is not None and best.margin else ""
        reason = f" ({self.error or self.reason})" if self.error or self.reason else ""
        rows = {
            "run": self.path,
            "state": f"{self.state}{reason}",
            "task": self.task_label,
            "best": "nothing has scored yet"
            if best is None
            else f"{best.score:.6g}{margin} (n {best.count:,}), {best.id}",
            "evaluations": f"{self.evaluations:,}" + (f" of {limit:,}" if limit else ""),
            "spent": f"{spent.calls:,} calls, ${spent.dollars:.4g}, {self.elapsed_seconds:.0f} s",
            "isolation": self.isolation,
        }
        return "\n".join(f"{label:<11}  {value}" for label, value in rows.items())


class Unanswered(msgspec.Struct, frozen=True):
    """A model none of whose answers could be used.

    Of its `attempts`, `number` had the `fault`; `words` are the server's own on it, `where` is its
    address. `is_alone`: no other model answered in its place.
    """

    model: str
    fault: str
    number: int
    attempts: int
    words: str = ""
    where: str = ""
    is_alone: bool = True


class CallCosts(msgspec.Struct, frozen=True):
    """Cost of all effects of one kind, role and model."""

    effect: str
    role: str
    model: str
    effects: int
    usage: Usage


def run_meta(run: Path | str) -> RunMeta:
    """The run's task and settings."""
    with open_snapshot(run) as connection:
        return read_meta(connection)


def step_law(run: Path | str) -> StepLaw | None:
    """Step law learnt by this run's search (`culmen.evidence`); None without scores."""
    with open_snapshot(run) as connection:
        evidence = RunEvidence(read_meta(connection), Path(run))
        _ = evidence.evidence.model  # modelled from the first evaluation on, also for a long run
        evidence.read(connection)
        return evidence.evidence.model.step_law


def run_status(run: Path | str) -> RunStatus:
    """State of the run now."""
    folder = Path(run)
    holder = current_owner(folder)
    with open_snapshot(folder) as connection:
        meta = read_meta(connection)
        counts = _read_counters(connection)
        last = last_state(connection)
        spent = _read_costs(connection)
        recorded = _run_state(str(last.get("state", "")), holder)
        statuses, found = counts.get("status", {}), count_grave_signs(connection)
        evaluations = sum(statuses.values()) + counts.get("further", {}).get("evaluations", 0)
        best = _best_with_tolerance(connection, meta)
        is_void = best is None and evaluations > 0 and not statuses.get("ok")
        return RunStatus(
            run=meta.id,
            path=str(folder.resolve()),
            task=meta.task.name,
            data=meta.task.data,
            strategy=str(meta.strategy.get("path", "")).rpartition(":")[2],
            state="failed" if is_void and recorded == "finished" else recorded,
            recorded=recorded,
            reason=str(last.get("reason", "")),
            evaluations=evaluations,
            in_flight=counts.get("session", {}).get("in_flight", 0),
            best=best,
            usage=_total_spent(spent),
            elapsed_seconds=_active_seconds(connection, holder),
            isolation=meta.isolation,
            scoring=meta.scoring,
            budget=meta.budget,
            models=meta.models,
            owner=holder,
            statuses=statuses,
            faults=counts.get("fault", {}),
            server_errors=counts.get("further", {}).get("server_errors", 0),
            failures=counts.get("reason", {}),
            candidates=_candidate_count(connection),
            events=sum(counts.get("kind", {}).values()),
            direction=meta.task.objective.direction,
            target=meta.task.objective.target,
            seed=meta.seed,
            workers=meta.workers,
            created=meta.created,
            error=str(last.get("error", "")),
            integrity=meta.integrity,
            findings=found[0],
            best_before_first_finding=_best_before_finding(connection, found[1]),
            agents=agents_progress(connection),
            training=training_state(connection),
            sampling=sampling_line(folder) if recorded == "running" else "",
            few_turns=few_turns(connection),
            reserve=kept_reserve(connection),
            written=names_of_files(counts.get("left", {})),
            drew=counts.get("drew", {}),
            left=counts.get("left", {}),
            keeps_state=meta.task.evaluator.keeps_state,
            unanswered=tuple(_unanswered_models(connection, spent, counts.get("fault", {}))),
        )


def best_result(run: Path | str) -> RunResult | None:
    """The best candidate; None while no candidate has scored."""
    with open_snapshot(run) as connection:
        return standing_best(connection)


def initial_program(run: Path | str) -> str:
    """Id of the task's initial program that the result is compared with; "" without one.

    Before there is a result, it is the first one; none that the journal does not hold.
    """
    with open_snapshot(run) as connection:
        best, meta = standing_best(connection), read_meta(connection)
        first = next((each.id for each in meta.task.initial_candidates()), "")
        initial = first if best is None or best.initial is None else best.initial.id
        known = "SELECT id FROM candidate WHERE id = :id"
        return connection.execute(known, id=escape_text(initial)).scalar() or ""


def standing_best(connection: Connection) -> RunResult | None:
    """Like `best_result`, on an open connection."""
    return _best_with_tolerance(connection, read_meta(connection))


def call_costs(run: Path | str) -> list[CallCosts]:
    """Costs by effect, role and model, the most expensive first."""
    with open_snapshot(run) as connection:
        rows = [row for row in _read_costs(connection) if row.effect not in _ON_TOP]
    return sorted(
        rows,
        key=lambda row: (-row.usage.dollars, -row.usage.tokens, row.effect, row.role, row.model),
    )


def _run_state(recorded: str, holder: Owner | None) -> str:
    """State from the last state event and from the lock.

    The event records how the run ended; the lock shows whether a process still works on it.
    """
    if recorded == "finished":
        return recorded
    if holder is not None:
        return "running"
    return recorded if recorded in ("paused", "failed") else "interrupted"


def _read_counters(connection: Connection) -> dict[str, dict[str, int]]:
    counters: dict[str, dict[str, int]] = {}
    query = "SELECT scope, name, value FROM counter ORDER BY scope, value DESC"
    for scope, name, value in connection.execute(query):
        counters.setdefault(scope, {})[unescape_text(name)] = value
    return counters


def _read_costs(connection: Connection) -> list[CallCosts]:
    return [
        CallCosts(
            unescape_text(row[0]),
            unescape_text(row[1]),
            unescape_text(row[2]),
            row[3],
            Usage(*row[4:]),
        )
        for row in connection.execute(f"SELECT {', '.join(TABLES['spend'])} FROM spend")
    ]


def _total_spent(rows: list[CallCosts]) -> Spent:
    known = total_usage(row.usage for row in rows if row.effect not in _ON_TOP)
    lost, uncertain = (
        total_usage(row.usage for row in rows if row.effect == name) for name in _ON_TOP
    )
    reported = (
        known.calls,
        known.input_tokens,
        known.output_tokens,
        known.dollars,
        known.unpriced,
        known.cache_hits,
    )
    return Spent(*reported, possibly_lost=lost, uncertain=uncertain)


_ON_TOP = ("torn", "uncertain")


def _active_seconds(connection: Connection, holder: Owner | None) -> float:
    """Active seconds up to the last event, or up to now while a process works on the run."""
    recent = "SELECT elapsed, time FROM event ORDER BY seq DESC LIMIT 100"
    query = f"SELECT max(elapsed), max(time) FROM ({recent}) AS recent"
    until, last = connection.execute(query).one()
    since = 0.0 if holder is None else max(last or 0.0, holder.since)
    return (until or 0.0) + (max(0.0, time.time() - since) if since else 0.0)


def _candidate_count(connection: Connection) -> int:
    return connection.execute("SELECT count(seq) FROM candidate").scalar()


def _best_with_tolerance(connection: Connection, about: RunMeta) -> RunResult | None:
    result = result_of(connection)
    if (
        result is None
        or result.tolerance
        or not isinstance(last_state(connection).get("winner"), dict)
    ):
        return result
    return msgspec.structs.replace(result, tolerance=_unchecked_reason(about.task))


def _best_before_finding(connection: Connection, first: int | None) -> RunResult | None:
    """The best result before the first grave sign; None without a sign or a score."""
    return None if first is None else result_before(connection, first)


def count_grave_signs(connection: Connection) -> tuple[int, int | None]:
    """Number of candidates with a grave sign, and the event of the first such sign."""
    seen = f"SELECT count(*), min(grave) FROM tally WHERE {JUDGED} AND grave IS NOT NULL"
    count, first = connection.execute(seen).one()
    return count, first


# Notes of one kind, inside one reading of a run.


def latest_note(connection: Connection, topic: str) -> JsonObject:
    """Fields of the last note of a kind; {} without one."""
    return next(iter(newest_notes(connection, topic, 1)), {})


def newest_notes(connection: Connection, topic: str, limit: int) -> list[JsonObject]:
    """Fields of the last `most` notes of a kind, the newest first."""
    notes = (
        "SELECT body FROM event WHERE kind = 'note' AND topic = :topic "
        "ORDER BY seq DESC LIMIT :limit"
    )
    rows = connection.execute(notes, topic=escape_text(topic), limit=limit).scalars()
    return [decode_value(raw, JsonObject) for raw in rows]


def note_count(connection: Connection, topic: str) -> int:
    """Number of notes of a kind."""
    query = "SELECT count(seq) FROM event WHERE kind = 'note' AND topic = :topic"
    return connection.execute(query, topic=escape_text(topic)).scalar()


# Models without a usable answer, and what was learnt of them, from notes and counters.


def model_lessons(run: Path | str) -> tuple[list[JsonObject], list[str]]:
    """The notes on models, oldest first, and the models that gave a usable answer."""
    with open_snapshot(run) as connection:
        return _model_notes(connection), _models_of_candidates(connection)


def _model_notes(connection: Connection) -> list[JsonObject]:
    query = (
        "SELECT body FROM event WHERE kind = 'note' AND topic IN (:learnt, :silent, :answered) "
        "ORDER BY seq"
    )
    topics = {"learnt": LEARNT, "silent": UNANSWERED, "answered": ANSWERED}
    rows = connection.execute(query, **topics).scalars()
    return [decode_value(raw, JsonObject) for raw in rows]


def _models_of_candidates(connection: Connection) -> list[str]:
    query = "SELECT DISTINCT model FROM candidate WHERE model <> ''"
    return [unescape_text(name) for name in connection.execute(query).scalars()]


def _unanswered_models(
    connection: Connection, spent: list[CallCosts], faults: dict[str, int]
) -> Iterator[Unanswered]:
    """Models without a usable answer: those noted, else those of answers that cannot be read."""
    notes = {str(note["model"]): note for note in _model_notes(connection) if _is_on_answers(note)}
    silent = {model: note for model, note in notes.items() if note["note"] == UNANSWERED}
    roles: dict[tuple[str, str], set[str]] = {}
    for row in spent:
        if row.effect in ("propose", "ask") and row.model:
            roles.setdefault((row.effect, row.role), set()).add(row.model)
    # requests that the budget did not hold were never made
    unmade = sum(n for name, n in faults.items() if refused_budget(name))
    asked = sum(row.effects for row in spent if row.effect == "propose") - unmade
    for model, note in silent.items():
        own = [models for models in roles.values() if model in models]
        is_alone = not roles or any(models <= silent.keys() for models in own)
        fault, number, of = str(note["fault"]), int(note["number"]), int(note["attempts"])
        if len(silent) == 1 and faults.get(fault, 0) >= SILENT:
            number, of = faults[fault], max(asked, faults[fault])
        words, where = str(note["words"]), str(note["where"])
        yield Unanswered(model, fault, number, of, words, where, is_alone)
    unread = {name: n for name, n in faults.items() if n and is_unusable(name)}
    if silent or asked < SILENT or sum(unread.values()) < asked:
        return
    if not _models_of_candidates(connection):
        worst = max(unread, key=lambda name: unread[name])
        model = next((row.model for row in spent if row.effect == "propose" and row.model), "")
        yield Unanswered(model, worst, unread[worst], asked)


def _is_on_answers(note: JsonObject) -> bool:
    return note["note"] in (UNANSWERED, ANSWERED)


# Progress of a strategy with agents, from its notes.


class Agents(msgspec.Struct, frozen=True):
    """Progress of the agents of a run.

    `begun` of `of` agents have started, `ended` have had their turn. `experiments` counts those of
    all agents, initial programs included. `best` is the score compared with thresholds: the
    certified value if the task has a verifier.
    """

    begun: int
    of: int
    ended: int
    experiments: int
    best: float | None
    program: str = ""


def agents_progress(connection: Connection) -> Agents | None:
    """The agents of a run; None for a strategy without agents, or before the first starts."""
    agent_note, experiment_note = (
        latest_note(connection, "agent"),
        latest_note(connection, "experiment"),
    )
    if not agent_note and "agent" not in experiment_note:  # other strategies note experiments too
        return None
    return Agents(
        begun=note_count(connection, "agent"),
        of=int(agent_note.get("agents") or experiment_note.get("agents") or 0),
        ended=note_count(connection, "agent ended"),
        experiments=int(experiment_note.get("n", 0)),
        best=experiment_note.get("best"),
        program=str(agent_note.get("program", "")),
    )


# State of an advisor's training, from its notes.

WINDOW = 20  # latest barriers whose alarms are counted


class Training(msgspec.Struct, frozen=True):
    """Training of an advisor after `barriers` barriers.

    `version`, `alpha` and `reward` (the mean) are those of the last barrier; `skip` is the reason
    why it took no step of the optimiser ("" if it took one). `alarms` counts barriers by alarm and
    `skips` counts barriers without a step by reason, both among the last `WINDOW` barriers;
    `standing` are the alarms of the last one.
    """

    barriers: int
    version: int
    alpha: float
    reward: float | None
    entropy: float | None
    skip: str
    standing: tuple[str, ...]
    alarms: dict[str, int]
    skips: dict[str, int]


def training_state(connection: Connection) -> Training | None:
    """The training of a run; None for a strategy without training, or before a barrier."""
    recent = newest_notes(connection, "barrier", WINDOW)
    if not recent:
        return None
    last = recent[0]
    rewards = [float(reward) for reward in last.get("rewards", ())]
    return Training(
        barriers=note_count(connection, "barrier"),
        version=int(last.get("version", 0)),
        alpha=float(last.get("alpha", 0.0)),
        reward=fmean(rewards) if rewards else None,
        entropy=next((float(each["entropy"]) for each in recent if "entropy" in each), None),
        skip=str(last.get("skip", "")),
        standing=tuple(map(str, last.get("alarms", ()))),
        alarms=dict(
            Counter(str(name) for each in recent for name in each.get("alarms", ())).most_common()
        ),
        skips=dict(Counter(str(each["skip"]) for each in recent if each.get("skip")).most_common()),
    )


# A search with few turns of the strategy.


class FewTurns(msgspec.Struct, frozen=True):
    """Few finished turns in a search.

    The strategy finished only `turns` turns in `evaluations` evaluations; ten turns would need a
    budget of about `needed` evaluations.
    """

    turns: int
    evaluations: int
    needed: int


class KeptReserve(msgspec.Struct, frozen=True):
    """Reserve of the final choice that was planned by the gain (`engine.finale`).

    `evaluations` of a run of `of` were kept, to tell a gain of size `gain` (in units of the score;
    0: any) where one evaluation deviates by `noise`.
    """

    evaluations: int
    of: int
    gain: float
    noise: float


def kept_reserve(connection: Connection) -> KeptReserve | None:
    """The engine's note on its reserve; None without one."""
    body = latest_note(connection, "reserve")
    return msgspec.convert(body, KeptReserve, strict=False) if body else None


def few_turns(connection: Connection) -> FewTurns | None:
    """The engine's note at the end of a search with few turns; None without one."""
    body = latest_note(connection, "few_turns")
    return msgspec.convert(body, FewTurns, strict=False) if body else None


def _unchecked_reason(task: Task) -> str:
    """The reason why the tolerances of a score were not checked.

    "" if an exact verifier was asked instead.
    """
    if task.evaluator.verifier:
        return ""
    if task.evaluator.is_python:
        return f"not checked: no evaluations were left for it; {NOT_PUSHED}"
    what = "a Python function" if task.evaluator.form == "function" else "no Python file"
    return (
        f"not checked: the evaluator is {what}, and its tolerances cannot be changed from outside; "
        f"{NOT_PUSHED}"
    )


# The list of runs.


class RunLine(msgspec.Struct, frozen=True):
    """One line of a list of runs.

    A run that cannot be read has the state `damaged` or `unreadable`; `why` is the problem and
    `fix` the remedy. `margin` is half the width of the 95 % interval of `best`, which ends at the
    `bounds`; `spent` the largest used share of a limit of the budget (0..1; None: no limit),
    `models` the models by role, `reason` the reason that the run ended. With several objectives
    `front` is the size of the front, and there is no `best`.
    """

    run: str
    path: str
    state: str
    created: float
    task: str = ""
    strategy: str = ""
    evaluations: int = 0
    best: float | None = None
    trust: str = ""
    why: str = ""
    fix: str = ""
    dollars: float = 0.0
    spent: float | None = None
    models: dict[str, str] = {}
    margin: float | None = None
    bounds: tuple[float | None, float | None] = (None, None)
    reason: str = ""
    front: int = 0


def list_runs(folder: Path | str = "runs") -> list[RunLine]:
    """All runs directly inside the folder, newest first."""
    return run_lines(run_folders(Path(folder)))


def run_lines(folders: Iterable[Path]) -> list[RunLine]:
    """Lines of these runs, newest first."""
    return sorted(map(_run_line, folders), key=lambda line: (-line.created, line.run))


def find_run(name: Path | str | None, folder: Path | str = "runs") -> Path:
    """The folder of the run that `name` identifies.

    `name` is a path, a run's name in `folder` (or the start of it), an address in a database
    (URL#NAME), or None for the newest run in the folder. Raises `UserError` if it identifies no run
    or several.
    """
    if isinstance(name, str) and is_address(name):
        address = parse_address(name)
        if not address.name:
            raise UserError(
                "which run of this database?",
                where=name,
                fix=f"culmen runs db list '{address.url}'",
            )
        return local_folder(
            address, Path(folder) if read_pointer(Path(folder) / address.name) == address else None
        )
    if name is not None and has_run(Path(name)):
        return Path(name)
    known = run_folders(Path(folder))
    if name is None:
        if not known:
            raise UserError(
                "there are no runs yet", where=folder, fix="culmen demo, or culmen run TASK"
            )
        return Path(list_runs(folder)[0].path)
    exact = [path for path in known if path.name == str(name)]
    matches = exact or [path for path in known if path.name.startswith(str(name))]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(sorted(path.name for path in matches or known)[:8])
    what = f"several runs begin with '{name}'" if matches else f"there is no run '{name}'"
    fix = f"give one of: {names}" if names else "culmen demo, or culmen run TASK"
    raise UserError(what, where=folder, fix=fix)


def _run_line(folder: Path) -> RunLine:
    try:
        now = run_status(folder)
    except JournalDamaged as error:
        if current_owner(folder) is not None:  # its tables are being made
            return RunLine(folder.name, str(folder), "starting", _journal_time(folder))
        return RunLine(
            folder.name,
            str(folder),
            "damaged",
            _journal_time(folder),
            why=error.what,
            fix=error.fix,
        )
    except CulmenError as error:
        why, fix = (error.what, error.fix) if isinstance(error, UserError) else (str(error), "")
        return RunLine(
            folder.name, str(folder), "unreadable", _journal_time(folder), why=why, fix=fix
        )
    front = 0 if now.best is None else len(now.best.front)
    best = None if front else now.best
    return RunLine(
        now.run,
        str(folder),
        now.state,
        now.created,
        now.task_label,
        now.strategy,
        now.evaluations,
        None if best is None else best.value,
        "" if now.best is None else now.best.trust,
        dollars=now.usage.dollars,
        spent=now.budget_share(now.elapsed_seconds),
        models=now.models,
        margin=None if best is None or best.certified is not None else best.margin,
        bounds=(None, None) if now.best is None else now.best.bounds,
        reason=now.reason,
        front=front,
    )


def _journal_time(folder: Path) -> float:
    try:
        return journal_file(folder).stat().st_mtime
    except FileNotFoundError:  # it was deleted meanwhile
        return 0.0
