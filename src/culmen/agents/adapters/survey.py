"""Which agent programs are on this machine, and how far their versions are from those that were tried."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from culmen.agents.adapters import KNOWN, NATIVE, named, programs
from culmen.agents.adapters.base import Adapter
from culmen.agents.adapters.tested import TESTED, Tested, drift
from culmen.core.errors import UserError


def survey() -> list[dict[str, Any]]:
    """One row for each known agent, as plain data; programs are asked for their versions side by side, and not long."""
    kinds = [*NATIVE, *(f"acp:{name}" for name in KNOWN)]
    agents = [named(kind) for kind in kinds]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 2) as pool:
        versions = dict(zip({a.program: None for a in agents}, pool.map(_version, {a.program: None for a in agents})))
    return [_row(agent, versions[agent.program]) for agent in agents]


def _version(program: str) -> str | None:
    """None if it is not installed, "" if it does not say."""
    try:
        return programs.version(programs.find(program))
    except UserError:
        return None


def _row(agent: Adapter, version: str | None) -> dict[str, Any]:
    known = TESTED.get(agent.program, Tested())
    return {
        "name": agent.name,
        "program": agent.program,
        "installed": version is not None,
        "version": version or "",
        "state": "missing" if version is None else drift(agent.program, version),
        "tested": list(known.versions),
        "metered": agent.metered,
        "nudge": "in its session" if agent.nudges else "by resuming" if agent.resumes else "",
        "install": f"{known.installer} {known.package}" if known.package else "",
    }
