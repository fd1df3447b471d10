"""Reading of models' replies: the text that was meant, or a fault with its name.

The result of reading a reply: candidates, or its fault with the line it is about.
"""

from __future__ import annotations

import msgspec


class Draft(msgspec.Struct, frozen=True):
    """One candidate of a reply: all its parts, and a probability if the model stated one."""

    parts: dict[str, str]
    weight: float | None = None


class Parsed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parsed reply.

    `fault` is the reason why there is no draft, `detail` says it of this reply, with the line it is
    about. `whole` is False if more of the last candidate could follow: other edits or parts.
    """

    drafts: tuple[Draft, ...] = ()
    hypothesis: str = ""
    fault: str = ""
    detail: str = ""
    whole: bool = True


class ReplyFault(ValueError):
    """A reply that cannot be read without doubt, by the name of its fault."""

    def __init__(self, fault: str, detail: str = "") -> None:
        super().__init__(detail or fault)
        self.fault, self.detail = fault, detail

    def as_parsed(self, hypothesis: str = "") -> Parsed:
        """The reply that has this fault."""
        return Parsed(hypothesis=hypothesis, fault=self.fault, detail=self.detail)
