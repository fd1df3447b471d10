"""The protocol of engines that sample and train a policy, and diagnostics of an update.

Engines live outside the search. Their results are journaled by the craft (`craft.py`), so a replay
neither samples nor trains again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Protocol

import msgspec

from culmen.core.errors import UserError


class PolicySample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reply of a policy, as tokens: never tokenised again from its text.

    `logprobs` are those of the response's tokens under the sampled distribution of version
    `version`. `ended` is False if the reply was cut at the most tokens allowed. `among` are the
    tokens that a grammar allowed (none: all): `logprobs` are those of the distribution restricted
    to them.
    """

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int
    text: str = ""
    ended: bool = True
    among: tuple[int, ...] = ()


class ReplyRequest(NamedTuple):
    """A request for one reply of at most `max_tokens` tokens.

    All of them are in `among`, unless that is empty.
    """

    prompt: tuple[int, ...]
    seed: int
    max_tokens: int
    among: tuple[int, ...] = ()


# called with the number of finished replies, and the number of tokens in all
Progress = Callable[[int, int], None]


class Datum(msgspec.Struct, frozen=True):
    """A sample with the advantage of its response, the same for every token (equation 4)."""

    sample: PolicySample
    advantage: float


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings of an update.

    rate        learning rate
    betas       Adam's
    decay       weight decay
    low, high   clip of the ratio at 1 - low and 1 + high (equation 6)
    norm        cap of the gradient's norm
    correct     cap of the weight that corrects a sample drawn with slightly other log-probabilities
                (another engine's); the weight is exactly 1 if sampling and training agree
    epochs      passes over a barrier's samples
    minibatches optimiser steps of each pass; from the second step on the ratio is no longer 1
    anchor      weight lambda of the divergence from the first weights (TTT-Discover's penalty): to
                every token's advantage lambda (mean d - d) is added, with d its log-probability as
                drawn less that under the first weights
    stale       versions that a sample may be behind; its ratio to the version that drew it corrects
                for that, up to `correct` and within the clip
    """

    rate: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.98)
    decay: float = 0.0
    low: float = 0.2
    high: float = 0.28
    norm: float = 1.0
    correct: float = 2.0
    epochs: int = 1
    minibatches: int = 1
    anchor: float = 0.0
    stale: int = 0


class Capabilities(msgspec.Struct, frozen=True, omit_defaults=True):
    """Capabilities of an engine; the run's note `policy` names those that are missing.

    clip     the bounds of the ratio are those of the rules
    norm     the gradient is cut at `Rules.norm`, and its norm before that is known
    grammar  replies can be limited to some tokens (`PolicySample.among`)
    entropy  known from whole distributions; else estimated by minus the mean log-probability of the
             drawn tokens
    anchor   the first weights are kept, for `Rules.anchor`
    adapter  only a LoRA adapter is trained and saved
    exact    a checkpoint continues bit for bit on the same machine
    context  tokens of a prompt and its reply together, at most (None: unknown)
    """

    clip: bool = True
    norm: bool = True
    grammar: bool = True
    entropy: bool = True
    anchor: bool = False
    adapter: bool = False
    exact: bool = False
    context: int | None = None


class PolicyEngine(Protocol):
    """One policy. `version` counts its published updates from 0.

    `hold_logprobs` comes before an update of several steps: ratios are then taken against the
    samples' log-probabilities at that moment, until `publish`. `forward_backward` accumulates the
    gradient of the masked, asymmetrically clipped loss (equation 6, mean over all valid tokens of
    `data`) and returns diagnostics; `optim_step` applies it once; `publish` makes the new weights
    those that are sampled from.

    `logprobs` are recomputed by the trainer, not the sampler: their gap is logged. `save` makes a
    checkpoint from which `load` continues; `discard` removes one, on a server too. `export` writes
    files for other programs: an adapter in PEFT's layout, or a model folder of transformers. Raises
    `UserError` if a model cannot be loaded, `ValueError` for samples of a version that
    `Rules.stale` excludes.
    """

    capabilities: Capabilities

    @property
    def version(self) -> int: ...

    def encode(self, prompt: str) -> tuple[int, ...]: ...

    def sample(
        self, prompt: Sequence[int], seed: int, max_tokens: int, among: Sequence[int] = ()
    ) -> PolicySample: ...

    def sample_many(
        self, requests: Sequence[ReplyRequest], on_progress: Progress
    ) -> list[PolicySample]: ...

    def logprobs(self, sample: PolicySample) -> list[float]: ...

    def hold_logprobs(self, samples: Sequence[PolicySample]) -> None: ...

    def forward_backward(self, data: Sequence[Datum], rules: Rules) -> dict[str, float]: ...

    def optim_step(self, rules: Rules) -> dict[str, float]: ...

    def publish(self) -> int: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...

    def discard(self, folder: Path) -> None: ...

    def export(self, folder: Path) -> None: ...


def import_extra(module: str, extra: str) -> ModuleType:
    """The imported module.

    Raises `UserError` with the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise UserError(
            f"this needs {module}, which is not installed",
            where=f"culmen's extra '{extra}'",
            fix=f"pip install 'culmen[{extra}]'",
        ) from None


class UpdateDiagnostics:
    """Sums over the tokens of a barrier; all arguments are per token of one response."""

    def __init__(self) -> None:
        self.tokens = 0
        self._sums = dict.fromkeys(("entropy", "gap_mean", "clip_low", "clip_high", "loss"), 0.0)
        self._gap = self._ratio = 0.0

    def add_response(
        self,
        recomputed: Sequence[float],
        drawn: Sequence[float],
        entropies: Sequence[float],
        advantages: Sequence[float],
        rules: Rules,
        held: Sequence[float] | None = None,
    ) -> None:
        """Add one response.

        `recomputed` are the trainer's current log-probabilities, `drawn` those of the sample, and
        `held` the trainer's before the weights moved (None: they have not moved).
        """
        self.tokens += len(drawn)
        self._sums["entropy"] += sum(entropies)
        before = recomputed if held is None else held
        for new, was, old, advantage in zip(recomputed, before, drawn, advantages, strict=True):
            ratio = math.exp(min(new - was, 50.0)) * min(
                math.exp(min(was - old, 50.0)), rules.correct
            )
            kept = min(max(ratio, 1 - rules.low), 1 + rules.high)
            self._sums["loss"] -= min(ratio * advantage, kept * advantage)
            self._sums["gap_mean"] += abs(was - old)
            self._sums["clip_low"] += float(ratio < 1 - rules.low and advantage < 0)
            self._sums["clip_high"] += float(ratio > 1 + rules.high and advantage > 0)
            self._gap, self._ratio = max(self._gap, abs(was - old)), max(self._ratio, ratio)

    def means_and_maxima(self) -> dict[str, float]:
        """Means over tokens, and maxima.

        `gap_*` is between sampled and recomputed log-probabilities; clips count only the side on
        which they hold an update back.
        """
        means = {name: value / max(1, self.tokens) for name, value in self._sums.items()}
        return {
            **means,
            "gap_max": self._gap,
            "ratio_max": self._ratio,
            "tokens": float(self.tokens),
        }


def kl_estimate(before: Sequence[float], after: Sequence[float]) -> float:
    """Sum over tokens of the k3 estimate of KL(before || after).

    Both are log-probabilities of tokens that were drawn from `before`.
    """
    gaps = [old - new for old, new in zip(before, after, strict=True)]
    return sum(math.exp(min(-gap, 50.0)) - 1 + gap for gap in gaps)
