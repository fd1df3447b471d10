"""How a brief becomes a prompt, and the proposer that simply asks a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from culmen.core import wording
from culmen.core.brief import Brief, Proposal
from culmen.core.ports import Lab
from culmen.core.task import Task
from culmen.prompts import sections
from culmen.prompts.formats import Format
from culmen.prompts.sections import Shown
from culmen.prompts.template import Templates


class Prompt(msgspec.Struct, frozen=True):
    """The two messages of a request."""

    system: str
    user: str


@dataclass(frozen=True)
class ModelProposer:
    """Asks the model behind the brief's role; `format` ("" leaves the brief's) says how it shall answer."""

    format: str = ""

    async def propose(self, lab: Lab, brief: Brief) -> Proposal:
        """One effect: the model's candidates."""
        return await lab.ask(msgspec.structs.replace(brief, format=self.format) if self.format else brief)


class Writer:
    """Renders briefs and slots for one task."""

    def __init__(self, task: Task, templates: Templates | None = None, shown: Shown | None = None) -> None:
        self._task, self._templates, self._shown = task, templates or Templates(), shown or Shown()
        self._cases = {case.id: case for case in task.cases}

    def brief(self, brief: Brief, form: Format) -> Prompt:
        """The prompt of a request for candidates."""
        task, shown = self._task, self._shown
        common = {
            "goal": task.goal.strip() or "Improve the candidate's score.",
            "direction": wording.direction(task.objective),
            "rules": wording.rules(task, brief.parent),
            "context": _titled("Lessons of the search so far", wording.clip(brief.context.strip(), shown.context)),
            "hypothesis": _titled("What to try, and nothing else", brief.hypothesis.strip()),
            "inspirations": sections.inspirations(brief.inspirations, task.objective, task.surface.language, shown),
            "reply": form.instructions(self._templates, task, brief.parent, max(1, brief.k)).strip(),
        }
        if brief.parent is None:
            known = filter(
                None, (wording.contract(task), wording.stub(task), sections.examples(task.split("train"), shown))
            )
            contract = _titled("How a candidate is used", "\n\n".join(known))
            user = self._templates.fill("seedless", contract=contract, **common)
        else:
            user = self._templates.fill(
                "improve",
                parent=sections.candidate(brief.parent, task.surface.language),
                reward=self._reward(brief),
                observations=sections.observations(brief.observations, self._cases, shown),
                **common,
            )
        return Prompt(task.system.strip() or self._templates.fill("system").strip(), user)

    def prose(self, role: str, slots: dict[str, Any]) -> Prompt:
        """The prompt of a request for text: the template of the role's name, or the general one.

        A role may have steps, `advisor.generate`: a template for each, and the model of `advisor`.
        A slot becomes a readable outline of its data; `$slots` is all of them.
        """
        name = role if self._templates.has(role) else "write"
        filled = {key: sections.material(value, 3) for key, value in slots.items() if key != "goal"}
        everything = sections.material({key: value for key, value in slots.items() if key != "goal"})
        goal = str(slots.get("goal") or self._task.goal or "Find the best candidate.").strip()
        known = {"pairs": "", "level": "the usual", "rules": wording.rules(self._task, None)}
        user = self._templates.fill(name, **{**known, **filled, "goal": goal, "role": role, "slots": everything})
        systems = (f"{role}.system", f"{role.partition('.')[0]}.system", "system")
        system = next(name for name in systems if self._templates.has(name))
        return Prompt(self._templates.fill(system).strip(), user)

    def _reward(self, brief: Brief) -> str:
        if brief.reward is None:
            return ""
        return f"Its mean score so far: {wording.number(self._task.objective.score(brief.reward))}."


def _titled(title: str, text: str) -> str:
    return f"# {title}\n\n{text}" if text else ""
