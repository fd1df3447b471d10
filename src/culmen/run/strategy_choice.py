"""Strategy of a run, chosen by name, with settings, an agent and what an earlier run learnt.

    choose_strategy(StrategyChoice(name="cato", agent="claude"), task, options, roles)

A name that is not given is the task's, and else culmen's default for the run's models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.errors import UserError
from culmen.core.options import DEFAULT_STRATEGY, STRATEGY_FOR_BANKS, RunOptions
from culmen.core.ports import MinimalStrategy, Strategy, with_protocol_defaults
from culmen.core.task import Task
from culmen.strategies import catalog

if TYPE_CHECKING:
    from culmen.llm.spec import Roles
    from culmen.store.database import RunMeta
    from culmen.strategies.pedigree import Prior

OFFLINE, BUILTIN = "offline", "builtin"  # agents that are no programs


class StrategyChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy as a request names it.

    name            "" for the usual one
    settings        texts by name
    agent           for strategies that have one; named alone, it chooses such a strategy
    prior           a run of the same task and model, whose noise and steps are learnt
    usual           the name that the task's defaults choose, "" for none
    usual_settings  settings that the task's defaults give the usual strategy
    """

    name: str = ""
    settings: Mapping[str, str] = {}
    agent: str | None = None
    prior: Path | None = None
    usual: str = ""
    usual_settings: Mapping[str, str] = {}


def choose_strategy(
    choice: StrategyChoice, task: Task, options: RunOptions, roles: Roles | None
) -> MinimalStrategy:
    """The strategy of a new run; raises `UserError` for illegal settings, agents and priors."""
    usual = choice.usual
    if not usual:  # what an earlier run learnt is of use to the default alone
        usual = DEFAULT_STRATEGY if choice.prior else usual_strategy(roles)
    name = choice.name or (catalog.WITH_AGENTS if choice.agent else usual)
    settings = {**(choice.usual_settings if name == usual else {}), **choice.settings}
    settings = with_agent(name, choice.agent, settings, options.searches_offline)
    prior = None if choice.prior is None else _learnt_prior(name, choice.prior, task, options)
    strategy: Any = catalog.make_strategy(name, settings)
    return strategy if prior is None else dataclasses.replace(strategy, prior=prior)


def usual_strategy(roles: Roles | None) -> str:
    """The name of the strategy of a run that names none; `roles` are its models.

    Programs from a bank alone are independent drafts, which nothing improves.
    """
    members = roles.members("proposer") if roles else ()
    drafts = bool(members) and all(member.model.bank is not None for member in members)
    return STRATEGY_FOR_BANKS if drafts else DEFAULT_STRATEGY


def altered_strategy(meta: RunMeta, settings: Mapping[str, str]) -> MinimalStrategy:
    """The run's own strategy with some settings changed."""
    old = catalog.revive_object(meta.strategy["path"], meta.strategy["config"])
    new = catalog.make_strategy(meta.strategy["path"], settings)
    fields = {name.strip().replace("-", "_") for name in settings}
    return dataclasses.replace(old, **{name: getattr(new, name) for name in fields})


def with_agent(
    name: str, agent: str | None, settings: dict[str, str], offline: bool
) -> dict[str, str]:
    """The settings with an agent, for strategies that have one.

    It is the agent named, else the offline one if the search asks no model (`offline`), else the
    built-in one. Raises `UserError` for an agent that cannot work here.
    """
    cls = with_protocol_defaults(Strategy, catalog.strategy_class(name))
    field = cls.agent_setting
    if not field:
        if agent is None:
            return settings
        if "agent" in getattr(catalog.strategy_class(name), "__dataclass_fields__", ()):
            return {**settings, "agent": agent}  # one of a person's own
        raise UserError(
            f"the strategy {catalog.strategy_name(name)} has no agent",
            where=f"--agent {agent}",
            fix=f"write --strategy {catalog.WITH_AGENTS}, or let the agent be one of several: "
            f"--strategy portfolio --set 'arms=pedigree, {catalog.WITH_AGENTS}(agent={agent})'",
        )
    if agent is not None and settings.get(field, agent) != agent:
        raise UserError(
            "two agents are named",
            where=f"--agent {agent} --set {field}={settings[field]}",
            fix="name one",
        )
    kind = agent or settings.get(field) or (OFFLINE if offline else BUILTIN)
    if kind == BUILTIN and offline:
        raise UserError(
            "the built-in agent needs a model",
            where=f"--agent {BUILTIN}",
            fix=f"choose one with --model NAME, or use --agent {OFFLINE}",
        )
    if kind not in (OFFLINE, BUILTIN):
        cls.require_agent(kind)
    return {**settings, field: kind}


def check_agents_of_arms(strategy: MinimalStrategy, offline: bool) -> None:
    """Refuse an arm whose agent is not installed, or has no model (`offline`) and needs one."""
    for part in with_protocol_defaults(Strategy, strategy).parts:
        whole = with_protocol_defaults(Strategy, part)
        kind = getattr(part, whole.agent_setting) if whole.agent_setting else OFFLINE
        if kind not in (OFFLINE, BUILTIN):
            whole.require_agent(kind)
        if kind == BUILTIN and offline:
            name = catalog.strategy_name(catalog.path_of(type(part)))
            raise UserError(
                "the built-in agent needs a model",
                where=f"arm {name}",
                fix=f"choose one with --model NAME, or write {name}(agent=offline) or the name of "
                "an agent's program",
            )


def _learnt_prior(name: str, run: Path, task: Task, options: RunOptions) -> Prior:
    """The noise and steps learnt by a run, as a prior for the strategy."""
    from culmen.store import views
    from culmen.strategies.pedigree import PedigreeSearch, Prior

    where = f"--prior {run}"
    if not issubclass(catalog.strategy_class(name), PedigreeSearch):
        raise UserError(
            "only the strategy pedigree takes a prior",
            where=where,
            fix="leave out --prior or --strategy",
        )
    about, law = views.run_meta(run), views.step_law(run)
    if about.task.digest != task.digest or about.model_name != str(options.model):
        raise UserError(
            "that run is of another task or model, so its steps say nothing of this one's",
            where=where,
            fix="name a run of the same task with the same --model",
        )
    if law is None:
        raise UserError(
            "that run has no scores to learn from",
            where=where,
            fix="name a run that scored something",
        )
    return Prior(*law)
