"""Several strategies in one run: the budget moves to the one that improves on the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, cast

import msgspec

from culmen.core.brief import BANK_EMPTY, Brief, Exhibit, Proposal
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Rollout
from culmen.core.ports import Lab, MinimalStrategy, Strategy, with_protocol_defaults
from culmen.core.usage import Usage
from culmen.strategies import catalog
from culmen.strategies.settings import About, check
from culmen.strategies.turns import Arm, TurnRules, TurnTaking

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
    proposals ask the model of that role, so that models are compared by their gains.
    """

    version: ClassVar[int] = 2
    changes: ClassVar[Mapping[int, str]] = {
        2: "arms share the first evaluations of initial programs, the first arm's strategy is as "
        "promising with any model, and an arm whose bank is empty waits for the others",
    }
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
        for text, part in zip(self.arms, self.parts, strict=True):
            whole = with_protocol_defaults(Strategy, part)
            if whole.agent_setting or whole.trains:
                raise UserError(
                    f"'{text}' cannot be an arm: its agents or training need a run of their own",
                    where=_WHERE,
                    fix="fork one run from the other: culmen fork RUN --strategy ...",
                )

    @property
    def parts(self) -> tuple[MinimalStrategy, ...]:
        """The strategies of the arms."""
        return tuple(
            catalog.make_strategy(*catalog.parse_strategy(_split_role(text)[0]))
            for text in self.arms
        )

    @property
    def asides(self) -> str:
        """Requests to models besides those for programs, in words."""
        own = (with_protocol_defaults(Strategy, part).asides for part in self.parts)
        return "; ".join(dict.fromkeys(filter(None, own)))

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


class ArmLab:
    """The lab of one arm: its requests wait for a turn; all else is the run's."""

    def __init__(self, turns: TurnTaking, arm: Arm) -> None:
        self._turns, self._arm, self._lab = turns, arm, turns.lab

    async def evaluate(
        self,
        candidate: Candidate,
        cases: Sequence[Case | None] | None = None,
        repeats: int = 1,
        *,
        certify: bool = False,
    ) -> Rollout:
        """Evaluate a candidate once the arm has a turn."""
        asked = self._lab.evaluate(candidate, cases, repeats, certify=certify)
        chosen = (self._lab.task.split("train") or (None,)) if cases is None else cases
        count = repeats * len(chosen)
        if candidate in self._lab.seeds and candidate.id not in self._arm.looked and not certify:
            self._arm.looked.add(candidate.id)
            names = tuple("" if case is None else case.id for case in chosen)
            key = (candidate.id, names, repeats)
            rollout, is_own = await self._turns.evaluate_seed(self._arm, key, asked, count)
            if not is_own:
                return rollout
        else:
            rollout = await self._turns.perform(self._arm, asked, count)
        for each in rollout.observations:
            usage = each.usage + Usage(evaluations=1)
            self._turns.charge(self._arm, usage, each.seconds)
        return rollout

    async def propose(self, brief: Brief, through: Lab | None = None) -> Proposal:
        """Ask for candidates once the arm has a turn; the brief shows the run's leader, too."""
        brief = self._with_leader(brief)
        asked = self._lab.elapsed
        answer = await self._turns.perform(self._arm, self._lab.propose(brief, through))
        self._turns.charge(self._arm, answer.usage, max(0.0, self._lab.elapsed - asked))
        self._turns.enter_candidates(self._arm, answer.candidates)
        if answer.fault == BANK_EMPTY and not answer.candidates:
            await self._turns.wait_for_others(self._arm)
        return answer

    @property
    def restored(self) -> None:
        """Nothing: arms go on from the journal alone."""
        return

    async def checkpoint(self, state: object) -> None:
        """Go on: a turn of another arm may be under way."""

    def handed(self) -> tuple[Candidate, ...]:
        """A person's candidates since the last call; the run's leader, too, if the arm stalls."""
        turns, arm = self._turns, self._arm
        turns.persons += self._lab.handed()
        fresh, arm.persons = turns.persons[arm.persons :], len(turns.persons)
        own = turns.makers.get(turns.leader, (None,))[0] is arm
        if turns.leader and not own and turns.leader not in arm.handed and turns.is_stalled(arm):
            arm.handed.add(turns.leader)
            fresh.append(self._lab.find(turns.leader))
        return tuple(fresh)

    def _with_leader(self, brief: Brief) -> Brief:
        role = self._arm.role or brief.role
        leader = self._turns.leader
        known = {each.candidate.id for each in brief.inspirations}
        if brief.parent is None or not leader or leader in known | {brief.parent.id}:
            return msgspec.structs.replace(brief, role=role)
        shown = (*brief.inspirations, Exhibit(self._lab.find(leader)))
        return msgspec.structs.replace(brief, role=role, inspirations=shown)

    def __getattr__(self, name: str) -> object:
        return getattr(self._lab, name)
