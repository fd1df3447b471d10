"""What a run is about to do, and what it can cost at most."""

from __future__ import annotations

from typing import Any

import msgspec

from culmen.core.ports import Strategy, complete
from culmen.core.usage import Budget
from culmen.engine.ledger import final_share
from culmen.observe.figures import clean, count, dollars, duration, joined, number
from culmen.store.meta import RunMeta

MILLION = 1_000_000


class Prices(msgspec.Struct, frozen=True):
    """Of the models a run may ask: names, dollars per million tokens (input, output) where known, and the dearest."""

    names: tuple[str, ...] = ()
    known: dict[str, tuple[float, float]] = {}

    @property
    def unknown(self) -> list[str]:
        """Models without a known price."""
        return [name for name in self.names if name not in self.known]

    @property
    def dearest(self) -> float | None:
        """Most dollars a single token can cost; None if any price is unknown."""
        return None if self.unknown else max((max(pair) for pair in self.known.values()), default=0.0) / MILLION


def prices(meta: RunMeta) -> Prices:
    """Which models a run may ask, and their prices. Raises `UserError` for models that cannot be read."""
    model = meta.model
    if meta.offline:
        return Prices()
    if not isinstance(model, str | dict) or ":" in str(model).partition("/")[0]:
        return Prices((str(model),))
    from culmen.llm.call import Tokens
    from culmen.llm.roles import ModelBook

    names: list[str] = []
    known: dict[str, tuple[float, float]] = {}
    for entry in ModelBook(meta.models_file).roles(model).models():
        names.append(entry.name)
        ask, reply = (entry.price_list.dollars(t) for t in (Tokens(input=MILLION), Tokens(output=MILLION)))
        if ask is not None and reply is not None:
            known[entry.name] = (ask, reply)
    return Prices(tuple(dict.fromkeys(names)), known)


def at_most(budget: Budget, known: Prices) -> float | None:
    """The most dollars a run can cost; None if nothing limits them."""
    if not known.names:
        return 0.0
    limits = [] if budget.dollars is None else [budget.dollars]
    if budget.tokens is not None and known.dearest is not None:
        limits.append(budget.tokens * known.dearest)
    return min(limits) if limits else None


def data(meta: RunMeta) -> dict[str, Any]:
    """The limits for `--json`: what there is of the budget, and dollars (null: nothing limits them)."""
    known = prices(meta)
    limits = {name: value for name, value in msgspec.structs.asdict(meta.budget).items() if value is not None}
    del limits["final"]  # a share of the evaluations, no limit of its own
    return {**limits, "dollars": at_most(meta.budget, known), "price_unknown": known.unknown}


def lines(meta: RunMeta) -> list[tuple[str, str]]:
    """Label and value for people, in the order one wants to know them."""
    known = prices(meta)
    goal = meta.task.objective
    workers = count(meta.workers, "worker") if meta.workers else "as many workers as the cluster has room for"
    target = "" if goal.target is None else f", target {number(goal.target)}"
    return [
        ("task", f"{clean(meta.task.name)}  ({'maximise' if goal.direction == 'max' else 'minimise'}{target})"),
        ("strategy", _strategy(meta)),
        ("agents", _agents(meta, known)),
        ("model", ", ".join(known.names) or "offline: syntax-tree edits, no language model"),
        ("embedder", meta.embedder),
        ("at most", _limits(meta, known)),
        ("until", "" if meta.stop_at is None else f"a candidate is known to score {number(float(meta.stop_at))}"),
        ("random seed", f"{meta.seed}, {workers}"),
    ]


def _agents(meta: RunMeta, known: Prices) -> str:
    """Who works, for strategies that have agents do it."""
    strategy = _revived(meta)
    if strategy is None or not strategy.crew or not strategy.writes or known.names:
        return "" if strategy is None else strategy.crew
    return (
        f"{strategy.crew}; its model calls, if any, are its own and not counted "
        "(with --model NAME they go through culmen)"
    )


def _revived(meta: RunMeta) -> Strategy | None:
    """The strategy; None for an object whose state culmen cannot write down."""
    from culmen.strategies import catalog

    config = meta.strategy.get("config")
    return None if config is None else complete(Strategy, catalog.revive(str(meta.strategy["path"]), config))


def _strategy(meta: RunMeta) -> str:
    """Name and the settings that are not the defaults."""
    from culmen.strategies import catalog

    path = str(meta.strategy.get("path", ""))
    name = catalog.NAMES.get(path, path.rpartition(":")[2])
    strategy = _revived(meta)
    if strategy is None:
        return name
    changed = []
    for field in catalog.describe(path)["fields"]:
        value = catalog.shown(getattr(strategy, field["name"]))
        if value != field["default"]:
            changed.append(f"{field['name']}={value}")
    return joined([name, *changed], "  ")


def _limits(meta: RunMeta, known: Prices) -> str:
    budget = meta.budget
    parts: list[str] = []
    if budget.evaluations is not None:
        kept = final_share(budget, meta.task)
        parts.append(count(budget.evaluations, "evaluation") + (f" ({kept} for the final choice)" if kept else ""))
    if budget.seconds is not None:
        parts.append(duration(budget.seconds))
    if known.names:
        parts.append("any number of calls" if budget.calls is None else count(budget.calls, "call"))
        if budget.tokens is not None:
            parts.append(count(budget.tokens, "token"))
    strategy = _revived(meta)
    counted = known.names or strategy is None or not strategy.writes
    parts.append(_money(budget, known) if counted else "what the agents spend is not counted")
    return ", ".join(parts)


def _money(budget: Budget, known: Prices) -> str:
    most = at_most(budget, known)
    if known.unknown:
        note = f"price unknown of {', '.join(known.unknown)}"
        return note if most is None else f"{dollars(most)} ({note})"
    if most is not None:
        return dollars(most)
    pairs = ", ".join(f"{dollars(a)} in, {dollars(b)} out per million tokens" for a, b in known.known.values())
    return f"dollars not limited ({pairs})"
