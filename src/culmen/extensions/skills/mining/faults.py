"""Recurring faults: commands that failed or were corrected, and those in their place.

A fault is found without a model. In a session it is a command that failed, before another one with
a word in common that worked; or a command that a person corrected ("use uv, not pip"). What several
sessions share of these commands is the pattern to avoid and the pattern to use.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from culmen.extensions.skills.mining.commands import (
    ASSIGNMENT,
    judge_segment,
    program_of_words,
    split_segments,
)
from culmen.extensions.skills.mining.logs import LoggedStep, SessionLog

_NEAR = 8  # steps between a fault and what came in its place
_TRIVIAL = re.compile(
    r"tail|head|cat|e?grep|rg|tee|echo|printf|sort|uniq|wc|less|true|sed|awk|xargs|ls|pwd|sleep"
    r"|which|type|file|find|tree|export|mkdir|touch"
)
_THING = r"[`\"']?([\w./:@+=-]+(?: [\w./:@+=-]+){0,3})[`\"']?"
_CORRECTIONS = (  # (pattern, place of the thing to avoid, place of the thing to use)
    (rf"\buse {_THING},? (?:instead of|rather than|and not|not|never) {_THING}", 2, 1),
    (rf"\binstead of {_THING},? (?:please )?(?:use|run) {_THING}", 1, 2),
    (
        rf"\b(?:do not|don't|never|stop|not)(?: use| using| run| running)? {_THING}"
        rf"[,;:.!]* (?:but |please |always )*(?:use|run) {_THING}",
        1,
        2,
    ),
)


class FaultEvidence(msgspec.Struct):
    """One time that a fault occurred in a session.

    `request` is the person's request, `purpose` the agent's word for the step; `before` are the
    session's commands up to the faulty one, `after` those from the one in its place on.
    """

    session: str
    request: str
    purpose: str
    bad: str
    good: str
    error: str
    before: list[str]
    after: list[str]


class RecurringFault(msgspec.Struct):
    """A recurring fault: `avoid` and `use` are words of commands, in order.

    `kind` is failed | corrected, `sessions` the number of sessions, `why_not` the reason that it
    cannot be replayed, "" if it can.
    """

    kind: str
    avoid: list[str]
    use: list[str]
    error: str
    sessions: int
    evidence: list[FaultEvidence]
    why_not: str = ""

    @property
    def name(self) -> str:
        """A name for folders, the same for the same pair of patterns."""
        return f"use-{_slug(self.use)}-not-{_slug(self.avoid)}" if self.use else _slug(self.avoid)


class _Trace(msgspec.Struct):
    """A fault's trace in one session; `key` is common to all traces of a fault."""

    key: tuple[str, ...]
    kind: str
    avoid: list[str]
    use: list[str]
    evidence: FaultEvidence


def find_faults(sessions: Sequence[SessionLog], least: int) -> list[RecurringFault]:
    """The faults of at least `least` sessions, the most frequent first."""
    groups: dict[tuple[str, ...], list[_Trace]] = defaultdict(list)
    for session in sessions:
        for trace in _session_traces(session):
            groups[trace.key].append(trace)
    made: dict[tuple[str, ...], RecurringFault] = {}
    for traces in groups.values():
        fault = _fault_of_traces(traces)
        key = (fault.name, fault.why_not)
        if key in made:
            fault = _merged_faults(made[key], fault)
        made[key] = fault
    kept = [fault for fault in made.values() if fault.sessions >= least]
    steps = (step for session in sessions for step in session.steps if step.command)
    outcomes = [(split_segments(step.command), step.failed) for step in steps]
    for fault in kept:
        if fault.kind == "failed" and not fault.why_not:
            fault.why_not = _contradiction(fault, outcomes)
    return sorted(kept, key=lambda fault: (-fault.sessions, fault.name))


def _fault_of_traces(traces: Sequence[_Trace]) -> RecurringFault:
    first = traces[0]
    fault = RecurringFault(
        first.kind,
        _common_words([trace.avoid for trace in traces]),
        _common_words([trace.use for trace in traces]),
        _most_common(trace.evidence.error for trace in traces),
        len({trace.evidence.session for trace in traces}),
        [trace.evidence for trace in traces],
    )
    if not fault.use:
        fault.why_not = (
            "no command that the correction is about is recorded"
            if first.kind == "corrected"
            else "no other command that worked came after it"
        )
    elif fault.avoid == fault.use:
        fault.why_not = "what failed and what worked have the same words"
    return fault


def _merged_faults(one: RecurringFault, other: RecurringFault) -> RecurringFault:
    evidence = [*one.evidence, *other.evidence]
    return RecurringFault(
        one.kind if one.kind == other.kind else "corrected",
        one.avoid,
        one.use,
        _most_common(each.error for each in evidence),
        len({each.session for each in evidence}),
        evidence,
        one.why_not,
    )


def _contradiction(
    fault: RecurringFault, outcomes: Sequence[tuple[list[list[str]], bool | None]]
) -> str:
    """The reason that a failed command is not at fault itself: it works as often; "" if none.

    `outcomes` are the simple commands of each command line, and whether it failed.
    """
    worked = failed = 0
    for segments, has_failed in outcomes:
        if any(judge_segment(words, fault.avoid, fault.use) == "avoid" for words in segments):
            worked += has_failed is False
            failed += has_failed is True
    return f"the command worked {worked} times and failed {failed} times" * (worked >= failed)


# -- traces of one session


def _session_traces(session: SessionLog) -> Iterator[_Trace]:
    for place, step in enumerate(session.steps):
        if step.command and step.failed:
            yield from _failure_trace(session, place)
        elif step.who == "user" and step.text:
            yield from _correction_trace(session, place)


def _failure_trace(session: SessionLog, place: int) -> Iterator[_Trace]:
    step = session.steps[place]
    avoid = _main_segment(step.command)
    if not avoid:
        return
    error = error_line(step.result) or f"exit code {step.code}"
    signature = normalize_error(error)
    for later in range(place + 1, min(place + 1 + _NEAR, len(session.steps))):
        after = session.steps[later]
        if after.who == "user":
            break
        use = _replacement(avoid, after) if after.command and after.failed is False else None
        if use == avoid:
            return  # the same command worked: what was wrong was not the command
        if use:
            key = ("failed", program_of_words(avoid), signature, program_of_words(use))
            yield _Trace(key, "failed", avoid, use, _evidence(session, place, later, error))
            return
    key = ("failed", program_of_words(avoid), signature)
    yield _Trace(key, "failed", avoid, [], _evidence(session, place, place, error))


def _correction_trace(session: SessionLog, place: int) -> Iterator[_Trace]:
    text = session.steps[place].text[:600]
    said = find_correction(text)
    if said is None:
        return
    wrong, right = said
    before = range(place - 1, max(-1, place - 1 - _NEAR), -1)
    after = range(place + 1, min(place + 1 + _NEAR, len(session.steps)))
    bad = _first_mention(session, before, wrong)
    good = _first_mention(session, after, right)
    line = " ".join(text.split())[:200]
    if bad is None or good is None:
        key = ("corrected", wrong.split()[0].lower(), right.split()[0].lower())
        empty = _evidence(session, place, place, line)
        yield _Trace(key, "corrected", [wrong.split()[0]], [], empty)
        return
    key = ("corrected", program_of_words(bad[1]), program_of_words(good[1]), wrong.split()[0])
    evidence = _evidence(session, bad[0], good[0], line)
    yield _Trace(key, "corrected", bad[1], good[1], evidence)


def find_correction(text: str) -> tuple[str, str] | None:
    """The wrong and the right thing of a correction, in its words; None if it is none."""
    for pattern, wrong, right in _CORRECTIONS:
        found = re.search(pattern, text, re.IGNORECASE)
        if found:
            return found[wrong].strip(" .,;:!"), found[right].strip(" .,;:!")
    return None


def _first_mention(
    session: SessionLog, places: Iterable[int], thing: str
) -> tuple[int, list[str]] | None:
    """The first command with the words of a thing; further words of it may be a sentence's."""
    words = thing.split()
    for place in places:
        for segment in split_segments(session.steps[place].command):
            bare = [
                word.rpartition("/")[2] if number == 0 else word
                for number, word in enumerate(segment)
            ]
            if words[0] in bare:
                return place, segment
    return None


def _main_segment(command: str) -> list[str]:
    """The simple command of a line that does its work: the last that is not trivial."""
    found = [
        segment
        for segment in split_segments(command)
        if not _TRIVIAL.fullmatch(program_of_words(segment) or "true")
    ]
    return found[-1] if found else []


def _replacement(avoid: Sequence[str], step: LoggedStep) -> list[str] | None:
    """The simple command of a step that came in the place of another, None if it has none.

    It shares an argument with it, and if it calls the same program, the first one.
    """
    segments = split_segments(step.command)
    if list(avoid) in segments:
        return list(avoid)
    program, *arguments = _call_words(avoid)
    for segment in segments:
        other, *others = _call_words(segment) or [""]
        if _TRIVIAL.fullmatch(other or "true"):
            continue
        shared = {word for word in others if re.search(r"\w", word)} & {program, *arguments}
        if (arguments[:1] == others[:1]) if other == program else shared:
            return segment
    return None


def _call_words(segment: Sequence[str]) -> list[str]:
    """Program and arguments, without variables and folders that are set for them."""
    words = list(segment)
    while words and ASSIGNMENT.match(words[0]):
        words = words[1:]
    return [words[0].rpartition("/")[2], *words[1:]] if words else []


def _evidence(session: SessionLog, bad: int, good: int, error: str) -> FaultEvidence:
    steps = session.steps
    said = [s.text.strip() for s in steps[:bad] if s.who == "user"]
    # texts that the program puts into a person's mouth begin with a mark
    marks = ("<", "[Request interrupted")
    requests = [t for t in said if t and not t.startswith(marks) and find_correction(t) is None]
    return FaultEvidence(
        session=f"{session.source} {session.file} {session.name}",
        request=(requests or [""])[-1],
        purpose=steps[bad].text.strip() if steps[bad].command else "",
        bad=steps[bad].command,
        good=steps[good].command if good > bad else "",
        error=error,
        before=[s.command for s in steps[: bad + 1] if s.command],
        after=[s.command for s in steps[good:] if s.command] if good > bad else [],
    )


# -- words and errors


def _common_words(commands: Sequence[Sequence[str]]) -> list[str]:
    """The words of the first command that all others have, too."""
    first, *others = commands or [[]]
    return [word for word in first if all(word in other for other in others)]


def error_line(output: str) -> str:
    """The line of an output that names the error: the first that looks like one, or the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [
        line
        for line in lines
        if re.search(
            r"(?i)\berror\b|\w(Error|Exception)\b|fatal|not found|cannot|denied|no such"
            r"|failed|unknown|unable",
            line,
        )
    ]
    return ((marked or lines[-1:] or [""])[0])[:300]


def normalize_error(line: str) -> str:
    """An error without what differs from one time to another: quotations, numbers and paths."""
    line = re.sub(r"\"[^\"]*\"|'[^']*'|`[^`]*`|‘[^’]*’", "'…'", line)
    words = [
        "…" if re.search(r"[\d/\\=.@\[]", word.rstrip(".,:;")) else word for word in line.split()
    ]
    return " ".join(words).lower()[:120]


def _most_common(values: Iterable[str]) -> str:
    listed = list(values)
    return max(listed, key=lambda value: (listed.count(value), value)) if listed else ""


def _slug(words: Sequence[str]) -> str:
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")[:40].strip("-") or "it"
