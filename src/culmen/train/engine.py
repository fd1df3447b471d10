"""The seam to whatever holds and trains a policy: sample, learn, publish, save, load.

Engines live outside the search. What they return is journaled by the craft (`culmen.train.craft`), so a replay neither
samples nor trains again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reply of a policy, as tokens: never tokenised again from its text.

    `logprobs` are those of the response's tokens under the distribution they were drawn from, by the version `version`.
    `ended` is false if the reply was cut at the most tokens allowed. `among` are the tokens it was drawn from (none:
    all), as where a grammar rules the output: `logprobs` are those of the distribution cut down to them.
    """

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int
    text: str = ""
    ended: bool = True
    among: tuple[int, ...] = ()


class Datum(msgspec.Struct, frozen=True):
    """A sample with the advantage of every token of its response (equation 4: the same for all of them)."""

    sample: Sample
    advantage: float


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an update is made: the clip of equation 6, Adam's settings, the cap of the gradient's norm.

    `rate` is the learning rate. `correct` caps the weight by which a sample drawn with slightly other log-probabilities
    (another engine's) is corrected; 1 exactly where sampling and training agree.
    """

    rate: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.98)
    decay: float = 0.0
    low: float = 0.2
    high: float = 0.28
    norm: float = 1.0
    correct: float = 2.0


class Capabilities(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an engine can do; what it cannot, the craft does without, and the run's note `policy` says so.

    clip     the bounds of the ratio are those asked for
    norm     the gradient is cut at `Rules.norm`, and its norm before that is known
    grammar  replies can be limited to some tokens (`Sample.among`)
    entropy  known from whole distributions; else estimated by minus the mean log-probability of what was drawn
    adapter  only a LoRA adapter is trained and saved
    exact    a checkpoint continues bit for bit on the same machine
    """

    clip: bool = True
    norm: bool = True
    grammar: bool = True
    entropy: bool = True
    adapter: bool = False
    exact: bool = False


class PolicyEngine(Protocol):
    """One policy. `version` counts its published updates from 0.

    `forward_backward` accumulates the gradient of the masked, asymmetrically clipped loss (equation 6, mean over all
    valid tokens of `data`) and returns diagnostics; `optim_step` applies it once; `publish` makes the new weights those
    that are sampled from. `logprobs` are recomputed by whatever trains, not by whatever sampled: their gap is logged.
    `save` makes a checkpoint from which `load` continues; `discard` removes one, with what it stands for elsewhere.
    `export` writes what other programs load: an adapter in PEFT's layout, or a model folder of transformers. Raises
    `UserError` where a model cannot be loaded, `ValueError` for samples of another version.
    """

    capabilities: Capabilities

    @property
    def version(self) -> int: ...

    def encode(self, prompt: str) -> tuple[int, ...]: ...

    def sample(self, prompt: Sequence[int], seed: int, most: int, among: Sequence[int] = ()) -> Sample: ...

    def logprobs(self, sample: Sample) -> list[float]: ...

    def forward_backward(self, data: Sequence[Datum], rules: Rules) -> dict[str, float]: ...

    def optim_step(self, rules: Rules) -> dict[str, float]: ...

    def publish(self) -> int: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...

    def discard(self, folder: Path) -> None: ...

    def export(self, folder: Path) -> None: ...
