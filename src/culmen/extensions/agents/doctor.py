"""Coding agents of this machine for `culmen doctor`, and its trial of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.cli.screen import Answer, Screen
from culmen.core.json import JsonObject
from culmen.report.figures import count_text, dollars_text, escape_controls, join_nonempty

if TYPE_CHECKING:
    from culmen.extensions.agents.sandbox.smoke import SmokeTest

_VERSIONS = {
    "tested": "the version that was tested",
    "newer": "newer than what was tested ({})",
    "older": "older than what was tested ({})",
    "untested": "not tested",
}


class AgentsCheck:
    """The installed coding agents and their sandbox (`cli.about.MachineCheck`)."""

    def examine(self) -> JsonObject:
        """Known coding agents, with their sandbox, or the reason for none in `why`."""
        from culmen.core.errors import IsolationError
        from culmen.extensions.agents.adapters.catalog import survey_agents
        from culmen.extensions.agents.sandbox import confinement
        from culmen.extensions.agents.sandbox.settings import SandboxSettings

        try:
            sandbox, why = confinement.choose_method(SandboxSettings()).isolation, ""
        except IsolationError as error:
            sandbox, why = "", error.where
        return {"sandbox": sandbox, "why": why, "known": survey_agents()}

    def show(self, screen: Screen, findings: JsonObject) -> None:
        """Print the installed agents, and the names of the others."""
        known = findings["known"]
        rows = [
            (
                row["name"],
                row["version"] or "?",
                _VERSIONS[row["state"]].format(join_nonempty(row["tested"])),
                _agent_traits(row),
            )
            for row in known
            if row["installed"]
        ]
        missing = [row["name"] for row in known if not row["installed"]]
        screen.print_rule("coding agents")
        sandbox = findings["sandbox"] or "none: agents cannot be confined here"
        screen.print_line(f"Sandbox: {sandbox}. Always available: offline, builtin.")
        if rows:
            screen.print_table(["agent", "version", "", "calls, nudges"], rows)
        if missing:
            screen.print_line(f"Not installed: {join_nonempty(missing)}.", style="dim")
        first = rows[0][0] if rows else "builtin"
        screen.print_next_steps(
            (
                f"culmen doctor --agent {first} --model NAME",
                "send it one request, to see whether it works",
            )
        )


AGENTS = AgentsCheck()


def _agent_traits(row: JsonObject) -> str:
    return join_nonempty(
        ["metered" if row["metered"] else "not metered", row["nudge"] or "no nudges"]
    )


def try_agent(agent: str, model: list[str] | None, models: Path | None) -> Answer:
    """Send one request to an agent; exit code 1 if it does not work."""
    import asyncio

    from culmen.extensions.agents.adapters import catalog
    from culmen.extensions.agents.sandbox.smoke import run_smoke_test
    from culmen.strategies.catalog import BUILTIN, OFFLINE

    if agent not in (OFFLINE, BUILTIN):
        catalog.adapter_by_name(agent)  # raises for an unknown agent
    tried = asyncio.run(
        run_smoke_test(agent, ",".join(model or ()), str(models) if models else None)
    )
    data = {**msgspec.structs.asdict(tried), "usage": msgspec.structs.asdict(tried.usage)}
    return Answer(data, lambda screen: _show_try(screen, tried), code=0 if tried.works else 1)


def _show_try(screen: Screen, tried: SmokeTest) -> None:
    usage = tried.usage
    cost = join_nonempty(
        [
            count_text(usage.calls, "call"),
            count_text(usage.tokens, "token"),
            dollars_text(usage.dollars),
        ]
    )
    facts = {
        "reply": escape_controls(tried.word) or "none",
        "problem": escape_controls(tried.why),
        "version": tried.version,
        "sandbox": tried.isolation,
        "cost": cost if tried.metered else "not metered",
        "time": f"{tried.seconds:g} s",
    }
    screen.print_heading(tried.agent, "works" if tried.works else "does not work")
    screen.print_pairs(*((name, value) for name, value in facts.items() if value))
