"""A policy trained in this process and sampled from by a server: each version is an adapter with a name of its own.

The name ends in a digest of the adapter, so it can never stand for other weights, and a request for a version that the
server does not have fails instead of being answered by another one.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from culmen.train.engine import Datum, Rules, Sample
from culmen.train.serving import Sampler
from culmen.train.torch_engine import TorchEngine


class ServedEngine:
    """`trainer` holds the weights; adapters for the server are written to `folder`, which it must be able to read."""

    def __init__(self, trainer: TorchEngine, sampler: Sampler, folder: Path) -> None:
        self.trainer, self._sampler, self._folder = trainer, sampler, folder
        self.capabilities = msgspec.structs.replace(trainer.capabilities, grammar=sampler.grammar, exact=False)
        self._name, self._served = "", -1  # the adapter that the server has for us, and its version

    @property
    def version(self) -> int:
        """Of the trainer, and of what is sampled next."""
        return self.trainer.version

    @property
    def tokenizer(self) -> Any:
        """The trainer's."""
        return self.trainer.tokenizer

    def encode(self, prompt: str) -> tuple[int, ...]:
        """The prompt's tokens."""
        return self.trainer.encode(prompt)

    def sample(self, prompt: Sequence[int], seed: int, most: int, among: Sequence[int] = ()) -> Sample:
        """One reply of the server by the adapter of this version."""
        self._serve()
        drawn = self._sampler.draw(self._name, prompt, seed % (2**31 - 1), most, among)
        closed = drawn.tokens[-1] == self.tokenizer.eos_token_id
        text = self.tokenizer.decode(drawn.tokens[:-1] if closed else drawn.tokens)
        return Sample(tuple(prompt), drawn.tokens, drawn.logprobs, self._served, text, drawn.ended, tuple(among))

    def logprobs(self, sample: Sample) -> list[float]:
        """By the trainer."""
        return self.trainer.logprobs(sample)

    def forward_backward(self, data: Sequence[Datum], rules: Rules) -> dict[str, float]:
        """By the trainer; the gap to the server's log-probabilities is in what it tells, and is corrected for."""
        return self.trainer.forward_backward(data, rules)

    def optim_step(self, rules: Rules) -> dict[str, float]:
        """By the trainer."""
        return self.trainer.optim_step(rules)

    def publish(self) -> int:
        """Give the server the adapter of the new version, then let it forget the old one."""
        self.trainer.publish()
        self._serve()
        return self.version

    def save(self, folder: Path) -> None:
        """The trainer's checkpoint."""
        self.trainer.save(folder)

    def load(self, folder: Path) -> None:
        """The trainer's checkpoint; the server gets its adapter when it is first sampled from."""
        self.trainer.load(folder)
        self._served = -1

    def discard(self, folder: Path) -> None:
        """Remove a checkpoint."""
        self.trainer.discard(folder)

    def export(self, folder: Path) -> None:
        """The trainer's adapter."""
        self.trainer.export(folder)

    def _serve(self) -> None:
        if self._served == self.version:
            return
        partial = self._folder / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        self.trainer.model.save_pretrained(partial)
        digest = hashlib.sha256((partial / "adapter_model.safetensors").read_bytes()).hexdigest()
        old, self._name = self._name, f"culmen-{self.version:05d}-{digest[:12]}"
        place = self._folder / self._name
        shutil.rmtree(place, ignore_errors=True)
        partial.rename(place)
        self._sampler.load(self._name, str(place.resolve()))
        self._served = self.version
        if old and old != self._name:
            self._sampler.unload(old)
            shutil.rmtree(self._folder / old, ignore_errors=True)
