"""`culmen doctor`: what this machine offers a run."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

from culmen.cli.screen import Screen
from culmen.observe.figures import count, joined

EXTRAS = {"litellm": "litellm", "local-embeddings": "sentence_transformers"}


def examine() -> dict[str, Any]:
    """Everything, as plain data; keys by name only."""
    from culmen.cli import outfit
    from culmen.core import VERSION
    from culmen.evaluate.jail import probes

    disk = shutil.disk_usage(Path.cwd())
    return {
        "culmen": VERSION,
        **probes.report(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "disk_free_gb": round(disk.free / 1e9, 1),
        "keys": keys(),
        "extras": {name: importlib.util.find_spec(module) is not None for name, module in EXTRAS.items()},
        "agents": outfit.examine(),
    }


def keys() -> dict[str, bool]:
    """Names of the environment variables that hold keys of known providers, and whether each is set."""
    from culmen.llm.spec import PROVIDERS

    names = {provider.key_env for provider in PROVIDERS.values() if provider.key_env}
    return {name: bool(os.environ.get(name, "").strip()) for name in sorted(names)}


def show(screen: Screen, report: dict[str, Any]) -> None:
    """The same for people."""
    from culmen.cli import outfit

    found = [name for name, present in report["keys"].items() if present]
    extras = [name if present else f"{name} (not installed)" for name, present in report["extras"].items()]
    screen.heading(f"culmen {report['culmen']}", f"Python {report['python']} at {report['executable']}")
    screen.pairs(
        ("system", report["system"]),
        ("cores", f"{report['cores']}, {report['memory_gb']} GB memory, {report['disk_free_gb']} GB disk free here"),
        ("keys", joined(found) or f"none of {joined(report['keys'])} is set"),
        ("extras", joined(extras)),
        ("mechanisms", _mechanisms(report["mechanisms"])),
        ("isolation", f"{report['level']} is in force"),
    )
    screen.line()
    _levels(screen, report["levels"])
    if report["level"] != "namespaces":
        screen.line()
        screen.line(f"For more: {report['fix']}.")
    screen.line()
    outfit.show(screen, report["agents"])


def _mechanisms(found: dict[str, Any]) -> str:
    texts = []
    for name, value in found.items():
        detail = f" {value}" if isinstance(value, str | int) and not isinstance(value, bool) and value else ""
        texts.append(f"{name}{detail}" if value else f"no {name}")
    return joined(texts)


def _levels(screen: Screen, levels: dict[str, Any]) -> None:
    rows = []
    for name, tried in levels.items():
        probes = tried["probes"]
        held = sum(result == "PASS" for result in probes.values())
        open_ = [probe for probe, result in probes.items() if result != "PASS"]
        outcome = f"{held} of {count(len(probes), 'probe')}" if tried["works"] else "not to be had"
        rows.append((name, outcome, f"not enforced: {joined(open_)}" if open_ else tried.get("why", "all enforced")))
    screen.table(["level", "result", "tried by sending in a program that tries to get out"], rows)
