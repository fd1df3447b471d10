"""Reply formats: the instructions for the model, and the form in which its replies are read."""

from __future__ import annotations

import json
import re
from collections import Counter

import msgspec

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate, Origin
from culmen.core.foreign import UNREADABLE, Unreadable, boundary, lazy_pattern
from culmen.core.json import JsonObject
from culmen.core.replies import Parsed
from culmen.core.replies.names import part_names, shown_name
from culmen.core.replies.thoughts import without_thoughts
from culmen.core.task import SKILL_FILE, Surface, Task
from culmen.core.wording import fence_marks, indent_text, part_info, surface_language
from culmen.models.prompts.template import Templates

_NOTE = 120  # characters kept of a reply's hypothesis about its candidate


class ReplyFormat:
    """A form of candidates in a reply; `form` is that of `core.replies`, which is read."""

    name = ""
    form = "text"
    several = False  # all candidates of a request are in one reply

    def samples(self, k: int) -> int:
        """Number of replies to request for k candidates."""
        return 1 if self.several else k

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        """Instructions on the form of the answer for `k` candidates."""
        slots = _block_slots(task, parent) | ({"k": str(k)} if self.several else {})
        return templates.fill(self.name, **slots)

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        """The drafts of a reply, or its fault; never raises, whatever the text."""
        from culmen.core.replies.forms import read_form  # the readers wait for the first reply

        return read_form(self.form, reply, task, parent)


class Rewrite(ReplyFormat):
    """Whole parts in fenced blocks; one candidate a reply. Edits of the parent are read, too."""

    name = "rewrite"


class Diff(ReplyFormat):
    """SEARCH/REPLACE edits of the parent; one candidate a reply. Whole texts are read, too."""

    name = "diff"

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        names = part_names(task, parent).editable
        heading = f"=== {names[0]} ===\n" if len(names) > 1 else ""
        return templates.fill("diff", heading=heading)


class JsonParts(ReplyFormat):
    """One JSON object with the new texts, for models in JSON mode."""

    name = form = "json"

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        listed = map(shown_name, part_names(task, parent).editable)
        names = ", ".join(f'{json.dumps(name)}: "..."' for name in listed)
        return templates.fill("json", names=names)


FORMATS: dict[str, ReplyFormat] = {
    format.name: format for format in (Rewrite(), Diff(), JsonParts())
}


def skills_note(surface: Surface) -> str:
    """Instructions to add, drop and merge skills in a reply; "" if the parts are fixed."""
    if not surface.skills:
        return ""
    return (
        f"To add a skill, give the text of its NAME/{SKILL_FILE}; to drop one, give an empty text "
        f"for its {SKILL_FILE}; to merge two, change one and drop the other. Next to edits, "
        "added and dropped skills are fenced blocks that open with the part's name."
    )


def _block_slots(task: Task, parent: Candidate | None) -> dict[str, str]:
    """The first lines of the fenced blocks of these parts, as a list, and the length of a fence.

    No example in a fence: the candidate to improve is all that a prompt has in fences.
    """
    names, language = part_names(task, parent).editable, surface_language(task)
    example = "\n".join(f"- `{part_info(shown_name(name), language)}`" for name in names)
    texts = parent.parts.values() if parent is not None else ()
    longest = max((len(fence_marks(text)) for text in texts), default=3)
    return {"example": example, "marks": _NUMBERS.get(longest, str(longest))}


_NUMBERS = {3: "three", 4: "four", 5: "five", 6: "six"}


# Several candidates in one reply: as JSON with a stated probability each (TurboEvolve, Appendix A),
# or as blocks.


class Verbalized(ReplyFormat):
    """One JSON object, `responses`, with K candidates a reply.

    Each response has `code` (or `parts` by name) and `probability`.
    """

    name, form, several = "verbalized", "responses", True

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        fields, meaning = self.response_fields(part_names(task, parent).editable)
        return templates.fill("verbalized", k=str(k), fields=fields, meaning=meaning)

    def response_fields(self, names: tuple[str, ...]) -> tuple[str, str]:
        """The fields of a response besides its probability, and their description."""
        if len(names) == 1:
            return (
                '"code": "..."',
                f'"code" is the complete new text of {names[0]}, as a JSON string without fences.',
            )
        inside = ", ".join(f'{json.dumps(shown_name(name))}: "..."' for name in names)
        description = (
            '"parts" holds the new text of each part that changes, whole; parts you leave out stay '
            "as they are."
        )
        return f'"parts": {{{inside}}}', description


class VerbalizedDiff(Verbalized):
    """Verbalized candidates as SEARCH/REPLACE edits of the parent, in `diff`.

    Without a parent, complete texts are requested.
    """

    name = "verbalized_diff"

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        if parent is None:
            return super().instructions(templates, task, parent, k)
        names = part_names(task, parent).editable
        meaning = (
            '"diff" is a JSON string of edits of the candidate at the end, one after another, each '
            "of the form\n\n"
        )
        meaning += indent_text(
            (f"=== {names[0]} ===\n" if len(names) > 1 else "")
            + "<<<<<<< SEARCH\nlines copied exactly\n=======\n"
            "lines that take their place\n>>>>>>> REPLACE\n"
        )
        return templates.fill(
            "verbalized", k=str(k), fields='"diff": "..."', meaning=meaning + "\n"
        )


class Blocks(ReplyFormat):
    """K candidates in fenced blocks, each under its heading, for models weak at JSON."""

    name = form = "blocks"
    several = True


SEVERAL: dict[str, ReplyFormat] = {
    form.name: form for form in (Verbalized(), VerbalizedDiff(), Blocks())
}


# All replies to a brief: parsed, separated from known candidates, faults counted by kind.

_SUMMARY = lazy_pattern(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL | re.IGNORECASE)
_REASONING = lazy_pattern(r"<reasoning>.*?(?:</reasoning>|\Z)", re.DOTALL | re.IGNORECASE)
_REFUSAL = lazy_pattern(
    r"\A\W*(?:i(?:'|’)?m\s+(?:very\s+)?sorry|sorry,|i\s+(?:can(?:'|’)?t|cannot|won(?:'|’)t)\s+(?:help|assist|comply|do|provide))",
    re.IGNORECASE,
)


_UNANSWERED = ("refused", "filtered", "reasoning_cut", "reasoning_only")
_CUT = Parsed(fault="truncated", detail="the reply was cut off at the limit of its length")
_WHOLE = ("stop", "end", "eos", "complete", "done", "tool", "function", "success")
_DECLINED = (
    "refus",
    "filter",
    "safety",
    "recitation",
    "blocklist",
    "prohibited",
    "spii",
    "guardrail",
)


def finish_kind(word: str) -> str:
    """The reason for a reply's end in any provider's words: stop, refused, or else length.

    A reply that ended for a reason that is not known, such as an error, may have broken off.
    """
    word = word.lower().removeprefix("finish_reason_")
    if word in (*_UNANSWERED, "tools"):
        return word
    if any(each in word for each in _DECLINED):
        return "refused"
    return "stop" if not word or word.startswith(_WHOLE) else "length"


class Completion(msgspec.Struct, frozen=True):
    """One reply: its text, its finish reason, and the tool calls as sent.

    `finish` is stop, length, refused or tools, or a provider's word for it (`finish_kind`); or
    filtered, reasoning_cut (the limit was reached before the answer began) and reasoning_only (the
    server gave no other text).
    """

    text: str
    finish: str = "stop"
    tool_calls: tuple[JsonObject, ...] = ()

    @property
    def is_usable(self) -> bool:
        """True if it is an answer, readable or not."""
        is_answer = finish_kind(self.finish) not in _UNANSWERED
        return is_answer and bool(self.text.strip() or self.tool_calls)


class Read(msgspec.Struct, frozen=True):
    """The results of all replies to one brief; `detail` is the first fault, in words."""

    candidates: tuple[Candidate, ...]
    hypothesis: str
    faults: dict[str, int]
    detail: str = ""


def read_replies(
    samples: tuple[Completion, ...], form: ReplyFormat, task: Task, brief: Brief, model: str
) -> Read:
    """Distinct candidates of all replies, in order.

    Faults: empty, refused, truncated, unparsable, unclosed, ambiguous, elided, diff_mismatch,
    unknown_part, outside_blocks, too_long, unchanged (the parent again), duplicate (another
    candidate of the brief or of an earlier reply).
    """
    known = {brief.parent.id} if brief.parent else set()
    known |= {exhibit.candidate.id for exhibit in brief.inspirations}
    candidates: list[Candidate] = []
    faults: Counter[str] = Counter()
    hypothesis = detail = ""
    for sample in samples:
        parsed = read_completion(sample, form, task, brief.parent)
        hypothesis = hypothesis or parsed.hypothesis
        detail = detail or (f"{parsed.fault}: {parsed.detail}" if parsed.detail else "")
        if parsed.fault:
            faults[parsed.fault] += 1
        for draft in parsed.drafts:
            # of a single reply, it is the proposal's hypothesis
            said = parsed.hypothesis if len(samples) > 1 else ""
            candidate = _draft_candidate(
                draft.parts, draft.weight, form.name, model, len(candidates), brief, said
            )
            if candidate.id in known:
                faults[
                    "unchanged" if brief.parent and candidate.id == brief.parent.id else "duplicate"
                ] += 1
            else:
                known.add(candidate.id)
                candidates.append(candidate)
    return Read(tuple(candidates[: brief.k]), hypothesis, dict(faults), detail)


def read_completion(
    sample: Completion, form: ReplyFormat, task: Task, parent: Candidate | None
) -> Parsed:
    """The drafts of one reply, or its fault; of an unreadable one with the reason."""
    try:
        return parse_completion(sample, form, task, parent)
    except Unreadable as error:
        return Parsed(fault=UNREADABLE, detail=error.what)


@boundary()
def parse_completion(
    sample: Completion, form: ReplyFormat, task: Task, parent: Candidate | None
) -> Parsed:
    """The drafts of one reply, or its fault."""
    finish = finish_kind(sample.finish)
    if finish in _UNANSWERED:
        return Parsed(fault=finish)
    if not sample.text.strip():
        return (
            _CUT if finish == "length" else Parsed(fault="tools" if finish == "tools" else "empty")
        )
    most = max(1 << 20, 5 * task.surface.max_chars)  # a candidate beside its reasoning
    if len(sample.text) > most:
        raise ValueError(f"{len(sample.text):,} characters, at most {most:,} are read")
    parsed = form.parse(sample.text, task, parent)
    if finish == "length":
        drafts = parsed.drafts if parsed.whole else parsed.drafts[:-1]
        cut = msgspec.structs.replace(_CUT, hypothesis=parsed.hypothesis)
        return msgspec.structs.replace(parsed, drafts=drafts) if drafts else cut
    if parsed.fault == "unparsable" and _REFUSAL.match(without_thoughts(sample.text)):
        return Parsed(fault="refused")
    return parsed


def is_broken_off(
    sample: Completion, form: ReplyFormat, task: Task, parent: Candidate | None
) -> bool:
    """True if a reply hit its length limit before the candidate was complete."""
    return sample.finish == "reasoning_cut" or (
        finish_kind(sample.finish) == "length"
        and read_completion(sample, form, task, parent).fault == "truncated"
    )


@boundary()
def reply_summary(reply: str) -> str:
    """The text between <summary> tags (an unclosed one runs to the end).

    Without tags, the reply without its reasoning.
    """
    text = without_thoughts(reply)
    match = _SUMMARY.search(text)
    return match[1].strip() if match else _REASONING.sub("", text).strip()


def _draft_candidate(
    parts: dict[str, str],
    weight: float | None,
    operator: str,
    model: str,
    rank: int,
    brief: Brief,
    hypothesis: str,
) -> Candidate:
    parents = tuple(
        c.id
        for c in (
            *((brief.parent,) if brief.parent else ()),
            *(e.candidate for e in brief.inspirations),
        )
    )
    origin = Origin(operator=operator, model=model, rank=rank, weight=weight, island=brief.island)
    if hypothesis:
        origin = msgspec.structs.replace(origin, note=" ".join(hypothesis.split())[:_NOTE])
    return Candidate.of(parts, tuple(dict.fromkeys(parents)), origin)
