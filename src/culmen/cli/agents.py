"""Which agent a run gets: what the command line said, and what can work."""

from __future__ import annotations

from typing import Any

from culmen.core.errors import UserError

STRATEGY = "cato"
OFFLINE, BUILTIN = "offline", "builtin"


def chosen(agent: str | None, settings: dict[str, str], model: str) -> dict[str, str]:
    """The settings of cato with the agent in them: the one named, else the built-in one if there is a model, else the
    offline one. Raises `UserError` for an agent that cannot work here."""
    if agent is not None and settings.get("agent", agent) != agent:
        raise UserError(
            "two agents are named", where=f"--agent {agent} --set agent={settings['agent']}", fix="name one"
        )
    kind = agent or settings.get("agent") or (OFFLINE if model == "offline" else BUILTIN)
    if kind == BUILTIN and model == "offline":
        raise UserError(
            "the built-in agent needs a model",
            where=f"--agent {BUILTIN}",
            fix=f"choose one with --model NAME, or use --agent {OFFLINE}",
        )
    if kind not in (OFFLINE, BUILTIN):
        _installed(kind)
    return {**settings, "agent": kind}


def about(strategy: Any, models: bool) -> str:
    """What the preflight says of the agents, "" for a strategy without any."""
    kind = getattr(strategy, "agent", "")
    if not kind or not hasattr(strategy, "agents"):
        return ""
    how = f"{strategy.agents} x {kind}" + (f", {strategy.parallel} at once" if strategy.parallel > 1 else "")
    if kind in (OFFLINE, BUILTIN) or models:
        return how
    return f"{how}; its model calls, if any, are its own and not counted (with --model NAME they go through culmen)"


def hosted(config: Any) -> bool:
    """Whether a strategy of this configuration has programs do the work."""
    return isinstance(config, dict) and "agents" in config and config.get("agent") not in (OFFLINE, BUILTIN, None)


def _installed(kind: str) -> None:
    """Raise `UserError` for a program that nobody knows or that is not installed."""
    from culmen.agents.adapters import catalog, programs

    programs.find(catalog.named(kind).program)
