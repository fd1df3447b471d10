"""Which versions of agent programs the adapters were tried with; they change their options from month to month."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Tested:
    """`versions` that were driven for real, the newest last; none: the adapter is written from documentation. `package`
    is where it comes from, as `npm install` or `pip install` name it ("": from its maker's page)."""

    versions: tuple[str, ...] = ()
    package: str = ""
    installer: str = "npm install -g"


TESTED = {
    "claude": Tested(("2.1.197", "2.1.329"), "@anthropic-ai/claude-code"),
    "codex": Tested(("0.169.0",), "@openai/codex"),
    "opencode": Tested(("1.18.33",), "opencode-ai"),
    "gemini": Tested(("0.61.0",), "@google/gemini-cli"),
    "cursor-agent": Tested(),
    "mini": Tested(("2.4.6",), "mini-swe-agent", "pip install"),
    "claude-agent-acp": Tested(("0.49.0", "0.100.0"), "@agentclientprotocol/claude-agent-acp"),
    "codex-acp": Tested(("2.6.0",), "@agentclientprotocol/codex-acp"),
}
"""By program."""


def drift(program: str, version: str) -> str:
    """What is to be said about an installed version: tested | untested | newer | older."""
    known = TESTED.get(program, Tested()).versions
    if not known or not version:
        return "untested"
    if version in known:
        return "tested"
    return "newer" if _order(version) > _order(known[-1]) else "older"


def _order(version: str) -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, piece)) or 0) for piece in version.split("-")[0].split("."))


def pinned(*names: str) -> list[str]:
    """What to give to npm for the versions that were tried last."""
    return [f"{TESTED[name].package}@{TESTED[name].versions[-1]}" for name in names]


if __name__ == "__main__":  # python -m culmen.agents.adapters.tested codex opencode
    sys.stdout.write("\n".join(pinned(*sys.argv[1:])) + "\n")
