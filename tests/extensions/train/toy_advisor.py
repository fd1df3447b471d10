"""A toy on which an advisor's training can be seen.

It names a few kinds of edit of a menu, the later in it the better.

Nothing is searched: a reply is scored at once by a known rule, and scores come closer to one
another as time goes on, as those of a search do. Needs the extra `train`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from culmen.extensions.train.engine import Datum, PolicyEngine, PolicySample, Rules
from culmen.extensions.train.models import WordTokenizer, tiny_model
from culmen.extensions.train.objectives import AdvantageRule, mixing_weight, progress_reward

KINDS = (
    *("numbers", "lines", "crossover", "statements", "operators", "bounds"),
    *("cheaper", "refine", "method", "restart", "effort", "cma"),
)
QUALITY = {name: (n / (len(KINDS) - 1)) ** 2 for n, name in enumerate(KINDS)}
"""Of each kind of edit, 0..1."""


@dataclass(frozen=True)
class Toy:
    """A reply of `words` kinds of edit and nothing else is valid; its quality q is their mean.

    At barrier t of `barriers` it scores 1 - d + d q + noise, with d from 1 down to `narrow`, by
    equal ratios; `group` replies make a barrier. Anything else fails: reward -1.
    """

    words: int = 3
    group: int = 16
    barriers: int = 150
    narrow: float = 0.01
    noise: float = 0.01

    def quality(self, sample: PolicySample) -> float | None:
        """q of a reply; None if it is not valid."""
        words = sample.text.split()
        if len(words) != self.words or not all(word in QUALITY for word in words):
            return None
        return sum(QUALITY[word] for word in words) / self.words

    def reward(self, sample: PolicySample, t: int, chance: Random) -> float:
        """Equation 5 of the score, between 0 and 1."""
        noise, q = chance.gauss(0.0, self.noise), self.quality(sample)
        width = self.narrow ** mixing_weight(t, self.barriers)
        return progress_reward(None if q is None else 1.0 - width + width * q + noise, 0.0, 1.0)


def policy(seed: int) -> PolicyEngine:
    """A tiny language model with random weights."""
    from culmen.extensions.train.torch_engine import TorchEngine

    tokenizer = WordTokenizer(list(KINDS))
    return TorchEngine(tiny_model(len(tokenizer), seed), tokenizer)


def rehearse(
    engine: PolicyEngine,
    toy: Toy,
    credit: AdvantageRule,
    rules: Rules,
    seed: int,
    *,
    flip: bool = False,
    corrected: bool = True,
) -> Iterator[dict[str, Any]]:
    """Train on the toy; yields the results of every barrier.

    `flip` gives every advantage a random sign.

    With `rules.stale` as many more barriers are drawn by one version, as in a search; without
    `corrected` their samples pass for the present version's.

    Each row has the mean reward, the share of valid replies, the mean quality (0 where invalid),
    why there was no step ("" if there was one), and the diagnostics of the update if there was one.
    """
    chance, prompt = Random(seed), engine.encode("generate")
    waiting: list[list[PolicySample]] = []
    for t in range(toy.barriers):
        while len(waiting) < 1 + rules.stale and t % (1 + rules.stale) == 0:
            waiting.append(
                [engine.sample(prompt, chance.getrandbits(31), toy.words) for _ in range(toy.group)]
            )
        samples = waiting.pop(0)
        rewards = [toy.reward(sample, t, chance) for sample in samples]
        signal = credit.training_signal(rewards, mixing_weight(t, toy.barriers))
        signs = [chance.choice((-1.0, 1.0)) if flip else 1.0 for _ in samples]
        told: dict[str, Any] = {}
        if not signal.skip:
            drawn = samples if corrected else [as_drawn_now(engine, sample) for sample in samples]
            data = [
                Datum(s, a * sign)
                for s, a, sign in zip(drawn, signal.advantages, signs, strict=True)
            ]
            told = engine.forward_backward(data, rules)
            told |= engine.optim_step(rules)
            engine.publish()
        yield {
            "reward": sum(rewards) / len(rewards),
            **measured(toy, samples),
            "skip": signal.skip,
            **told,
        }


def as_drawn_now(engine: PolicyEngine, sample: PolicySample) -> PolicySample:
    """The sample with the log-probabilities that it has under the present version."""
    return msgspec.structs.replace(
        sample, logprobs=tuple(engine.logprobs(sample)), version=engine.version
    )


def measured(toy: Toy, samples: list[PolicySample]) -> dict[str, float]:
    """Share of valid replies, and mean quality over all of them."""
    found = [toy.quality(sample) for sample in samples]
    return {
        "valid": sum(q is not None for q in found) / len(found),
        "quality": sum(q or 0.0 for q in found) / len(found),
    }


def examined(engine: PolicyEngine, toy: Toy, count: int, seed: int = 10**9) -> dict[str, float]:
    """The same of fresh replies, and how many of them are different."""
    prompt = engine.encode("generate")
    samples = [engine.sample(prompt, seed + n, toy.words) for n in range(count)]
    return {**measured(toy, samples), "different": float(len({sample.text for sample in samples}))}
