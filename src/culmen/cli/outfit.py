"""`culmen doctor` on coding agents: which are installed, whether they can be confined, whether one works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.cli.screen import Answer, Screen
from culmen.observe.figures import clean, count, dollars, joined

if TYPE_CHECKING:
    from culmen.agents.sandbox.smoke import Smoke

_STATES = {
    "tested": "the version that was tried",
    "newer": "newer than what was tried ({})",
    "older": "older than what was tried ({})",
    "untested": "not tried",
}


def examine() -> dict[str, Any]:
    """Known agents and the sandbox they would work in, as plain data."""
    from culmen.agents.adapters.survey import survey
    from culmen.agents.sandbox import confinement
    from culmen.agents.sandbox.settings import Settings
    from culmen.core.errors import IsolationError

    try:
        sandbox, why = confinement.choose(Settings()).isolation, ""
    except IsolationError as error:
        sandbox, why = "", error.where
    return {"sandbox": sandbox, "why": why, "known": survey()}


def show(screen: Screen, report: dict[str, Any]) -> None:
    """The same for people: the installed ones, and names of the others."""
    known = report["known"]
    rows = [(row["name"], row["version"] or "?", _state(row), _traits(row)) for row in known if row["installed"]]
    missing = [row["name"] for row in known if not row["installed"]]
    screen.rule("coding agents")
    screen.line(
        f"Sandbox: {report['sandbox'] or 'none: agents cannot be confined here'}. Always there: offline, builtin."
    )
    if rows:
        screen.table(["agent", "version", "", "calls, nudges"], rows)
    if missing:
        screen.line(f"Not installed: {joined(missing)}.", style="dim")
    first = rows[0][0] if rows else "builtin"
    screen.next_steps((f"culmen doctor --agent {first} --model NAME", "ask it one thing, to see whether it works"))


def try_out(agent: str, model: list[str] | None, models: Path | None) -> Answer:
    """One call: exit code 1 if it does not work."""
    import asyncio

    from culmen.agents import adapters
    from culmen.agents.sandbox.smoke import smoke
    from culmen.cli.agents import BUILTIN, OFFLINE

    if agent not in (OFFLINE, BUILTIN):
        adapters.named(agent)  # raises for what is no agent
    tried = asyncio.run(smoke(agent, ",".join(model or ()), str(models) if models else None))
    data = {**msgspec.structs.asdict(tried), "usage": msgspec.structs.asdict(tried.usage)}
    return Answer(data, lambda screen: _tried(screen, tried), code=0 if tried.works else 1)


def _tried(screen: Screen, tried: Smoke) -> None:
    usage = tried.usage
    cost = joined([count(usage.calls, "call"), count(usage.tokens, "token"), dollars(usage.dollars)])
    facts = {
        "said": clean(tried.word) or "nothing",
        "why not": clean(tried.why),
        "version": tried.version,
        "sandbox": tried.isolation,
        "cost": cost if tried.metered else "not metered",
        "took": f"{tried.seconds:g} s",
    }
    screen.heading(tried.agent, "works" if tried.works else "does not work")
    screen.pairs(*((name, value) for name, value in facts.items() if value))


def _state(row: dict[str, Any]) -> str:
    return _STATES[row["state"]].format(joined(row["tested"]))


def _traits(row: dict[str, Any]) -> str:
    return joined(["metered" if row["metered"] else "not metered", row["nudge"] or "no nudges"])
