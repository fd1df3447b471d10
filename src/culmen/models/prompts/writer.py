"""Rendering of briefs as prompts, and of structured data as readable text."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from culmen.core import wording
from culmen.core.brief import UNREAD, Attempt, Brief, Exhibit, Measured, Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.json import JsonObject
from culmen.core.pictures import is_picture
from culmen.core.ports import Lab, Proposer
from culmen.core.task import Objective, Task
from culmen.core.wording import (
    clip_middle,
    fence_part,
    fence_text,
    format_number,
    indent_fences,
    indent_text,
)
from culmen.models.prompts.formats import ReplyFormat, skills_note
from culmen.models.prompts.template import Templates


class Prompt(msgspec.Struct, frozen=True):
    """The two messages of a request; `pictures` follow the second (`core.pictures`)."""

    system: str
    user: str
    pictures: tuple[str, ...] = ()


class PromptWriter:
    """Renderer of briefs and slots for one task."""

    def __init__(self, task: Task, templates: Templates | None = None) -> None:
        self._task, self._templates = task, templates or Templates()
        self._cases = {case.id: case for case in task.cases}

    def brief_prompt(self, brief: Brief, form: ReplyFormat, shown: Shown | None = None) -> Prompt:
        """The prompt of a request for candidates, within the limits `shown`.

        The parts to improve come last and are all that stands in fences, so that a model that goes
        on from the first or the last fenced text goes on from them.
        """
        task, shown = self._task, shown or Shown()
        common = self._common_sections(brief, form, shown)
        if brief.parent is None:
            user = self._seedless_text(common, shown)
        else:
            common["goal"] = indent_fences(common["goal"])
            rules = common["rules"], frozen_section(brief.parent, task)
            common["rules"] = "\n\n".join(filter(None, rules))
            user = self._templates.fill(
                "improve",
                parent=candidate_section(brief, task),
                closing=closing_sentence(form, brief.k),
                reward=self._reward_line(brief),
                observations=observations_section(
                    brief.observations, self._cases, shown, task.objective
                ),
                attempts=attempts_section(brief, task.objective),
                advice=_FACTS if wording.is_text(task) else "",
                **common,
            )
        pictures = tuple(
            text
            for _, text in _result_pictures(brief.observations, task.objective)[: shown.pictures]
        )
        return Prompt(self._system_text(brief), user, pictures)

    def _system_text(self, brief: Brief) -> str:
        """The system text: the island's own, else the task's, else that of the template."""
        task, island = self._task, brief.island
        own = task.island_systems[island : island + 1] if island is not None else ()
        common = task.system.strip() or self._templates.fill("system").strip()
        return "".join(own).strip() or common

    def _common_sections(self, brief: Brief, form: ReplyFormat, shown: Shown) -> dict[str, str]:
        """The sections that every request has, by the names of the templates."""
        task = self._task
        return {
            "goal": task.goal.strip() or "Improve the candidate's score.",
            "direction": wording.describe_direction(task.objective),
            "rules": wording.rules_section(task, brief.parent),
            "context": _titled_section(
                "Lessons of the search so far",
                indent_fences(wording.clip_middle(brief.context.strip(), shown.context)),
            ),
            "hypothesis": _titled_section(
                "What to try, and nothing else", indent_fences(brief.hypothesis.strip())
            ),
            "inspirations": inspirations_section(brief, task.objective, shown),
            "reply": self._reply_section(form, brief),
        }

    def _seedless_text(self, common: dict[str, str], shown: Shown) -> str:
        """The user's message for a first candidate, from its known use."""
        task = self._task
        known = (
            wording.describe_interface(task),
            wording.required_definitions(task),
            example_inputs(task.split("train"), shown),
        )
        contract = _titled_section("How a candidate is used", "\n\n".join(filter(None, known)))
        advice = _FACTS if wording.is_text(task) else ""
        return self._templates.fill("seedless", contract=contract, advice=advice, **common)

    def _reply_section(self, form: ReplyFormat, brief: Brief) -> str:
        task = self._task
        text = form.instructions(self._templates, task, brief.parent, max(1, brief.k)).strip()
        note = skills_note(task.surface) if brief.parent is not None else ""
        return "\n\n".join(filter(None, (text, note, *map(_unread_sentence, brief.attempts))))

    def text_prompt(self, role: str, slots: JsonObject) -> Prompt:
        """The prompt of a request for text, from the template of the role's name.

        Without one, from the general template. A role may have steps, such as `advisor.generate`:
        each has a template, and they share the model of `advisor`. A slot becomes a readable
        outline of its data; `$slots` holds all of them.
        """
        name = role if self._templates.has(role) else "write"
        filled = {key: outline_text(value, 3) for key, value in slots.items() if key != "goal"}
        everything = outline_text({key: value for key, value in slots.items() if key != "goal"})
        goal = str(slots.get("goal") or self._task.goal or "Find the best candidate.").strip()
        direction = wording.describe_direction(self._task.objective)
        known = {
            "pairs": "",
            "level": "",
            "success": "a good score",
            "rules": wording.rules_section(
                self._task, next(iter(self._task.initial_candidates()), None)
            ),
            "direction": direction,
        }
        user = self._templates.fill(
            name, **{**known, **filled, "goal": goal, "role": role, "slots": everything}
        )
        systems = (f"{role}.system", f"{role.partition('.')[0]}.system", "system")
        system = next(name for name in systems if self._templates.has(name))
        return Prompt(self._templates.fill(system).strip(), user)

    def _reward_line(self, brief: Brief) -> str:
        score = score_text(brief.reward, brief.measured, self._task.objective, "95 % interval")
        return f"Its score so far: {score}." if score else ""


_FACTS = (
    "The candidate is a text. Work out the facts and rules of the domain that the results "
    "reveal, and state them so "
    "that they hold for cases that are not shown. Do not copy cases or their answers into it."
)


def _unread_sentence(attempt: Attempt) -> str:
    """The reason why the last reply could not be read, "" for another attempt."""
    if attempt.fault != UNREAD:
        return ""
    return (
        f"Your last answer could not be used, {attempt.change}. Answer in exactly the form above."
    )


def _titled_section(title: str, text: str) -> str:
    return f"# {title}\n\n{text}" if text else ""


# The sections of a prompt: each a function from values to text, "" for no content.


class Shown(msgspec.Struct, frozen=True):
    """Limits of a prompt: number of items and characters of each.

    The current candidate is never cut.
    """

    observations: int = 8
    inspirations: int = 6
    case_input: int = 1_500
    feedback: int = 3_000
    artifact: int = 2_000
    artifacts: int = 4
    exhibit: int = 6_000
    exhibits: int = 16_000
    metrics: int = 12
    context: int = 8_000
    pictures: int = 0  # 0 for a model that reads only texts


def candidate_section(brief: Brief, task: Task) -> str:
    """The parent's parts that may change, each in a fenced block that opens with its name.

    Another part is the first and the last in each request, so that a model that goes on from one
    of these comes to all.
    """
    if brief.parent is None:
        return ""
    language, frozen = wording.surface_language(task), task.surface.frozen
    parts = [(name, text) for name, text in brief.parent.parts.items() if name not in frozen]
    turn = (sum(brief.parent.id.encode()) + len(brief.attempts)) % max(len(parts), 1)
    turned = parts[turn:] + parts[:turn]
    return "\n\n".join(fence_part(text, name, language) for name, text in turned)


def frozen_section(shown: Candidate, task: Task) -> str:
    """The parts that must not change."""
    frozen = {name: text for name, text in shown.parts.items() if name in task.surface.frozen}
    return _titled_section("Parts that must not change", _indented_parts(frozen))


def closing_sentence(form: ReplyFormat, k: int) -> str:
    """The prompt's last line: a model that reads only the end knows what to do with the text."""
    asked = k if form.samples(k) < k else 1
    what = "the changed candidate" if asked == 1 else f"{asked} changed candidates"
    shape = _SHAPES.get(form.name)
    return f"Now write {what} in the format given above{f': {shape}' if shape else ''}."


_SHAPES = {  # of a form in a few words; without a fence
    "rewrite": "each changed part whole in a fenced block",
    "diff": "as SEARCH/REPLACE edits of this text",
    "json": "as one JSON object",
    "verbalized": "as one JSON object",
    "verbalized_diff": "as one JSON object",
    "blocks": "each under its own line, its changed parts whole in fenced blocks",
}


def _indented_parts(parts: Mapping[str, str]) -> str:
    return "\n\n".join(f"`{name}`:\n\n{indent_text(text)}" for name, text in parts.items())


def score_text(
    reward: float | None, measured: Measured, objective: Objective, interval: str = ""
) -> str:
    """A mean score ± half the width of its 95 % interval, with its number of evaluations.

    `interval` is a label for the interval. "" if nothing is known.
    """
    failed = f"{measured.failures} failed" if measured.failures else ""
    if reward is None:
        return f"none ({failed})" if failed else ""
    count = (
        ""
        if not measured.count or measured.margin == 0
        else f"{measured.count} evaluation{'s'[: measured.count - 1]}"
    )
    score, known = format_number(objective.score(reward)), [count, failed]
    if measured.margin:
        places = max(0, 1 - math.floor(math.log10(measured.margin)))
        score = f"{objective.score(reward):.{places}f} ± {measured.margin:.{places}f}"
        known = [interval, *known]
    notes = ", ".join(filter(None, known))
    return f"{score} ({notes})" if notes else score


def attempts_section(brief: Brief, objective: Objective) -> str:
    """Earlier changes of the current candidate with their results, oldest first."""
    read = [each for each in brief.attempts if each.fault != UNREAD]
    if not read:
        return ""
    lines = [f"- {_attempt_outcome(each, brief, objective)}: {each.change}" for each in read]
    return "\n".join(
        ["# Changes of the candidate at the end that were tried, and what came of them", "", *lines]
    )


def _attempt_outcome(attempt: Attempt, brief: Brief, objective: Objective) -> str:
    if attempt.reward is None:
        return (
            attempt.fault
            if attempt.fault == "no candidate"
            else f"failed, {attempt.fault}"
            if attempt.fault
            else "not evaluated yet"
        )
    outcome = f"score {score_text(attempt.reward, attempt.measured, objective)}"
    if brief.reward is None:
        return outcome
    gain = attempt.reward - brief.reward
    noise = math.hypot(attempt.measured.margin or 0.0, brief.measured.margin or 0.0)
    verdict = "equal" if gain == 0 else f"{'better' if gain > 0 else 'worse'} by {abs(gain):.3g}"
    return f"{outcome}, {verdict}{', within the noise' if gain and abs(gain) <= noise else ''}"


def observations_section(
    seen: tuple[Observation, ...], cases: Mapping[str, Case], shown: Shown, objective: Objective
) -> str:
    """The results of the current candidate, worst first, as many as `shown` allows.

    No text is repeated.
    """
    if not seen:
        return ""

    def worth(observation: Observation) -> tuple[bool, float]:
        return observation.ok, 0.0 if observation.score is None else objective.reward(
            observation.score
        )

    ordered, shown_before = sorted(seen, key=worth)[: shown.observations], set[str]()
    blocks = [_observation_section(o, cases.get(o.case), shown, shown_before) for o in ordered]
    if len(seen) > len(ordered):
        blocks.append(f"({len(seen) - len(ordered)} better results are not shown.)")
    several = len(ordered) > 1
    title = f"# Latest {'results' if several else 'result'} of the candidate at the end"
    title += ", worst first" if several else ""
    if pictures := _result_pictures(seen, objective):
        blocks.append(_pictures_sentence([name for name, _ in pictures], shown.pictures))
    return "\n\n".join([title, *blocks])


def _result_pictures(seen: Iterable[Observation], objective: Objective) -> list[tuple[str, str]]:
    """Distinct pictures of the results as (name, picture), those of the best result first."""
    best = sorted(
        seen,
        key=lambda o: -objective.reward(o.score) if o.score is not None else math.inf,
    )
    found = {
        text: name
        for one in reversed(best)
        for name, text in sorted(one.artifacts.items())
        if is_picture(text)
    }
    return [(name, text) for text, name in reversed(found.items())]


def _pictures_sentence(names: Sequence[str], limit: int) -> str:
    """A sentence on the evaluator's pictures, attached or not."""
    if not limit:
        return f"The evaluator also made pictures, which you cannot see: {', '.join(names)}."
    return f"Attached pictures of these results, in this order: {', '.join(names[:limit])}."


def _observation_section(
    seen: Observation, case: Case | None, shown: Shown, shown_before: set[str]
) -> str:
    reason = f" ({seen.reason})" if seen.reason else ""
    verdict = (
        f"score {format_number(seen.score)}" if seen.ok else f"failed: {seen.status.value}{reason}"
    )
    if seen.status is Status.TIMEOUT:
        verdict += f" after {seen.seconds:.3g} s"
    lines = [f"## {f'Case {seen.case}' if seen.case else 'Evaluation'}: {verdict}"]
    if case is not None:
        lines.append(
            _unrepeated_text("Input", plain_text(case.input), shown.case_input, shown_before)
        )
    if seen.metrics:
        lines.append(f"Metrics: {_metrics_text(seen.metrics, shown)}")
    if seen.feedback.strip():
        lines.append(
            _unrepeated_text("Feedback", seen.feedback.strip(), shown.feedback, shown_before)
        )
    for name, text in _output_texts(seen)[: shown.artifacts]:
        lines.append(_unrepeated_text(name, text, shown.artifact, shown_before))
    return "\n".join(lines)


def _output_texts(seen: Observation) -> list[tuple[str, str]]:
    """The candidate's output, unless the feedback ends with it, and the artifacts."""
    log = seen.artifacts.get("log", "").strip()
    return (
        [("It printed", log)] if log and log[-200:] not in seen.feedback else []
    ) + seen.readable_artifacts


def _unrepeated_text(title: str, text: str, limit: int, shown_before: set[str]) -> str:
    if len(text) > 60 and f"{title}:{text}" in shown_before:
        return f"{title}: the same as above."
    shown_before.add(f"{title}:{text}")
    return f"{title}:\n{indent_text(clip_middle(text, limit))}"


def _metrics_text(metrics: Mapping[str, float], shown: Shown) -> str:
    return ", ".join(
        f"{name} = {value:.6g}" for name, value in sorted(metrics.items())[: shown.metrics]
    )


def inspirations_section(brief: Brief, objective: Objective, shown: Shown) -> str:
    """Other candidates as examples, with scores and metrics.

    One close to the candidate to improve, or to an example before it, is shown as a diff.
    """
    exhibits = brief.inspirations[: shown.inspirations]
    shown_complete = [("the candidate at the end", brief.parent)] if brief.parent else []
    limit = min(shown.exhibit, shown.exhibits // max(1, len(exhibits)))
    blocks: list[str] = []
    for exhibit in exhibits:
        if any(exhibit.candidate.parts == other.parts for _, other in shown_complete):
            continue
        title = f"example {len(blocks) + 1}"
        text = _shortest_diff(exhibit.candidate, shown_complete)
        if not text:
            shown_complete.append((title, exhibit.candidate))
            share = max(200, limit // len(exhibit.candidate.parts or ("",)))
            text = _indented_parts(
                {name: clip_middle(part, share) for name, part in exhibit.candidate.parts.items()}
            )
        blocks.append(
            "\n\n".join(
                [f"## {title.capitalize()}{_exhibit_facts(exhibit, objective, shown)}", text]
            )
        )
    return (
        "\n\n".join(["# Examples: other candidates, only to learn from", *blocks]) if blocks else ""
    )


def _exhibit_facts(exhibit: Exhibit, objective: Objective, shown: Shown) -> str:
    score = score_text(exhibit.reward, exhibit.measured, objective)
    lines = [f": score {score}" if score else ""]
    if exhibit.metrics:
        lines.append(f"\nMetrics: {_metrics_text(exhibit.metrics, shown)}")
    if exhibit.feedback.strip():
        lines.append(
            "\nFeedback:\n"
            + indent_text(clip_middle(exhibit.feedback.strip(), shown.feedback // 2))
        )
    return "\n".join(filter(None, lines))


def _shortest_diff(shown: Candidate, others: Sequence[tuple[str, Candidate]]) -> str:
    """The shortest diff from one of the others.

    "" if no diff is shorter than half of the text.
    """
    found = [(line_diff(other.text, shown.text), title) for title, other in others]
    text, title = min(
        ((text, title) for text, title in found if text),
        key=lambda each: len(each[0]),
        default=("", ""),
    )
    return f"It differs from {title} in these lines:\n\n{indent_text(text)}" if text else ""


@lru_cache(256)
def line_diff(before: str, after: str) -> str:
    """The lines that differ, with one line of context.

    "" if they are not shorter than half of the text.
    """
    old, new = before.splitlines(), after.splitlines()
    shared = (Counter(old) & Counter(new)).total()
    if 2 * shared < len(new):
        return ""
    from difflib import unified_diff

    lines = list(unified_diff(old, new, n=1, lineterm=""))[2:]
    text = "\n".join("@@" if line.startswith("@@") else line for line in lines)
    return text if 2 * len(text) < len(after) else ""


def example_inputs(cases: Sequence[Case], shown: Shown) -> str:
    """Inputs of the first two training cases."""
    inputs = [
        fence_text(clip_middle(plain_text(case.input), shown.case_input)) for case in cases[:2]
    ]
    return "\n\n".join(["Inputs look like this:", *inputs]) if inputs else ""


def plain_text(value: object) -> str:
    """Plain data as text: texts unchanged, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def outline_text(value: object, level: int = 2) -> str:
    """Plain data as a readable outline.

    Short entries are one a line, long texts are fenced, the rest is under headings.
    """
    if isinstance(value, Mapping):
        entries = [
            _outline_entry(str(name), item, level)
            for name, item in value.items()
            if item not in (None, "", {}, [])
        ]
    elif isinstance(value, list | tuple):
        entries = [_outline_entry(str(place), item, level) for place, item in enumerate(value, 1)]
    else:
        text = format_number(value) if isinstance(value, float) else plain_text(value)
        return fence_text(text) if "\n" in text else text
    short = [entry for entry in entries if "\n" not in entry]
    return "\n\n".join(
        filter(None, ["\n".join(short), *(entry for entry in entries if "\n" in entry)])
    )


def _outline_entry(name: str, item: object, level: int) -> str:
    text = outline_text(item, level + 1)
    return f"{name}: {text}" if "\n" not in text else f"{'#' * level} {name}\n\n{text}"


# The proposer of runs with a model; it drops a format that the model cannot follow.

GIVEN_UP = "format_given_up"
_NOT_JSON = ("not_json", "blocks")
_INSTEAD = {  # the fault of a model that cannot follow a format, and the format used instead
    "verbalized": _NOT_JSON,
    "verbalized_diff": _NOT_JSON,
    "verbalized_auto": _NOT_JSON,
    "auto": ("diff_mismatch", "rewrite"),
}


class FallbackProposer(Proposer):
    """Proposer that drops a reply format after `patience` faulty replies in a row to a role.

    Several candidates are requested as JSON until that many replies hold no such object
    (`not_json`), from then on as fenced blocks (`blocks`). If the format is left open, long parents
    are edited by diffs until that many do not fit (`diff_mismatch`), from then on by complete
    texts. The proposal at which a format is dropped has the fault kind `format_given_up`, and a
    note of that kind is journaled.
    """

    def __init__(self, patience: int = 3) -> None:
        self._patience = patience
        self._misses: Counter[tuple[str, str]] = Counter()

    async def propose(self, lab: Lab, brief: Brief) -> Proposal:
        """Request the model's candidates, as one effect."""
        if brief.format not in _INSTEAD:
            return await lab.ask(brief)
        fault, instead = _INSTEAD[brief.format]
        key = brief.role, fault
        if self._misses[key] >= self._patience:
            return await lab.ask(msgspec.structs.replace(brief, format=instead))
        answer = await lab.ask(brief)
        missed = fault in answer.faults and (fault == "not_json" or not answer.candidates)
        if missed:
            self._misses[key] += 1
        elif answer.candidates:
            self._misses[key] = 0
        if not missed or self._misses[key] != self._patience:
            return answer
        lab.note(
            GIVEN_UP,
            role=brief.role,
            model=answer.model,
            format=brief.format,
            replies=self._patience,
        )
        return msgspec.structs.replace(answer, faults={**answer.faults, GIVEN_UP: 1})
