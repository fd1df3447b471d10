"""Keeping an idea repository small: results in a line, old histories condensed, ideas over the cap dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from culmen.core.ports import Lab
from culmen.memory.failures import Failure, FailureMemory
from culmen.memory.ideas import Repository
from culmen.strategies.parts.advice import items, read_object, reminder, told, whole
from culmen.strategies.parts.implementing import Outcome
from culmen.strategies.parts.settings import About, check
from culmen.strategies.parts.voice import Voice


@dataclass(frozen=True)
class Upkeep:
    """Requests to the advisor; where it gives nothing usable, a rule does the work, so the bounds always hold."""

    cap: Annotated[int, About("ideas an island keeps", least=1)] = 5
    condense: Annotated[int, About("experiments under one idea after which its history is condensed", least=2)] = 20
    sentences: Annotated[int, About("sentences of an idea's description and of a result", least=1)] = 2
    tries: Annotated[int, About("how often it is asked before the rule does it", least=1)] = 3
    feedback_chars: Annotated[int, About("characters of the evaluator's feedback shown for a result", least=0)] = 2000

    def __post_init__(self) -> None:
        check(self)

    async def result(self, lab: Lab, voice: Voice, experiment: str, outcome: Outcome, before: float | None) -> str:
        """One line on what an experiment brought: the score first, then what is to be learned from it."""
        line = score_line(lab, outcome, before)
        feedback = (
            outcome.rollout.observations[0].feedback[: self.feedback_chars] if outcome.rollout else outcome.reason
        )
        slots = {"experiment": experiment, "outcome": line, "feedback": feedback}
        answer = await self._answer(lab, voice, "result", "lesson", slots)
        return f"{line}: {str(answer.get('lesson') or '').strip() or experiment}"

    async def tidy(
        self, lab: Lab, voice: Voice, ideas: Repository, number: int, failures: FailureMemory
    ) -> tuple[Repository, list[int]]:
        """The repository within its bounds, and the ideas dropped."""
        idea = ideas.find(number)
        if idea is not None and idea.tries and idea.tries % self.condense == 0 and len(idea.results) > 1:
            slots = {
                "idea": told(ideas.without({i.number for i in ideas.ideas} - {number})),
                "sentences": self.sentences,
            }
            answer = await self._answer(lab, voice, "condense", "result", slots)
            result = str(answer.get("result") or "") or f"{idea.tries} experiments; the latest: {idea.results[-1]}"
            ideas = ideas.condensed(number, str(answer.get("description") or ""), result)
        excess = len(ideas.ideas) - self.cap
        if excess <= 0:
            return ideas, []
        answer = await self._answer(lab, voice, "prune", "drop", {"ideas": told(ideas), "count": excess})
        dropped = _dropped(answer, ideas, excess)
        for one in dropped:
            if (gone := ideas.find(one)) and gone.tries:  # nothing failed under one that was never tried
                failures.add(Failure(gone.description, "", "pruned", f"after {gone.tries} experiments"))
        return ideas.without(dropped), dropped

    async def _answer(self, lab: Lab, voice: Voice, step: str, field: str, slots: dict[str, Any]) -> dict[str, Any]:
        """The reply as an object that has this field, else {}. Silence is not asked again."""
        for attempt in range(self.tries):
            said = await voice.say(lab, step, **slots, reminder=reminder(attempt))
            answer = read_object(said.text)
            if answer.get(field) or not said.text:
                return answer
        return {}


def _dropped(answer: dict[str, Any], ideas: Repository, excess: int) -> list[int]:
    """The ideas named, as many as must go. The rest are those never tried, then those tried most often, of equals the
    oldest first."""
    named = [n for n in map(whole, items(answer.get("drop"))) if n is not None and ideas.find(n)]
    others = sorted((i for i in ideas.ideas if i.number not in named), key=lambda i: (i.tries > 0, -i.tries, i.number))
    return (list(dict.fromkeys(named)) + [i.number for i in others])[:excess]


def score_line(lab: Lab, outcome: Outcome, before: float | None) -> str:
    """`score 2.51 (from 2.48)`, or how it failed."""
    rollout, objective = outcome.rollout, lab.task.objective
    if rollout is None or rollout.reward is None:
        return f"failed ({outcome.fault})"
    was = "" if before is None else f" (from {objective.score(before):.6g})"
    return f"score {objective.score(rollout.reward):.6g}{was}"
