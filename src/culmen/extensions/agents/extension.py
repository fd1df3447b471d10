"""The parts of `culmen.extensions.agents`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="agents",
    strategies={"cato": "culmen.extensions.agents.cato:Cato"},
    performers={"session": "culmen.extensions.agents.sandbox.world:make_session_craft"},
    simulators={"session": "culmen.extensions.agents.simulated:perform_session"},
    pages={"sessions": "culmen.extensions.agents.page:SESSIONS"},
    checks={"agents": "culmen.extensions.agents.doctor:AGENTS"},
    trials={"agent": "culmen.extensions.agents.doctor:try_agent"},
)
