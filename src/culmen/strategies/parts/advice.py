"""A decision of the advisor: hypotheses, which of them are new, and the one experiment to make (PACEvolve++, 3.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.memory.failures import Failure, FailureMemory
from culmen.memory.ideas import Repository, bounded
from culmen.strategies.parts.settings import About, check
from culmen.strategies.parts.voice import Voice


@dataclass(frozen=True)
class Decision:
    """`experiment` is "" if there is none, and `fault` then says why: advisor_format, or repeat where every choice had
    failed before. `ideas` is the repository with its new ideas, `samples` the trainable replies it is made of."""

    ideas: Repository
    idea: int = 0
    experiment: str = ""
    samples: tuple[int, ...] = ()
    hypotheses: tuple[str, ...] = ()
    fault: str = ""


@dataclass
class _Draft:
    ideas: Repository
    samples: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Advising:
    """Three steps, each asked again with a reminder when the reply cannot be read."""

    hypotheses: Annotated[int, About("hypotheses per decision", least=1)] = 3
    tries: Annotated[int, About("how often a step is asked before the decision fails", least=1)] = 3
    program_chars: Annotated[int, About("characters of the parent shown", least=200)] = 24_000
    failures: Annotated[int, About("latest failures shown", least=0)] = 6

    def __post_init__(self) -> None:
        check(self)

    async def decide(
        self, lab: Lab, voice: Voice, parent: Rollout | None, ideas: Repository, failures: FailureMemory
    ) -> Decision:
        """Generate, classify, select. An experiment that failed before word by word is refused and asked for anew."""
        draft, scene = _Draft(ideas), self._scene(lab, parent, failures)
        hypotheses = await self._generate(lab, voice, draft, scene)
        if not hypotheses:
            return Decision(ideas, samples=tuple(draft.samples), fault=_UNREADABLE)
        options = [await self._classify(lab, voice, draft, text) for text in hypotheses]
        idea, experiment, fault = await self._select(lab, voice, draft, scene, options, failures)
        return Decision(draft.ideas, idea, experiment, tuple(draft.samples), tuple(hypotheses), fault)

    async def _generate(self, lab: Lab, voice: Voice, draft: _Draft, scene: dict[str, Any]) -> list[str]:
        for attempt in range(self.tries):
            slots = {**scene, "ideas": told(draft.ideas), "count": self.hypotheses, "reminder": reminder(attempt)}
            said = await voice.say(lab, "generate", **slots)
            _keep(draft, said.sample)
            if found := read_hypotheses(said.text)[: self.hypotheses]:
                return found
        return []

    async def _classify(self, lab: Lab, voice: Voice, draft: _Draft, hypothesis: str) -> dict[str, Any]:
        """Put a hypothesis under an idea that exists, or make it a new one, as which it also counts if no reply can be
        read."""
        for attempt in range(self.tries):
            slots = {"ideas": told(draft.ideas), "hypothesis": hypothesis, "sentences": draft.ideas.sentences}
            said = await voice.say(lab, "classify", **slots, reminder=reminder(attempt))
            _keep(draft, said.sample)
            answer = read_object(said.text)
            number, description = whole(answer.get("idea")), str(answer.get("description") or "")
            if answer.get("exists") is True and number is not None and draft.ideas.find(number):
                draft.ideas = draft.ideas.described(number, description)
                return {"idea": number, "hypothesis": hypothesis}
            if answer.get("exists") is False:
                break
        else:
            description = ""
        number, draft.ideas = draft.ideas.next, draft.ideas.added(description or hypothesis)
        return {"idea": number, "hypothesis": hypothesis}

    async def _select(
        self,
        lab: Lab,
        voice: Voice,
        draft: _Draft,
        scene: dict[str, Any],
        options: list[dict[str, Any]],
        failures: FailureMemory,
    ) -> tuple[int, str, str]:
        refused = ""
        for attempt in range(self.tries):
            slots = {**scene, "ideas": told(draft.ideas), "options": options, "refused": refused}
            said = await voice.say(lab, "select", **slots, reminder=reminder(attempt if not refused else 0))
            _keep(draft, said.sample)
            answer = read_object(said.text)
            number, experiment = whole(answer.get("idea")), str(answer.get("experiment") or "").strip()
            if number is None or not experiment or draft.ideas.find(number) is None:
                continue
            if not failures.blocks(experiment):
                return number, experiment, ""
            refused = experiment
            failures.add(Failure(_name(draft.ideas, number), experiment, "repeat", "chosen again after it had failed"))
        return 0, "", "repeat" if refused else _UNREADABLE

    def _scene(self, lab: Lab, parent: Rollout | None, failures: FailureMemory) -> dict[str, Any]:
        """What every step is told of the task and of where the search stands."""
        objective = lab.task.objective
        reward = parent.reward if parent else None
        program = parent.candidate.text if parent else ""
        return {
            "goal": lab.task.goal,
            "direction": "higher scores are better" if objective.direction == "max" else "lower scores are better",
            "score": None if reward is None else objective.score(reward),
            "program": program[: self.program_chars],
            "failures": [
                {"idea": f.idea, "experiment": f.experiment, "why": f"{f.kind}: {f.reason}".rstrip(": ")}
                for f in failures.recent(self.failures)
            ],
        }


_UNREADABLE = "advisor_format"


def told(ideas: Repository) -> list[dict[str, Any]]:
    """A repository as plain data for prompts and notes."""
    return [
        {"number": i.number, "description": i.description, "tried": i.tries, "results": list(i.results)}
        for i in ideas.ideas
    ]


def read_hypotheses(text: str) -> list[str]:
    """Hypotheses of a reply, each once: `{"hypotheses": [{"hypothesis": ...}, ...]}`, or lines `Hypothesis: ...`."""
    found: list[str] = []
    for item in items(read_object(text).get("hypotheses")):
        value = cast(dict[str, Any], item).get("hypothesis") if isinstance(item, dict) else item
        found += [value] if isinstance(value, str) else []
    found = found or re.findall(r"^\W*hypothesis\W*\d*\W*:[\s*]*(.+)$", text, re.IGNORECASE | re.MULTILINE)
    return list(dict.fromkeys(filter(None, (bounded(one, 3) for one in found))))


def read_object(text: str) -> dict[str, Any]:
    """The JSON object of a reply, repaired where it is slightly broken; {} if there is none."""
    start = text.find("{")
    if start < 0:
        return {}
    import json_repair

    read: Any = json_repair.loads(text[start:])
    first = next(iter(items(read)), read)
    return cast(dict[str, Any], first) if isinstance(first, dict) else {}


def items(value: Any) -> list[Any]:
    """The value if it is a list, else []."""
    return cast(list[Any], value) if isinstance(value, list) else []


def whole(value: Any) -> int | None:
    """A whole number, also one written as text; None for anything else."""
    if isinstance(value, str) and value.strip().lstrip("#").isdigit():
        return int(value.strip().lstrip("#"))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _name(ideas: Repository, number: int) -> str:
    idea = ideas.find(number)
    return idea.description if idea else ""


def _keep(draft: _Draft, sample: int | None) -> None:
    draft.samples += [] if sample is None else [sample]


def reminder(attempt: int) -> str:
    return "The last reply could not be read. Answer with the JSON object alone." if attempt else ""
