"""The parts of `culmen.agents`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="agents",
    strategies={"cato": "culmen.agents.cato:Cato"},
    task_folders={"skill": "culmen.agents.rollouts.form:FOLDERS"},
    evaluator_forms={"rollout": "culmen.agents.rollouts.form:ROLLOUT"},
    performers={"session": "culmen.agents.sandbox.world:make_session_craft"},
    simulators={"session": "culmen.agents.simulated:perform_session"},
    verbs={
        "mine": "culmen.agents.mining.cli:VERBS",
        "tools": "culmen.agents.rollouts.cli:VERBS",
    },
    pages={"sessions": "culmen.agents.page:SESSIONS"},
    checks={"agents": "culmen.agents.doctor:AGENTS"},
    trials={"agent": "culmen.agents.doctor:try_agent"},
)
