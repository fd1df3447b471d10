"""How long a request to a model may be: its `context` setting, or what a refusal taught. Prompts are made to fit.

What an error taught is known to this process alone; it never changes what a request is estimated to cost.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from culmen.core.errors import UserError
from culmen.core.wording import clip
from culmen.llm.call import Call
from culmen.llm.spec import ModelSpec
from culmen.prompts.writer import Shown

TRIES = 4  # requests made shorter, before one is given up
_SCALES = (1.0, 0.5, 0.25, 0.1, 0.0)  # of what a prompt shows beside the current candidate
_SAID = re.compile(r"(?:context|maximum|max|limit|than|exceeds?)[^0-9]{0,60}?([0-9]{3,8})", re.IGNORECASE)
_LEAST = 64  # tokens of a reply
_NAMES = {"context": 0.25, "feedback": 0.25}  # what is needed most is never left out wholly

Remake = Callable[[Shown], Call]
"""Makes a request anew that shows no more than this."""


def limited(scale: float) -> Shown:
    """What a prompt shows, at most, at this scale."""
    whole = msgspec.structs.asdict(Shown())
    return Shown(**{name: max(1, int(value * max(scale, _NAMES.get(name, 0.0)))) for name, value in whole.items()})


class ContextSizes:
    """Context sizes by model, in tokens of prompt and reply together."""

    def __init__(self) -> None:
        self._learnt: dict[str, int] = {}
        self._answered: set[str] = set()

    def fits(self, model: ModelSpec, call: Call, remake: Remake | None) -> Call:
        """The request, made shorter where it is longer than the model's context: first what is shown beside the current
        candidate, for which `remake` is called, or without that the middle of the prompt; then the reply."""
        room = self._size(model)
        if room is None or call.prompt_tokens() + call.max_tokens <= room:
            return call
        reply = min(call.max_tokens, room // 2)
        for scale in _SCALES if remake is not None else ():
            if call.prompt_tokens() + reply <= room:
                break
            call = remake(limited(scale)) if remake is not None else call
        if remake is None and call.prompt_tokens() + reply > room:
            call = _clipped(call, room - reply)
        left = room - call.prompt_tokens()
        return msgspec.structs.replace(call, max_tokens=max(_LEAST, min(call.max_tokens, left)))

    def answered(self, model: ModelSpec) -> None:
        """A request was not refused."""
        self._answered.add(model.key)

    def refused(self, model: ModelSpec, call: Call, said: str) -> None:
        """Learn from a refusal. Raises `UserError` where every request so far was refused and no shorter one can be
        made."""
        total = call.prompt_tokens() + call.max_tokens
        numbers = [int(n) for n in _SAID.findall(said) if int(n) < total]
        known = self._learnt.get(model.key, total)
        self._learnt[model.key] = min(max(numbers), known * 9 // 10) if numbers else known * 2 // 3

    def give_up(self, model: ModelSpec, call: Call, said: str) -> None:
        """Nothing shorter can be asked. Raises `UserError` if the model has answered no request at all."""
        if model.key in self._answered:
            return
        raise UserError(
            f"{model.name} refuses every request as too long, also the shortest (about {call.prompt_tokens():,} tokens "
            f"and {call.max_tokens:,} of the reply): {' '.join(said.split())[:300]}",
            where=f"--model {model.model}",
            fix="choose a model with a larger context, give a shorter initial program, or set the model's context and "
            "max_tokens in a models file",
        )

    def _size(self, model: ModelSpec) -> int | None:
        sizes = [size for size in (model.context, self._learnt.get(model.key)) if size]
        return min(sizes, default=None)


def _clipped(call: Call, tokens: int) -> Call:
    """The request with the middle of its longest message left out."""
    longest = max(call.messages, key=lambda message: len(message.content))
    over = call.prompt_tokens() - tokens
    keep = max(200, len(longest.content) - 3 * over - 100)
    short = msgspec.structs.replace(longest, content=clip(longest.content, keep))
    return msgspec.structs.replace(call, messages=tuple(short if m is longest else m for m in call.messages))
