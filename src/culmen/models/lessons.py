"""Lessons of a session with its models: fields of requests, and the lack of usable answers.

Both are journaled, so that a resumed run begins with them. Refusals are untrusted texts: they may
rename, lower or leave out what a request has, and switch an option on or off, nothing else.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from culmen.core.brief import ANSWERED, LEARNT, SILENT, UNANSWERED
from culmen.core.foreign import lazy_pattern
from culmen.core.json import JsonObject

_LIMITS = ("max_tokens", "max_completion_tokens")  # names of one field, by server
_NEEDED = ("model", "messages")  # fields that are never changed
_UNKNOWN = lazy_pattern(
    r"not (?:currently )?(?:be )?(?:support|permit|allow|accept|recogni|specified)"
    r"|un(?:support|known|recogni|expected)|does(?:n't| not) (?:support|accept|allow|take)"
    r"|forbidden|deprecated"
    r"|invalid (?:parameter|argument|field|key|property)|cannot both|no such"
    r"|only (?:the default|\S+ (?:is|are) (?:allow|support))",
    re.IGNORECASE,
)
_WANTED = lazy_pattern(r"missing|required|instead|did you mean", re.IGNORECASE)
_SET = lazy_pattern(
    r"\b(\w+)\W{1,3}(?:must|should|has to|(?:may|can) only) be (?:set to )?\W?"
    r"(true|false|-?\d{1,6}(?:\.\d{1,6})?)\b",
    re.IGNORECASE,
)
_TOO_LARGE = lazy_pattern(
    r"too (?:large|big|high|long)|exceed|at most|up to|maximum|less than|<=|range|between|limit",
    re.IGNORECASE,
)
_NUMBER = lazy_pattern(r"(?<![\w.])\d{2,}(?![\w.]*\d)")
_STATUS = (400, 422)  # numbers of a refusal that are its own
CHANGES = 12  # of one model's requests, at most: fields are few
_WORDS = 300  # characters of a refusal that are kept


class FieldChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a request's body: the new name of a field, or its value (None: left out).

    The value of a limit of tokens is the most that the server takes.
    """

    field: str
    name: str = ""
    value: bool | int | float | None = None

    def apply_to(self, body: JsonObject) -> JsonObject:
        """The changed body."""
        if self.name:
            return {self.name if key == self.field else key: body[key] for key in body}
        if self.value is None:
            return {key: body[key] for key in body if key != self.field}
        if not _is_limit(self.field):
            return {**body, self.field: self.value}
        sent = body.get(self.field)
        return {**body, self.field: min(sent, self.value)} if isinstance(sent, int) else body

    def __str__(self) -> str:
        """`max_tokens is sent as max_completion_tokens`."""
        if self.name:
            return f"{self.field} is sent as {self.name}"
        if self.value is None:
            return f"{self.field} is left out"
        value = json.dumps(self.value)
        return f"{self.field} is {value}{' at most' if _is_limit(self.field) else ''}"


def join_thousands(text: str) -> str:
    """The text with 131,072 and 131_072 as 131072; a list, as in [1,512], stays."""
    long = r"(?<![\[(\w,.])\d{1,3}(?:[,_]\d{3})+(?!\w)"
    return re.sub(long, lambda found: re.sub("[,_]", "", found[0]), text)


def _is_limit(field: str) -> bool:
    return field.startswith("max_") and field.endswith("_tokens")


def find_changes(body: JsonObject, refusal: str) -> list[FieldChange]:
    """The changes of a request that its refusal asks for, by the fields that it names.

    A wrong value of the user's own is no such field: it stays an error.
    """
    refusal = join_thousands(refusal)
    is_unknown = _UNKNOWN.search(refusal) is not None
    named = [field for field in body if field not in _NEEDED and _is_named(field, refusal)]
    for field, text in _SET.findall(refusal):
        value = {"true": True, "false": False}.get(text.lower(), text)
        if isinstance(value, str) and field in body and (field != "n" or text == "1"):
            value = float(text) if "." in text else int(text)
        is_free = field not in _NEEDED and not _is_limit(field)
        if is_free and not isinstance(value, str) and (field, value) != ("stream", True):
            return [FieldChange(field, value=value)]
    if (change := _limit_change(body, refusal, is_unknown)) is not None:
        return [change]
    optional = [field for field in named if not _is_limit(field)]
    if not is_unknown or not optional:
        return []
    if len(optional) > 1 and re.search(r"\bboth\b", refusal):  # one of them alone is taken
        optional = optional[-1:]
    return [FieldChange(field) for field in optional]


def _is_named(field: str, text: str) -> bool:
    """True if a text names a field; one of a single letter stands in quotation marks, or is set."""
    name = re.escape(field)
    return (
        re.search(
            rf"['\"`]{name}['\"`]|\b{name}\b(?! [a-z])\s?[=><:]"
            if len(field) < 2
            else rf"(?<!\w){name}(?!\w)",
            text,
        )
        is not None
    )


def _limit_change(body: JsonObject, refusal: str, is_unknown: bool) -> FieldChange | None:
    """Another name of the limit of tokens, or a lower one."""
    sent = next((field for field in body if _is_limit(field)), "")
    if not sent:
        return None
    is_named = _is_named(sent, refusal)
    others = [*filter(_is_limit, re.findall(r"\w+", refusal)), *(_LIMITS if is_named else ())]
    other = next((name for name in others if name != sent), "")
    limit, numbers = body[sent], [int(n) for n in _NUMBER.findall(refusal)]
    lower = [n for n in numbers if n not in _STATUS and isinstance(limit, int) and n < limit]
    if is_named and lower and _TOO_LARGE.search(refusal):
        return FieldChange(sent, value=max(lower))
    if other and (is_unknown or _WANTED.search(refusal)):
        return FieldChange(sent, other)
    return None


class Lessons:
    """Changes of requests, and models without a usable answer, as far as a session knows them.

    `record` journals a note, `tell` shows a sentence.
    """

    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        self.record: Callable[[JsonObject], None] = lambda _: None
        self._tell = tell
        self._changes: dict[str, list[FieldChange]] = {}
        self._failed: dict[str, Counter[str]] = {}
        self._answered: set[str] = set()
        self._noted: set[str] = set()

    def restore(self, notes: Iterable[JsonObject], answered: Iterable[str] = ()) -> None:
        """Take the notes of earlier sessions, oldest first, and the models that have `answered`."""
        self._answered.update(answered)
        for note in notes:
            model = str(note.get("model", ""))
            if note.get("note") == LEARNT:
                change = msgspec.convert(note["change"], FieldChange)
                self._changes.setdefault(model, []).append(change)
            elif note.get("note") == UNANSWERED:
                self._noted.add(model)
            elif note.get("note") == ANSWERED:
                self._noted.discard(model)

    def changed_body(self, model: str, body: JsonObject) -> JsonObject:
        """A request's body as the model's server takes it."""
        for change in self._changes.get(model, ()):
            body = change.apply_to(body)
        return body

    def learn_from_refusal(self, model: str, body: JsonObject, refusal: str) -> bool:
        """Learn from the refusal of this body; False if it names nothing that can be changed."""
        return self._learn(model, body, find_changes(body, refusal), refusal)

    def has_answered(self, provider: str) -> bool:
        """True if a model of this provider has given a usable answer."""
        return any(model.startswith(f"{provider}/") for model in self._answered)

    def forbid_stream(self, model: str, body: JsonObject) -> None:
        """Learn that a server streams unless a request forbids it."""
        self._learn(model, body, [FieldChange("stream", value=False)], "it streams unasked")

    def _learn(
        self, model: str, body: JsonObject, changes: list[FieldChange], refusal: str
    ) -> bool:
        known = self._changes.setdefault(model, [])
        for change in changes:
            is_undone = any((old.name, old.field) == (change.field, change.name) for old in known)
            if change in known or is_undone or len(known) >= CHANGES:
                continue
            known.append(change)
            words = " ".join(refusal.split())[:_WORDS]
            self.record(
                {
                    "note": LEARNT,
                    "model": model,
                    "change": msgspec.to_builtins(change),
                    "words": words,
                }
            )
            self._tell(f"{model}: {change} from now on ({words})")
        return any(change.apply_to(body) != body for change in changes if change in known)

    def count_failure(self, model: str, fault: str, words: str, where: str) -> int:
        """Count an attempt without a usable answer; noted at the third, the sixth, the twelfth ...

        Returns the number of attempts so far, 0 once the model has given a usable answer: then
        nothing is noted. `where` is the server's address.
        """
        if model in self._answered:
            return 0
        failed = self._failed.setdefault(model, Counter())
        failed[fault] += 1
        attempts = failed.total()
        times, rest = divmod(attempts, SILENT)
        if rest or times.bit_count() != 1:
            return attempts
        worst, number = failed.most_common(1)[0]
        self._noted.add(model)
        self.record(
            {
                "note": UNANSWERED,
                "model": model,
                "fault": worst,
                "number": number,
                "attempts": attempts,
                "words": " ".join(words.split())[:_WORDS] if worst == fault else "",
                "where": where,
            }
        )
        return attempts

    def count_answer(self, model: str) -> None:
        """Count a usable answer."""
        self._answered.add(model)
        if model in self._noted:
            self._noted.discard(model)
            self.record({"note": ANSWERED, "model": model})
