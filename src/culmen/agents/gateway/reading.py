"""What the four readers of replies share: the reassembled reply, the tokens, and a distrustful way into bodies."""

from __future__ import annotations

from typing import Any, Protocol

from culmen.llm.call import Tokens

KEPT = 20_000  # characters of one text or one call's arguments that are kept for the transcript


class Clip:
    """A text that grows piece by piece. `str` gives the beginning that is kept, `len` the length of the whole."""

    def __init__(self, text: object = "") -> None:
        self._kept, self._room, self._length = [], KEPT, 0
        self.add(text)

    def add(self, text: object) -> None:
        """Append; whatever is no text is left out."""
        if isinstance(text, str) and text:
            self._length += len(text)
            if self._room > 0:
                self._kept.append(text[: self._room])
                self._room -= len(text)

    def __str__(self) -> str:
        return "".join(self._kept)

    def __len__(self) -> int:
        return self._length


class Heard:
    """A reply as far as it has come: text, reasoning, tool calls by key, and how it ended."""

    def __init__(self) -> None:
        self.text, self.reasoning, self.finish = Clip(), Clip(), ""
        self._calls: dict[object, tuple[Clip, Clip]] = {}

    def call(self, key: object, name: object = "", arguments: object = "") -> None:
        """A tool call, or a further piece of its name and arguments."""
        if key not in self._calls and len(self._calls) < 256:
            self._calls[key] = (Clip(), Clip())
        if key in self._calls:
            for clip, piece in zip(self._calls[key], (name, arguments)):
                clip.add(piece)

    def plain(self) -> dict[str, Any]:
        """As plain data but for the clips, empty parts left out."""
        calls = [{"name": name, "arguments": arguments} for name, arguments in self._calls.values()]
        whole = {"text": self.text, "reasoning": self.reasoning, "calls": calls, "finish": self.finish}
        return {name: value for name, value in whole.items() if value}


class Reader(Protocol):
    """Reads the replies of one format. `tokens` is what is known so far, `complete` whether that is the final count."""

    heard: Heard
    complete: bool

    @property
    def tokens(self) -> Tokens | None: ...

    def whole(self, body: dict[str, Any]) -> None:
        """A reply that came in one piece."""
        ...

    def event(self, body: dict[str, Any]) -> None:
        """One event of a stream."""
        ...


def count(body: object, *names: str) -> int | None:
    """A whole number of 0 or more at the end of this path, None if it is not there."""
    for name in names:
        body = body.get(name) if isinstance(body, dict) else None
    return body if isinstance(body, int) and not isinstance(body, bool) and body >= 0 else None


def dicts(value: object) -> list[dict[str, Any]]:
    """The objects of a list, whatever else it holds."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def inner(body: dict[str, Any], name: str) -> dict[str, Any]:
    """The object under this name, an empty one if there is none."""
    value = body.get(name)
    return value if isinstance(value, dict) else {}
