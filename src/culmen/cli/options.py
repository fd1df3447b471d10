"""Options of a run as arguments of `Study.create`: the command line's word first, then the task's, then culmen's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import UserError
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.store.meta import RunMeta


class Given(msgspec.Struct, frozen=True):
    """What the command line said of a run; None where it said nothing."""

    strategy: str | None = None
    settings: list[str] | None = None
    model: list[str] | None = None
    models: Path | None = None
    budget: str | None = None
    seed: int | None = None
    workers: int | None = None
    require: str | None = None
    embedder: str | None = None
    integrity: str | None = None
    agent: str | None = None
    stop_at: str | None = None


def settle(task: Task, given: Given) -> dict[str, Any]:
    """Everything `Study.create` takes. Raises `UserError` for what cannot be meant."""
    from culmen.cli import agents
    from culmen.strategies import catalog
    from culmen.study import DEFAULT_BUDGET

    own = task.defaults if "strategy" in task.defaults else {}  # an OpenEvolve folder speaks of another program's
    model = ",".join(given.model or ()) or own.get("model") or "offline"
    name = given.strategy or (agents.STRATEGY if given.agent else own.get("strategy")) or "polca"
    settings = _pairs(given.settings)
    if name == own.get("strategy"):
        settings = {**_texts(own.get("settings", {})), **settings}
    chosen: dict[str, Any] = {
        "strategy": catalog.make(name, _agent(name, given, settings, model)),
        "model": model,
        "budget": _budget(given.budget, task) or DEFAULT_BUDGET,
        "random_seed": given.seed if given.seed is not None else int(task.defaults.get("seed", 0)),
        "workers": given.workers or int(task.defaults.get("workers", 0)) or None,
    }
    parts = _parts(given)
    _check_model(chosen["model"], parts.get("models_file"))
    return chosen | parts


def _agent(name: str, given: Given, settings: dict[str, str], model: str) -> dict[str, str]:
    """The settings with the agent in them, where the strategy has any."""
    from culmen.cli import agents

    if name.strip().lower() == agents.STRATEGY:
        return agents.chosen(given.agent, settings, model)
    return settings if given.agent is None else {**settings, "agent": given.agent}


def _check_model(model: str, file: str | None) -> None:
    """Raise `UserError` for a model nobody knows or whose key is missing: before there is a run, not after."""
    if model == "offline":
        return
    from culmen.llm.roles import ModelBook

    for entry in ModelBook(file).roles(model).models():
        if not entry.provider.key.found():
            entry.provider.key.reveal()


def changes(meta: RunMeta, given: Given) -> dict[str, Any]:
    """What `Study.fork` changes: only what was given; for its budget see `culmen.run.fork`."""
    from culmen.strategies import catalog

    found: dict[str, Any] = {}
    settings = _pairs(given.settings)
    settings |= {"agent": given.agent} if given.agent else {}
    if given.strategy or settings:
        found["strategy"] = catalog.make(given.strategy, settings) if given.strategy else _altered(meta, settings)
    if given.model:
        found["model"] = ",".join(given.model)
    if given.seed is not None:
        found["random_seed"] = given.seed
    if given.workers is not None:
        found["workers"] = given.workers
    old = {"models_file": meta.extra.get("models_file"), "require": meta.extra.get("require")}
    kept = {name: value for name, value in old.items() if value is not None}
    kept["embedder"] = meta.extra.get("embedder", "hashing")
    parts = kept | _parts(given)
    if "model" in found:
        _check_model(found["model"], parts.get("models_file"))
    return found | parts


def _altered(meta: RunMeta, given: Mapping[str, str]) -> Any:
    """The run's own strategy with some settings changed."""
    import dataclasses

    from culmen.strategies import catalog

    old = catalog.revive(meta.strategy["path"], meta.strategy["config"])
    new = catalog.make(meta.strategy["path"], given)
    fields = {name.strip().replace("-", "_") for name in given}
    return dataclasses.replace(old, **{name: getattr(new, name) for name in fields})


def _pairs(settings: Sequence[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in settings or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UserError(f"cannot read the setting '{text}'", where=f"--set {text}", fix="write --set NAME=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings of a task.toml as the command line would write them."""

    def text(value: Any) -> str:
        if isinstance(value, bool):
            return "on" if value else "off"
        return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    return {name: text(value) for name, value in settings.items()}


def _budget(text: str | None, task: Task) -> Budget | None:
    """The given budget, the task's, or as many evaluations as an OpenEvolve folder has iterations."""
    if text is not None:
        if "=+" in text:
            fix = f"culmen fork RUN --budget {text} goes on with a run; for a new one leave the +"
            raise UserError("a new run has no budget to add to", where=f"--budget {text}", fix=fix)
        return Budget.parse(text)
    if task.defaults.get("budget"):
        return Budget.parse(task.defaults["budget"])
    iterations = task.defaults.get("iterations")
    return Budget(evaluations=int(iterations) + 1) if iterations else None


def _parts(given: Given) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if given.models is not None:
        if not given.models.is_file():
            raise UserError(f"there is no models file '{given.models}'", where="--models", fix="check the path")
        parts["models_file"] = str(given.models.resolve())
    if given.require is not None:
        from culmen.evaluate.jail.levels import rank

        rank(given.require)
        parts["require"] = given.require
    if given.integrity is not None:
        from culmen.evaluate.integrity.guard import parse_policy

        parts["integrity"] = parse_policy(given.integrity)
    if given.stop_at is not None:
        parts["stop_at"] = given.stop_at
    if given.embedder is not None:
        from culmen import embed

        embed.make(given.embedder, parts.get("models_file"))  # an unknown name is said now, not after the start
        parts["embedder"] = given.embedder
    return parts
