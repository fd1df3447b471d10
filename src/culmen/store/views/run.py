"""What a run is, how it stands, and what it has cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.evaluation import LEVELS, Scoring, reaches
from culmen.core.usage import Budget, Usage, total
from culmen.store.codec import decode, unescape
from culmen.store.database import owner, read_meta, reading
from culmen.store.lock import Owner
from culmen.store.meta import RunMeta
from culmen.store.ranking import RULE, Standing, findings, leader, leader_before
from culmen.store.views.agents import Agents, agents
from culmen.store.views.best import Best, final
from culmen.store.views.training import Training, training

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Spent(msgspec.Struct, frozen=True):
    """What the run has cost. `possibly_lost` is what effects cut off by a crash may have cost on top."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    cache_hits: int = 0
    possibly_lost: Usage = Usage()


class Status(msgspec.Struct, frozen=True):
    """How a run stands. `state`: running | interrupted (its process is gone) | paused | finished | failed.

    `integrity` is what the run does about grave signs, `findings` how many candidates showed one, and
    `best_before_first_finding` the best from what was seen before the first did (None: none did).
    """

    run: str
    path: str
    task: str
    strategy: str
    state: str
    reason: str
    evaluations: int
    in_flight: int
    best: Best | None
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
    best_before_first_finding: Best | None = None
    agents: Agents | None = None  # None for strategies without any
    training: Training | None = None  # None for strategies that train nothing


class Calls(msgspec.Struct, frozen=True):
    """Cost of all effects of one kind, role and model."""

    effect: str
    role: str
    model: str
    effects: int
    usage: Usage


def meta(run: Path | str) -> RunMeta:
    """The run's task and settings."""
    with reading(Path(run)) as connection:
        return read_meta(connection)


def status(run: Path | str) -> Status:
    """How the run stands at this moment."""
    folder = Path(run)
    holder = owner(folder)
    with reading(folder) as connection:
        about = read_meta(connection)
        counts = _counters(connection)
        last = last_state(connection)
        spent = _spend(connection)
        statuses, found = counts.get("status", {}), findings(connection)
        return Status(
            run=about.id,
            path=str(folder.resolve()),
            task=about.task.name,
            strategy=str(about.strategy.get("path", "")).rpartition(":")[2],
            state=_state(str(last.get("state", "")), holder),
            reason=str(last.get("reason", "")),
            evaluations=sum(statuses.values()),
            in_flight=counts.get("session", {}).get("in_flight", 0),
            best=_best(connection, about, last),
            usage=_spent(spent),
            elapsed_seconds=_elapsed(connection),
            isolation=about.isolation,
            scoring=about.scoring,
            budget=about.budget,
            models=about.models,
            owner=holder,
            statuses=statuses,
            faults=counts.get("fault", {}),
            failures=counts.get("reason", {}),
            candidates=_candidates(connection),
            events=sum(counts.get("kind", {}).values()),
            direction=about.task.objective.direction,
            target=about.task.objective.target,
            seed=about.seed,
            workers=about.workers,
            created=about.created,
            error=str(last.get("error", "")),
            integrity=str(about.extra.get("integrity") or "warn"),
            findings=found[0],
            best_before_first_finding=_before(connection, about, found[1]),
            agents=agents(connection),
            training=training(connection),
        )


def best(run: Path | str) -> Best | None:
    """The best candidate; None if nothing has scored."""
    with reading(Path(run)) as connection:
        return _best(connection, read_meta(connection), last_state(connection))


def calls(run: Path | str) -> list[Calls]:
    """Costs by effect, role and model, dearest first."""
    with reading(Path(run)) as connection:
        rows = [row for row in _spend(connection) if row.effect != "torn"]
    return sorted(rows, key=lambda row: (-row.usage.dollars, -row.usage.tokens, row.effect, row.role, row.model))


def _state(recorded: str, holder: Owner | None) -> str:
    """The last state event says how it ended; the lock says whether anybody is still at it."""
    if recorded == "finished":
        return recorded
    if holder is not None:
        return "running"
    return recorded if recorded in ("paused", "failed") else "interrupted"


def _counters(connection: Connection) -> dict[str, dict[str, int]]:
    from sqlalchemy import select

    from culmen.store.schema import counter

    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(select(counter).order_by(counter.c.scope, counter.c.value.desc())):
        found.setdefault(row.scope, {})[unescape(row.name)] = row.value
    return found


def last_state(connection: Connection) -> dict[str, Any]:
    """The newest state event's body."""
    from sqlalchemy import select

    from culmen.store.schema import event

    states = select(event.c.body).where(event.c.kind == "state", event.c.topic.is_not(None))
    raw = connection.execute(states.order_by(event.c.seq.desc()).limit(1)).scalar()
    return {} if raw is None else decode(raw, dict[str, Any])


def _spend(connection: Connection) -> list[Calls]:
    from sqlalchemy import select

    from culmen.store.schema import spend

    return [
        Calls(unescape(row[0]), unescape(row[1]), unescape(row[2]), row[3], Usage(*row[4:]))
        for row in connection.execute(select(spend))
    ]


def _spent(rows: list[Calls]) -> Spent:
    known = total(row.usage for row in rows if row.effect != "torn")
    lost = total(row.usage for row in rows if row.effect == "torn")
    counted = (known.calls, known.input_tokens, known.output_tokens, known.dollars, known.unpriced, known.cache_hits)
    return Spent(*counted, possibly_lost=lost)


def _elapsed(connection: Connection) -> float:
    from sqlalchemy import func, select

    from culmen.store.schema import event

    recent = select(event.c.elapsed).order_by(event.c.seq.desc()).limit(100).subquery()
    return connection.execute(select(func.max(recent.c.elapsed))).scalar() or 0.0


def _candidates(connection: Connection) -> int:
    from sqlalchemy import func, select

    from culmen.store.schema import candidate

    return connection.execute(select(func.count(candidate.c.seq))).scalar_one()


def _best(connection: Connection, about: RunMeta, last: dict[str, Any]) -> Best | None:
    winner = last.get("winner")
    if isinstance(winner, dict):
        return final(winner)
    return _standing(connection, leader(connection, about.task.objective.direction), RULE)


def _before(connection: Connection, about: RunMeta, first: int | None) -> Best | None:
    """The best before the first grave sign; None if there was none, or nothing had scored."""
    if first is None:
        return None
    standing = leader_before(connection, about.task.objective.direction, first)
    return _standing(connection, standing, f"{RULE}, and before the first finding")


def _standing(connection: Connection, found: Standing | None, how: str) -> Best | None:
    if found is None:
        return None
    trust = trust_of(connection, found.candidate)
    verified = reaches(trust, "verified") and found.strict is not False
    name, told = unescape(found.candidate), {"certified": found.certified, "strict": found.strict, "trust": trust}
    return Best(name, found.mean, found.mean, found.count, verified, how, **told)


def trust_of(connection: Connection, candidate: str) -> str:
    """The level of a candidate's weakest score (`core.trust`), "" without one. `candidate` as the tables have it."""
    from sqlalchemy import select

    from culmen.store.schema import tally

    found = connection.execute(select(tally.c.trust).where(tally.c.candidate == candidate)).scalar()
    return "" if found is None else LEVELS[found]
