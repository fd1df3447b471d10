"""Several strategies in one run: the budget moves to the one that improves on the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from culmen.core.errors import UserError
from culmen.core.ports import Lab, MinimalStrategy, Strategy, with_protocol_defaults
from culmen.extensions.baselines.arm_lab import ArmLab
from culmen.extensions.baselines.turns import Arm, TurnRules, TurnTaking
from culmen.strategies import catalog
from culmen.strategies.settings import About, check

_WHERE = "strategy portfolio"


@dataclass(frozen=True)
class Portfolio:
    """Arms of one run, each a strategy with a memory of its own, over one budget and evidence.

    An arm works in turns of a share of the budget. A turn goes to the arm with the highest draw
    from what is known of its rate of successes by cost (Thompson sampling of a Poisson rate with a
    Gamma prior), in which older ones count less; a success is a candidate that is the leader of the
    run or an ancestor of it. The proposals of every arm show the leader of
    the run, and an arm without success is handed it as a candidate of its own.

    An arm is written as for `--strategies`: `polca(epsilon=off)`; with `@ROLE` behind it its
    proposals ask the model of that role, so that models are compared by their gains. One arm may be
    of coding agents, `cato(agent=claude)`: each of them begins once the arm has a turn, works to
    its end beside the other arms, may use five turns' share of every budget, and finds the leader
    of the run among the experiments.
    """

    paper = "Thompson sampling (Thompson, 1933) over searches that share their results"

    arms: Annotated[tuple[str, ...], About("strategies, as STRATEGY or STRATEGY(...)@ROLE")] = (
        "pedigree",
        "turboevolve",
        "map_elites",
    )
    turn: Annotated[float, About("share of the budget of one turn", least=0.001, most=0.5)] = 0.02
    memory: Annotated[
        float, About("share of the budget after which a success counts 1/e", least=0.01)
    ] = 0.2
    doubt: Annotated[
        float,
        About("expected rate of the other arms, as a part of the first's", least=0.01, most=1),
    ] = 0.1
    trials: Annotated[
        float, About("share of the budget that arms get in any case", least=0, most=1)
    ] = 0.1
    patience: Annotated[
        int, About("turns without success after which an arm is handed the leader", least=1)
    ] = 2

    def __post_init__(self) -> None:
        check(self)
        if not self.arms:
            raise UserError("it has no arms", where=_WHERE, fix="--set arms=pedigree,polca")
        with_agents: list[str] = []
        for text, part in zip(self.arms, self.parts, strict=True):
            whole = with_protocol_defaults(Strategy, part)
            if whole.trains:
                raise UserError(
                    f"'{text}' cannot be an arm: its training needs a run of its own",
                    where=_WHERE,
                    fix="fork one run from the other: culmen runs fork RUN --strategy ...",
                )
            with_agents += [text] if whole.agent_setting else []
        if len(with_agents) > 1:
            raise UserError(
                f"{' and '.join(with_agents)}: one arm alone can be of agents, who share a "
                "repository",
                where=_WHERE,
                fix=f"--set arms=pedigree,{with_agents[0]}",
            )
        if with_agents and _split_role(with_agents[0])[1]:
            raise UserError(
                f"'{with_agents[0]}' names a role, and agents make no proposals",
                where=_WHERE,
                fix="name the built-in agent's model by its own role: --model agent=NAME",
            )

    @property
    def parts(self) -> tuple[MinimalStrategy, ...]:
        """The strategies of the arms."""
        return tuple(
            catalog.make_strategy(*catalog.parse_strategy(_split_role(text)[0]))
            for text in self.arms
        )

    @property
    def _whole_parts(self) -> list[Strategy]:
        return [with_protocol_defaults(Strategy, part) for part in self.parts]

    @property
    def asides(self) -> str:
        """Requests to models besides those for programs, in words."""
        own = (part.asides for part in self._whole_parts)
        return "; ".join(dict.fromkeys(filter(None, own)))

    @property
    def crew(self) -> str:
        """Number and kind of the agents of an arm; "" without one."""
        return next((part.crew for part in self._whole_parts if part.crew), "")

    @property
    def writes(self) -> bool:
        """True if every arm can write a first candidate without one of culmen's models."""
        return all(part.writes for part in self._whole_parts)

    @property
    def retraces(self) -> bool:
        """True if no arm leaves traces outside the journal."""
        return all(part.retraces for part in self._whole_parts)

    async def search(self, lab: Lab) -> str | None:
        """Run until the budget ends it, or until every arm has ended."""
        arms = [
            Arm(name, strategy, _split_role(name)[1])
            for name, strategy in zip(self.arms, self.parts, strict=True)
        ]
        rules = TurnRules(self.turn, self.memory, self.doubt, self.trials, self.patience)
        turns = TurnTaking(rules, lab, arms)
        reasons = await lab.gather(*(self.run_arm(turns, arm) for arm in arms))
        return next(filter(None, reasons), None)

    async def run_arm(self, turns: TurnTaking, arm: Arm) -> str | None:
        """Run one strategy on a lab of its own; the reason for its end."""
        reason = await arm.strategy.search(cast(Lab, ArmLab(turns, arm)))
        turns.lab.note("arm ended", arm=arm.name, reason=reason or "")
        turns.end_arm(arm)
        return reason


def _split_role(text: str) -> tuple[str, str]:
    """Strategy and role of an arm's text; "" for the role of the strategy itself."""
    head, mark, role = text.rpartition("@")
    return (head, role) if mark and ")" not in role else (text, "")
