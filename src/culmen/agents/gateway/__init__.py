"""A gateway on this machine that coding agents talk to instead of their provider: it counts, limits and records.

    async with Metering({"*": model}, folder) as gateway:
        token = gateway.open(agent="3", budget=Budget(dollars=2.0))
        env = gateway.env(token, "anthropic")        # what the agent is started with: the token, never the key
        ...                                          # run the agent
        spent = gateway.usage(token)                 # cumulative; gateway.take(token) gives the increment
        gateway.close(token)                         # the stop switch

See docs/metering.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from culmen.agents.gateway.account import Limits, Metered
    from culmen.agents.gateway.gateway import Metering

__all__ = ["Limits", "Metered", "Metering"]


def __getattr__(name: str) -> Any:
    if name == "Metering":
        from culmen.agents.gateway.gateway import Metering

        return Metering
    if name in ("Limits", "Metered"):
        from culmen.agents.gateway import account

        return getattr(account, name)
    raise AttributeError(name)
