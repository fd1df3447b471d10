"""Parallel replies of one model of transformers: a forward pass gives every row a token.

The common beginning of the prompts is read once for all rows; the rest is padded on the left. A row
has its own generator, seeded by its request; it takes one uniform number a token. A row's
distribution does not depend on the other rows, except for rounding: the last digits of a
log-probability may differ with the batch, and so now and then a token.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from culmen.train.engine import Progress, ReplyRequest, import_extra

Drawn = tuple[list[int], list[float]]  # tokens and a log-probability each
_WORTH = 16  # shortest common beginning of prompts, in tokens, that is read once


def can_batch(model: Any) -> bool:
    """True if rows of the model can be padded and dropped.

    It has attention layers only, and its positions can be given.
    """
    kinds = set(getattr(model.config, "layer_types", None) or ())
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    known = kinds <= {"full_attention", "sliding_attention"}
    return known and "position_ids" in inspect.signature(base.forward).parameters


def draw_replies(
    model: Any,
    requests: Sequence[ReplyRequest],
    closing: int,
    log_softmax: Callable[[Any], Any],
    on_progress: Progress,
) -> list[Drawn]:
    """A reply for each request, in their order.

    `log_softmax` turns logits (rows, vocabulary) into log-probabilities. Progress is reported after
    each token.
    """
    torch = import_extra("torch", "train")
    drawn: list[Drawn] = [([], []) for _ in requests]
    chances = [torch.Generator().manual_seed(request.seed) for request in requests]
    going, tokens = list(range(len(requests))), 0
    with torch.no_grad():
        rows = _Rows(model, [request.prompt for request in requests])
        while going:
            levels = log_softmax(_limited_logits(rows.logits, [requests[n].among for n in going]))
            ahead = torch.cat(
                [torch.rand(1, generator=chances[n], dtype=torch.float64) for n in going]
            )
            chosen = _tokens_at_share(levels, ahead.to(levels.device))
            for n, token, level in zip(
                going,
                chosen.tolist(),
                levels.gather(-1, chosen[:, None])[:, 0].tolist(),
                strict=True,
            ):
                drawn[n][0].append(token)
                drawn[n][1].append(level)
            tokens += len(going)
            left = [
                at
                for at, n in enumerate(going)
                if _is_unfinished(drawn[n][0], closing, requests[n].max_tokens)
            ]
            going = [going[at] for at in left]
            on_progress(len(requests) - len(going), tokens)
            if going:
                rows.append_tokens(chosen, left)
    return drawn


def _is_unfinished(response: list[int], closing: int, max_tokens: int) -> bool:
    return response[-1] != closing and len(response) < max_tokens


def _limited_logits(logits: Any, among: Sequence[Sequence[int]]) -> Any:
    """Logits of rows; a row limited to some tokens has -inf for the others."""
    if not any(among):
        return logits
    kept = logits.new_full(logits.shape, float("-inf"))
    for row, tokens in enumerate(among):
        kept[row, list(tokens) or slice(None)] = 0.0
    return logits + kept


def _tokens_at_share(levels: Any, ahead: Any) -> Any:
    """The token of each row at a share `ahead` (0 <= ahead < 1) of its cumulative probability."""
    upto = levels.double().exp().cumsum(-1)
    tokens = (upto <= ahead[:, None] * upto[:, -1:]).sum(-1)
    return tokens.clamp(max=levels.shape[-1] - 1)


class _Rows:
    """The rows' cache and masks, and the logits of their next tokens, (rows, vocabulary)."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]]) -> None:
        self._torch, self._model = import_extra("torch", "train"), model
        self._device = next(model.parameters()).device
        alike = _shared_prefix_length(prompts) if _sees_all(model.config) else 0
        rest = [list(prompt[alike:]) for prompt in prompts]
        wide = max(map(len, rest))
        pads = [wide - len(one) for one in rest]
        self._mask = self._to_tensor([[1] * alike + [0] * p + [1] * (wide - p) for p in pads])
        self._at = self._to_tensor(
            [[len(prompt)] for prompt in prompts]
        )  # positions of the next tokens
        self._cache: Any = None
        if alike:
            self._cache = self._prefix_cache(self._to_tensor([list(prompts[0][:alike])]))
            self._cache.batch_repeat_interleave(len(prompts))
        positions = (self._mask.cumsum(-1) - 1).clamp(min=0)[:, alike:]
        self._forward_pass(
            self._to_tensor([[0] * p + one for p, one in zip(pads, rest, strict=True)]), positions
        )

    def append_tokens(self, chosen: Any, left: Sequence[int]) -> None:
        """Append the tokens of the remaining rows `left`; drop the other rows."""
        if len(left) < len(chosen):
            keep = self._to_tensor(list(left))
            self._cache.batch_select_indices(keep)
            chosen, self._mask, self._at = chosen[keep], self._mask[keep], self._at[keep]
        self._mask = self._torch.cat([self._mask, self._torch.ones_like(self._at)], -1)
        self._forward_pass(chosen[:, None], self._at)
        self._at = self._at + 1

    def _prefix_cache(self, ids: Any) -> Any:
        return self._model(ids, use_cache=True, logits_to_keep=1).past_key_values

    def _forward_pass(self, ids: Any, positions: Any) -> None:
        inputs = {
            "past_key_values": self._cache,
            "attention_mask": self._mask,
            "position_ids": positions,
        }
        out = self._model(ids, use_cache=True, logits_to_keep=1, **inputs)
        self._cache, self.logits = out.past_key_values, out.logits[:, -1].float()

    def _to_tensor(self, numbers: Sequence[int | Sequence[int]]) -> Any:
        return self._torch.tensor(numbers, device=self._device)


def _shared_prefix_length(prompts: Sequence[Sequence[int]]) -> int:
    """Length of the prompts' common beginning in tokens; 0 if it is shorter than `_WORTH`.

    At least one token is left to each prompt.
    """
    longest = min(map(len, prompts)) - 1
    shared = sum(
        1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*prompts, strict=False))
    )
    return min(longest, shared) if len(prompts) > 1 and min(longest, shared) >= _WORTH else 0


def _sees_all(config: object) -> bool:
    """True if each token attends to all before it.

    Padding between a common beginning and the rest would shift a window.
    """
    kinds = set(getattr(config, "layer_types", None) or ())
    return kinds <= {"full_attention"} and (
        bool(kinds) or getattr(config, "sliding_window", None) is None
    )
