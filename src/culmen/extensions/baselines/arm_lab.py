"""The lab that an arm of a portfolio sees."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from culmen.core.brief import BANK_EMPTY, Brief, Exhibit, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Rollout
from culmen.core.event import Custom
from culmen.core.ports import Lab, Strategy, with_protocol_defaults
from culmen.core.usage import Usage
from culmen.extensions.baselines.turns import Arm, TurnTaking


class ArmLab:
    """The lab of one arm: its requests wait for a turn; all else is the run's.

    An effect `FAMILY.open` begins a session of an agent, which has its turn until `FAMILY.end`: a
    program that runs cannot wait. Until then the arm's other requests do not wait either.
    """

    def __init__(self, turns: TurnTaking, arm: Arm) -> None:
        self._turns, self._arm, self._lab = turns, arm, turns.lab
        whole = with_protocol_defaults(Strategy, arm.strategy)
        self._has_agents = bool(whole.agent_setting)

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
            rollout, _ = await self._turns.perform(self._arm, asked, count)
            self._turns.enter_candidates(self._arm, self._made_here(candidate))
        for each in rollout.observations:
            usage = each.usage + Usage(evaluations=1)
            self._turns.charge(self._arm, usage, each.seconds)
        return rollout

    async def propose(self, brief: Brief, through: Lab | None = None) -> Proposal:
        """Ask for candidates once the arm has a turn; the brief shows the run's leader, too."""
        brief = self._with_leader(brief)
        asked = self._lab.propose(brief, through)
        answer, seconds = await self._turns.perform(self._arm, asked)
        self._turns.charge(self._arm, answer.usage, seconds)
        self._turns.enter_candidates(self._arm, answer.candidates)
        if answer.fault == BANK_EMPTY and not answer.candidates:
            await self._turns.wait_for_others(self._arm)
        return answer

    async def write(self, role: str, **slots: object) -> Text:
        """Ask the model behind `role` for prose once the arm has a turn."""
        text, seconds = await self._turns.perform(self._arm, self._lab.write(role, **slots))
        self._turns.charge(self._arm, text.usage, seconds)
        return text

    async def effect(self, kind: str, /, **payload: object) -> Custom:
        """Perform a custom effect; the beginning of a session waits for a turn."""
        asked, step = self._lab.effect(kind, **payload), kind.rpartition(".")[2]
        if step == "open":
            done, _ = await self._turns.perform(self._arm, asked)
            self._turns.begin_session(self._arm)
        else:
            done = await asked
        self._turns.charge(self._arm, done.usage, 0.0)
        if step == "end":
            self._turns.end_session(self._arm)
        return done

    def session_limit(self, budget: str) -> float:
        """Most of a budget that one agent may use."""
        return self._turns.session_limit(budget)

    @property
    def restored(self) -> None:
        """Nothing: arms go on from the journal alone."""
        return

    async def checkpoint(self, state: object) -> None:
        """Go on: a turn of another arm may be under way."""

    def handed(self) -> tuple[Candidate, ...]:
        """A person's candidates since the last call; the run's leader, too, if the arm stalls.

        Agents get it before one of them begins, stalled or not: its prompt shows what is known.
        """
        turns, arm = self._turns, self._arm
        turns.persons += self._lab.handed()
        fresh, arm.persons = turns.persons[arm.persons :], len(turns.persons)
        own = turns.makers.get(turns.leader, (None,))[0] is arm
        needs = not arm.sessions if self._has_agents else turns.is_stalled(arm)
        if turns.leader and not own and turns.leader not in arm.handed and needs:
            arm.handed.add(turns.leader)
            fresh.append(self._lab.find(turns.leader))
        return tuple(fresh)

    def _made_here(self, candidate: Candidate) -> tuple[Candidate, ...]:
        """The candidate, unless it is an initial program or a person's."""
        others = (*self._lab.seeds, *self._turns.persons)
        return () if any(each.id == candidate.id for each in others) else (candidate,)

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
