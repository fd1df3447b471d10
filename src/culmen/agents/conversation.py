"""What an agent and its model say to each other, kept to a length: what was long ago is left out, then summed up."""

from __future__ import annotations

from culmen.core.wording import clip

Message = dict[str, str]
_RECENT = 6  # messages that are never shortened
_LONG = 400  # characters beyond which an old message is cut
_KEPT = 160  # and what is kept of it
_PIECE = 8  # a message is at most this part of the room


class Conversation:
    """System and first message stay; then replies and answers take turns. `room` is in characters."""

    def __init__(self, system: str, first: str, room: int) -> None:
        self._head: list[Message] = [_message("system", system), _message("user", clip(first, room * 2 // 5))]
        self._tail: list[Message] = []
        self._room, self._most = room, room - 2 * (room // _PIECE)  # there is always room for one more exchange

    @property
    def messages(self) -> list[Message]:
        """Everything, as it would be sent now."""
        return [*self._head, *self._tail]

    @property
    def full(self) -> bool:
        """Whether leaving out what is old no longer suffices: then `summed_up` is needed."""
        return self._size() > self._most

    def said(self, reply: str) -> None:
        """The model's reply."""
        self._tail.append(_message("assistant", clip(reply, self._room // _PIECE) or "(nothing)"))
        self._shorten()

    def answered(self, text: str) -> None:
        """What came of it."""
        self._tail.append(_message("user", clip(text, self._room // _PIECE)))
        self._shorten()

    def asking(self, request: str) -> list[Message]:
        """The messages with one more request, which is not kept."""
        if self._tail and self._tail[-1]["role"] == "user":
            last = _message("user", f"{self._tail[-1]['content']}\n\n{request}")
            return [*self._head, *self._tail[:-1], last]
        return [*self.messages, _message("user", request)]

    def summed_up(self, summary: str) -> None:
        """Put a summary in the place of all but the last answer."""
        last = self._tail[-1]["content"] if self._tail and self._tail[-1]["role"] == "user" else ""
        kept = clip(summary, self._room // _PIECE) or "(no summary could be had)"
        text = f"# What you did so far, in your own words\n\n{kept}\n\n{last}".strip()
        self._tail = [_message("assistant", "I go on from my summary."), _message("user", text)]

    def _shorten(self) -> None:
        """Cut old messages, the oldest first, until there is room."""
        for place in range(max(0, len(self._tail) - _RECENT)):
            if self._size() <= self._most:
                return
            old = self._tail[place]
            if len(old["content"]) > _LONG:
                self._tail[place] = _message(old["role"], clip(old["content"], _KEPT))

    def _size(self) -> int:
        return sum(len(one["content"]) for one in self.messages)


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
