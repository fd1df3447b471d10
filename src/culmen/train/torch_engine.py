"""A policy in this process: torch and transformers, all weights or a LoRA adapter (extra `train`).

For models that fit one machine; on a CPU for tests and tiny models. Replies are drawn at temperature 1 from the full
distribution, one at a time, from a generator seeded by the request alone: what is sampled depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from culmen.train.engine import Capabilities, Datum, Rules, Sample
from culmen.train.extra import require

_OPTIMISER, _WEIGHTS, _ADAPTER = "optimiser.pt", "weights.pt", "adapter"


class Tokenizer(Protocol):
    """The little that is needed of one; those of transformers have it."""

    eos_token_id: int

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class TorchEngine:
    """`model` is a causal language model of transformers, or a PEFT model around one: then only the adapter is trained
    and saved (in PEFT's layout)."""

    def __init__(self, model: Any, tokenizer: Tokenizer) -> None:
        self.torch = require("torch", "train")
        self.model, self.tokenizer, self.version = model.eval(), tokenizer, 0  # eval: no dropout, sampling = training
        adapter = hasattr(model, "peft_config")
        cpu = next(model.parameters()).device.type == "cpu"
        self.capabilities = Capabilities(adapter=adapter, exact=cpu)
        self._optimiser: Any = None
        self._before: list[tuple[Any, Any]] = []

    def encode(self, prompt: str) -> tuple[int, ...]:
        """The prompt's tokens."""
        return tuple(self.tokenizer.encode(prompt))

    def sample(self, prompt: Sequence[int], seed: int, most: int, among: Sequence[int] = ()) -> Sample:
        """One reply of at most `most` tokens (of those in `among`, if any); the closing token is part of it."""
        torch = self.torch
        chance = torch.Generator(device="cpu").manual_seed(seed)
        ids, cache = torch.tensor([list(prompt)], device=self._device), None
        response: list[int] = []
        logprobs: list[float] = []
        with torch.no_grad():
            while len(response) < most:
                out = self.model(ids, past_key_values=cache, use_cache=True)
                cache, levels = out.past_key_values, self._normal(out.logits[0, -1], among)
                token = int(torch.multinomial(levels.exp().cpu(), 1, generator=chance))
                response.append(token)
                logprobs.append(float(levels[token]))
                if token == self.tokenizer.eos_token_id:
                    break
                ids = torch.tensor([[token]], device=self._device)
        ended = bool(response) and response[-1] == self.tokenizer.eos_token_id
        text = self.tokenizer.decode(response[:-1] if ended else response)
        return Sample(tuple(prompt), tuple(response), tuple(logprobs), self.version, text, ended, tuple(among))

    def logprobs(self, sample: Sample) -> list[float]:
        """The response's log-probabilities under the current weights, from one forward pass."""
        with self.torch.no_grad():
            return [float(x) for x in self._levels(sample)[0]]

    def forward_backward(self, data: Sequence[Datum], rules: Rules) -> dict[str, float]:
        """Accumulate the gradient, sample by sample: as much memory as the longest needs, whatever the group's size."""
        torch, tokens = self.torch, sum(len(datum.sample.response) for datum in data)
        if any(datum.sample.version != self.version for datum in data):
            raise ValueError(f"samples of another version than {self.version} cannot be trained on")
        told = _Tally()
        self._before = []
        for datum in data:
            new, entropy = self._levels(datum.sample)
            drawn = torch.tensor(datum.sample.logprobs, device=new.device, dtype=new.dtype)
            old = new.detach()
            weight = torch.exp(old - drawn).clamp(max=rules.correct)
            ratio = torch.exp(new - old) * weight
            advantage = float(datum.advantage)
            clipped = ratio.clamp(1 - rules.low, 1 + rules.high)
            loss = -torch.minimum(ratio * advantage, clipped * advantage).sum() / tokens
            loss.backward()
            self._before.append((datum.sample, old))
            told.add(loss, entropy.detach(), old - drawn, ratio.detach(), advantage, rules)
        return told.means(tokens)

    def optim_step(self, rules: Rules) -> dict[str, float]:
        """One step of AdamW; the norm is the gradient's before it was cut, kl (k3) what the step changed."""
        torch, optimiser = self.torch, self._adam(rules)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        norm = float(torch.nn.utils.clip_grad_norm_(trained, rules.norm))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        total, count = 0.0, 0
        with torch.no_grad():
            for sample, old in self._before:
                gap = old - self._levels(sample)[0]
                total += float((torch.exp(-gap) - 1 + gap).sum())
                count += len(sample.response)
        self._before = []
        return {"grad_norm": norm, "kl": total / max(1, count)}

    def publish(self) -> int:
        """In this process weights are sampled from as soon as they are there; only the version counts on."""
        self.version += 1
        return self.version

    def save(self, folder: Path) -> None:
        """Weights (or the adapter) and the optimiser's state."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.capabilities.adapter:
            self.model.save_pretrained(folder / _ADAPTER)
        else:
            self.torch.save(self.model.state_dict(), folder / _WEIGHTS)
        state = self._optimiser.state_dict() if self._optimiser is not None else {}
        self.torch.save({"version": self.version, "optimiser": state}, folder / _OPTIMISER)

    def load(self, folder: Path) -> None:
        """The inverse of `save`, bit for bit on a CPU."""
        state = self.torch.load(folder / _OPTIMISER, weights_only=True)
        if self.capabilities.adapter:
            weights = require("safetensors.torch", "train").load_file(folder / _ADAPTER / "adapter_model.safetensors")
            require("peft", "train").set_peft_model_state_dict(self.model, weights)
        else:
            self.model.load_state_dict(self.torch.load(folder / _WEIGHTS, weights_only=True))
        self.version, self._optimiser = state["version"], None
        if state["optimiser"]:
            self._adam(Rules()).load_state_dict(state["optimiser"])

    @property
    def _device(self) -> Any:
        return next(self.model.parameters()).device

    def _adam(self, rules: Rules) -> Any:
        """The optimiser, made when first needed; its settings follow the rules."""
        if self._optimiser is None:
            trained = [p for p in self.model.parameters() if p.requires_grad]
            self._optimiser = self.torch.optim.AdamW(trained, lr=rules.rate)
        for group in self._optimiser.param_groups:
            group.update(lr=rules.rate, betas=rules.betas, weight_decay=rules.decay)
        return self._optimiser

    def _levels(self, sample: Sample) -> tuple[Any, Any]:
        """Log-probabilities of the response's tokens, and the entropies of the distributions they came from."""
        ids, begin = self.torch.tensor([[*sample.prompt, *sample.response]], device=self._device), len(sample.prompt)
        levels = self._normal(self.model(ids).logits[0, begin - 1 : -1], sample.among)
        entropy = -(levels.exp() * levels.clamp(min=-1e9)).sum(-1)
        return levels.gather(-1, ids[0, begin:, None])[:, 0], entropy

    def _normal(self, logits: Any, among: Sequence[int]) -> Any:
        """Log-probabilities over the whole vocabulary, or over some of its tokens."""
        logits = logits.float()
        if among:
            allowed = self.torch.full_like(logits, float("-inf"))
            allowed[..., list(among)] = 0.0
            logits = logits + allowed
        return self.torch.log_softmax(logits, -1)


class _Tally:
    """Sums over tokens, for the diagnostics of one update."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys(("entropy", "gap_mean", "clip_low", "clip_high"), 0.0)
        self.loss = self.gap = self.ratio = 0.0

    def add(self, loss: Any, entropy: Any, gap: Any, ratio: Any, advantage: float, rules: Rules) -> None:
        self.loss += float(loss.detach())
        self.sums["entropy"] += float(entropy.sum())
        self.sums["gap_mean"] += float(gap.abs().sum())
        self.sums["clip_low"] += float((ratio < 1 - rules.low).sum()) if advantage < 0 else 0.0
        self.sums["clip_high"] += float((ratio > 1 + rules.high).sum()) if advantage > 0 else 0.0
        self.gap = max(self.gap, float(gap.abs().max()))
        self.ratio = max(self.ratio, float(ratio.max()))

    def means(self, tokens: int) -> dict[str, float]:
        means = {name: value / max(1, tokens) for name, value in self.sums.items()}
        return {**means, "loss": self.loss, "gap_max": self.gap, "ratio_max": self.ratio, "tokens": float(tokens)}
