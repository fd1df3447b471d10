"""Several experiments decided in one request, carried out one after the other: what an advisor costs, shared out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.strategies.pacevolve.advisor import (
    UNREADABLE,
    Decision,
    Voice,
    items,
    read_object,
    reminder,
    scene,
    told,
    whole,
)
from culmen.strategies.pacevolve.memory import FailureMemory, IdeaRepository, bounded
from culmen.strategies.settings import About, check


@dataclass(frozen=True)
class Planning:
    """One request decides on `experiments` experiments with one parent, each under an idea known or new, and names
    ideas to give up. Its decision is the first of them; the others are its `planned`."""

    experiments: Annotated[int, About("experiments decided in one request", least=1)] = 8
    tries: Annotated[int, About("how often is asked before the decision fails", least=1)] = 3
    program_chars: Annotated[int, About("characters of the parent shown", least=200)] = 24_000
    failures: Annotated[int, About("latest failures shown", least=0)] = 6

    def __post_init__(self) -> None:
        check(self)

    @property
    def cost(self) -> str:
        """What decisions cost, for people."""
        return f"an advisor's plan for every {self.experiments} experiments, one call"

    async def decide(
        self, lab: Lab, voice: Voice, parent: Rollout | None, ideas: IdeaRepository, failures: FailureMemory
    ) -> Decision:
        """A plan; an experiment that failed before word by word is left out, and asked anew if none is left."""
        shown, fault = scene(lab, parent, failures, self.program_chars, self.failures), UNREADABLE
        for attempt in range(self.tries):
            slots = {**shown, "ideas": told(ideas), "count": self.experiments, "sentences": ideas.sentences}
            said = await voice.say(lab, "plan", **slots, reminder=reminder(attempt if fault == UNREADABLE else 0))
            answer = read_object(said.text)
            found = [one for one in map(_object, items(answer.get("experiments"))) if one][: self.experiments]
            after, plan = _filed(found, ideas.without(_given_up(answer, found)))
            fresh = tuple((idea, text) for idea, text in plan if not failures.blocks(text))
            if fresh:
                return Decision(after, *fresh[0], hypotheses=tuple(text for _, text in fresh), planned=fresh[1:])
            fault = "repeat" if plan else UNREADABLE
        return Decision(ideas, fault=fault)


def _object(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _given_up(answer: dict[str, Any], found: list[dict[str, Any]]) -> set[int]:
    """Ideas that the reply gives up and plans nothing under."""
    used = {whole(one.get("idea")) for one in found}
    return {number for number in map(whole, items(answer.get("drop"))) if number is not None and number not in used}


def _filed(found: list[dict[str, Any]], ideas: IdeaRepository) -> tuple[IdeaRepository, list[tuple[int, str]]]:
    """The repository with the new ideas of a plan, and each experiment with the number of its idea."""
    plan: dict[str, int] = {}
    fresh: dict[str, int] = {}
    for one in found:
        text, about = str(one.get("experiment") or "").strip(), str(one.get("description") or "").strip()
        number = whole(one.get("idea"))
        if not text:
            continue
        if number is None or ideas.find(number) is None:
            about = bounded(about or text, ideas.sentences)
            number = fresh.get(about)
            if number is None:
                number = fresh[about] = ideas.next
                ideas = ideas.added(about)
        plan.setdefault(text, number)
    return ideas, [(number, text) for text, number in plan.items()]
