"""From a model's replies to candidates: parsed, told apart from what is known already, faults counted by kind."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate, Origin
from culmen.core.task import Task
from culmen.prompts.blocks import without_thoughts
from culmen.prompts.formats import Format, Parsed

_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL | re.IGNORECASE)
_REASONING = re.compile(r"<reasoning>.*?(?:</reasoning>|\Z)", re.DOTALL | re.IGNORECASE)
_REFUSAL = re.compile(
    r"\A\W*(?:i(?:'|’)?m\s+(?:very\s+)?sorry|sorry,|i\s+(?:can(?:'|’)?t|cannot|won(?:'|’)t)\s+(?:help|assist|comply|do|provide))",
    re.IGNORECASE,
)


class Sample(msgspec.Struct, frozen=True):
    """One reply: its text and how it ended (stop | length | refused)."""

    text: str
    finish: str = "stop"


class Read(msgspec.Struct, frozen=True):
    """What all replies to one brief came to."""

    candidates: tuple[Candidate, ...]
    hypothesis: str
    faults: dict[str, int]


def read_replies(samples: tuple[Sample, ...], form: Format, task: Task, brief: Brief, model: str) -> Read:
    """Candidates of all replies in their order, each once.

    Faults: empty, refused, truncated, unparsable, diff_mismatch, outside_blocks, too_long, unchanged (the parent
    again), duplicate (another candidate of the brief or of an earlier reply).
    """
    known = {brief.parent.id} if brief.parent else set()
    known |= {exhibit.candidate.id for exhibit in brief.inspirations}
    found: list[Candidate] = []
    faults: Counter[str] = Counter()
    hypothesis = ""
    for sample in samples:
        parsed = parse(sample, form, task, brief.parent)
        hypothesis = hypothesis or parsed.hypothesis
        if parsed.fault:
            faults[parsed.fault] += 1
        for draft in parsed.drafts:
            made = _candidate(draft.parts, draft.weight, form.name, model, len(found), brief)
            if made.id in known:
                faults["unchanged" if brief.parent and made.id == brief.parent.id else "duplicate"] += 1
            else:
                known.add(made.id)
                found.append(made)
    return Read(tuple(found[: brief.k]), hypothesis, dict(faults))


def parse(sample: Sample, form: Format, task: Task, parent: Candidate | None) -> Parsed:
    """One reply's drafts or its fault."""
    if sample.finish == "refused":
        return Parsed(fault="refused")
    if not sample.text.strip():
        return Parsed(fault="truncated" if sample.finish == "length" else "empty")
    parsed = form.parse(sample.text, task, parent)
    if sample.finish == "length" and not (parsed.drafts and parsed.whole):
        return Parsed(hypothesis=parsed.hypothesis, fault="truncated")
    if parsed.fault == "unparsable" and _REFUSAL.match(without_thoughts(sample.text)):
        return Parsed(fault="refused")
    return parsed


def broken_off(sample: Sample, form: Format, task: Task, parent: Candidate | None) -> bool:
    """Whether a reply hit its length limit before the candidate was whole."""
    return sample.finish == "length" and parse(sample, form, task, parent).fault == "truncated"


def summary(reply: str) -> str:
    """What stands between <summary> tags (an unclosed one runs to the end); without them, all but the reasoning."""
    text = without_thoughts(reply)
    found = _SUMMARY.search(text)
    return found[1].strip() if found else _REASONING.sub("", text).strip()


def _candidate(
    parts: dict[str, str], weight: float | None, operator: str, model: str, rank: int, brief: Brief
) -> Candidate:
    parents = tuple(
        c.id for c in (*((brief.parent,) if brief.parent else ()), *(e.candidate for e in brief.inspirations))
    )
    origin = Origin(operator=operator, model=model, rank=rank, weight=weight, island=brief.island)
    return Candidate.of(parts, tuple(dict.fromkeys(parents)), origin)
