"""The sections of a prompt: each a function from values to text, "" when there is nothing to show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from culmen.core.brief import Exhibit
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Objective
from culmen.core.wording import clip, fence, number


class Shown(msgspec.Struct, frozen=True):
    """How much is shown: numbers of things, and characters of each; the current candidate is never cut."""

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
