"""Renders briefs as prompts, and structured data as readable text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from culmen.core import wording
from culmen.core.brief import Brief, Exhibit
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Objective, Task
from culmen.core.wording import clip, fence, number
from culmen.prompts.formats import ReplyFormat
from culmen.prompts.template import Templates


class Prompt(msgspec.Struct, frozen=True):
    """The two messages of a request."""

    system: str
    user: str


class PromptWriter:
    """Renders briefs and slots for one task."""

    def __init__(self, task: Task, templates: Templates | None = None, shown: Shown | None = None) -> None:
        self._task, self._templates, self._shown = task, templates or Templates(), shown or Shown()
        self._cases = {case.id: case for case in task.cases}

    def brief(self, brief: Brief, form: ReplyFormat) -> Prompt:
        """The prompt of a request for candidates."""
        task, shown = self._task, self._shown
        common = {
            "goal": task.goal.strip() or "Improve the candidate's score.",
            "direction": wording.direction(task.objective),
            "rules": wording.rules(task, brief.parent),
            "context": _titled("Lessons of the search so far", wording.clip(brief.context.strip(), shown.context)),
            "hypothesis": _titled("What to try, and nothing else", brief.hypothesis.strip()),
            "inspirations": inspirations(brief.inspirations, task.objective, task.surface.language, shown),
            "reply": form.instructions(self._templates, task, brief.parent, max(1, brief.k)).strip(),
        }
        if brief.parent is None:
            known = filter(None, (wording.contract(task), wording.stub(task), examples(task.split("train"), shown)))
            contract = _titled("How a candidate is used", "\n\n".join(known))
            user = self._templates.fill("seedless", contract=contract, **common)
        else:
            user = self._templates.fill(
                "improve",
                parent=candidate(brief.parent, task.surface.language),
                reward=self._reward(brief),
                observations=observations(brief.observations, self._cases, shown),
                **common,
            )
        return Prompt(task.system.strip() or self._templates.fill("system").strip(), user)

    def prose(self, role: str, slots: dict[str, Any]) -> Prompt:
        """The prompt of a request for text: the template of the role's name, or the general one.

        A role may have steps, `advisor.generate`: a template for each, and the model of `advisor`.
        A slot becomes a readable outline of its data; `$slots` is all of them.
        """
        name = role if self._templates.has(role) else "write"
        filled = {key: material(value, 3) for key, value in slots.items() if key != "goal"}
        everything = material({key: value for key, value in slots.items() if key != "goal"})
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


# The sections of a prompt: each a function from values to text, "" where there is nothing to show.


class Shown(msgspec.Struct, frozen=True):
    """Limits on what a prompt shows: number of items and characters of each; the current candidate is never cut."""

    observations: int = 8
    inspirations: int = 6
    case_input: int = 1_500
    feedback: int = 3_000
    artifact: int = 2_000
    artifacts: int = 4
    exhibit: int = 8_000
    context: int = 8_000


def candidate(shown: Candidate, language: str) -> str:
    """All parts, each in a fenced block that opens with its name."""
    return "\n\n".join(fence(text, f"{language} {name}".strip()) for name, text in shown.parts.items())


def observations(seen: tuple[Observation, ...], cases: Mapping[str, Case], shown: Shown) -> str:
    """The results of the current candidate, failures first, as many as `shown` allows."""
    if not seen:
        return ""
    ordered = sorted(seen, key=lambda o: o.ok)[: shown.observations]
    blocks = [_observation(o, cases.get(o.case), shown) for o in ordered]
    if len(seen) > len(ordered):
        blocks.append(f"({len(seen) - len(ordered)} more results are not shown.)")
    return "\n\n".join(["# Its latest results", *blocks])


def _observation(seen: Observation, case: Case | None, shown: Shown) -> str:
    reason = f" ({seen.reason})" if seen.reason else ""
    verdict = f"score {number(seen.score)}" if seen.ok else f"failed: {seen.status.value}{reason}"
    if seen.status is Status.TIMEOUT:
        verdict += f" after {seen.seconds:.3g} s"
    lines = [f"## {f'Case {seen.case}' if seen.case else 'Evaluation'}: {verdict}"]
    if case is not None:
        lines.append("Input:\n" + fence(clip(plain(case.input), shown.case_input)))
    if seen.metrics:
        lines.append("Metrics: " + ", ".join(f"{k} = {number(v)}" for k, v in sorted(seen.metrics.items())))
    if seen.feedback.strip():
        lines.append("Feedback:\n" + fence(clip(seen.feedback.strip(), shown.feedback)))
    for name, text in sorted(seen.artifacts.items())[: shown.artifacts]:
        lines.append(f"{name}:\n" + fence(clip(text, shown.artifact)))
    return "\n".join(lines)


def inspirations(exhibits: tuple[Exhibit, ...], objective: Objective, language: str, shown: Shown) -> str:
    """Other candidates to learn from, with their mean scores."""
    if not exhibits:
        return ""
    blocks = ["# Other candidates to learn from"]
    for index, exhibit in enumerate(exhibits[: shown.inspirations], 1):
        score = "" if exhibit.reward is None else f" (mean score {number(objective.score(exhibit.reward))})"
        share = max(200, shown.exhibit // len(exhibit.candidate.parts or ("",)))
        cut = Candidate.of({name: clip(text, share) for name, text in exhibit.candidate.parts.items()})
        feedback = clip(exhibit.feedback.strip(), shown.feedback // 2)
        blocks.append(f"## Candidate {index}{score}\n\n{candidate(cut, language)}")
        if feedback:
            blocks.append("Feedback:\n" + fence(feedback))
    return "\n\n".join(blocks)


def examples(cases: Iterable[Case], shown: Shown, most: int = 2) -> str:
    """Inputs of the first training cases."""
    inputs = [fence(clip(plain(case.input), shown.case_input)) for case in list(cases)[:most]]
    return "\n\n".join(["Inputs look like this:", *inputs]) if inputs else ""


def plain(value: Any) -> str:
    """Plain data as text: texts as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def material(value: Any, level: int = 2) -> str:
    """Plain data as a readable outline: short entries one a line, long texts fenced, the rest under headings."""
    if isinstance(value, Mapping):
        entries = [_entry(str(name), item, level) for name, item in value.items() if item not in (None, "", {}, [])]
    elif isinstance(value, list | tuple):
        entries = [_entry(str(place), item, level) for place, item in enumerate(value, 1)]
    else:
        text = number(value) if isinstance(value, float) else plain(value)
        return fence(text) if "\n" in text else text
    short = [entry for entry in entries if "\n" not in entry]
    return "\n\n".join(filter(None, ["\n".join(short), *(entry for entry in entries if "\n" in entry)]))


def _entry(name: str, item: Any, level: int) -> str:
    text = material(item, level + 1)
    return f"{name}: {text}" if "\n" not in text else f"{'#' * level} {name}\n\n{text}"
