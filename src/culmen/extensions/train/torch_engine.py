"""A policy in this process: torch and transformers (extra `train`).

All weights or a LoRA adapter are trained. For models that fit one machine; on a CPU for tests and
tiny models. Replies are drawn at temperature 1 from the full distribution, one at a time, each from
a generator seeded by its request alone.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from culmen.extensions.train.engine import (
    Capabilities,
    Datum,
    PolicySample,
    Progress,
    ReplyRequest,
    Rules,
    UpdateDiagnostics,
    import_extra,
    kl_estimate,
)

_STATE, _WEIGHTS, ADAPTER = "state.pt", "weights.pt", "adapter"


class Tokenizer(Protocol):
    """The required members of a tokenizer; those of transformers have them."""

    eos_token_id: int

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def save_pretrained(self, folder: str) -> object: ...


class TorchEngine:
    """Engine with a model in this process.

    model      causal language model of transformers, or a PEFT model around one: then only the
               adapter is trained and saved, in PEFT's layout
    anchored   True keeps the first weights for `Rules.anchor`, as a copy if all weights are trained

    The model stays in evaluation mode, so that training and sampling see the same model. If
    activations are recomputed to save memory, transformers needs training mode for the pass with a
    gradient, and the dropout of a model would show in the gap.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        seed: int = 0,
        *,
        anchored: bool = False,
    ) -> None:
        self.torch = import_extra("torch", "train")
        self.model, self.tokenizer, self.version = model.eval(), tokenizer, 0
        adapter = hasattr(model, "peft_config")
        cpu = next(model.parameters()).device.type == "cpu"
        context = getattr(model.config, "max_position_embeddings", None)
        self.capabilities = Capabilities(
            anchor=anchored, adapter=adapter, exact=cpu, context=context
        )
        self._first = copy.deepcopy(self.model) if anchored and not adapter else None
        self._held: dict[PolicySample, Any] = {}
        self._optimiser: Any = None
        self._before: list[tuple[PolicySample, list[float]]] = []
        # state of the generator for the model's own randomness in training
        self._random = self.torch.Generator().manual_seed(seed).get_state()

    def encode(self, prompt: str) -> tuple[int, ...]:
        """The prompt's tokens."""
        return tuple(self.tokenizer.encode(prompt))

    def sample(
        self, prompt: Sequence[int], seed: int, max_tokens: int, among: Sequence[int] = ()
    ) -> PolicySample:
        """One reply of at most `max_tokens` tokens, all in `among` unless that is empty.

        The closing token is part of it.
        """
        torch = self.torch
        chance = torch.Generator(device="cpu").manual_seed(seed)
        ids, cache = torch.tensor([list(prompt)], device=self._device), None
        response: list[int] = []
        logprobs: list[float] = []
        with torch.no_grad():
            while len(response) < max_tokens:
                out = self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                cache, levels = out.past_key_values, self._masked_logprobs(out.logits[0, -1], among)
                token = int(torch.multinomial(levels.exp().cpu(), 1, generator=chance))
                response.append(token)
                logprobs.append(float(levels[token]))
                if token == self.tokenizer.eos_token_id:
                    break
                ids = torch.tensor([[token]], device=self._device)
        ended = bool(response) and response[-1] == self.tokenizer.eos_token_id
        text = self.tokenizer.decode(response[:-1] if ended else response)
        tokens = (tuple(prompt), tuple(response), tuple(logprobs))
        return PolicySample(*tokens, self.version, text, ended, tuple(among))

    def sample_many(
        self, requests: Sequence[ReplyRequest], on_progress: Progress
    ) -> list[PolicySample]:
        """Replies to all requests, one after another."""
        replies: list[PolicySample] = []
        tokens = 0
        for done, request in enumerate(requests, 1):
            replies.append(self.sample(*request))
            tokens += len(replies[-1].response)
            on_progress(done, tokens)
        return replies

    def logprobs(self, sample: PolicySample) -> list[float]:
        """The response's log-probabilities under the current weights, from one forward pass."""
        with self.torch.no_grad():
            return self._logprobs_and_entropies(sample)[0].tolist()

    def hold_logprobs(self, samples: Sequence[PolicySample]) -> None:
        """Hold the current log-probabilities of the samples, by one forward pass each."""
        with self.torch.no_grad():
            self._held = {sample: self._logprobs_and_entropies(sample)[0] for sample in samples}

    def forward_backward(self, data: Sequence[Datum], rules: Rules) -> dict[str, float]:
        """Accumulate the gradient, sample by sample; return the diagnostics.

        The memory is that of the longest sample, whatever the group's size.
        """
        tokens = sum(len(datum.sample.response) for datum in data)
        check_version(data, self.version, rules.stale)
        diagnostics = UpdateDiagnostics()
        self._before = []
        for datum, advantages in zip(data, self._token_advantages(data, rules.anchor), strict=True):
            with self._training_pass():
                new, entropy = self._logprobs_and_entropies(datum.sample)
                held = self._held.get(datum.sample, new.detach())
                self._surrogate_loss(new, held, datum.sample, advantages, rules, tokens).backward()
            old = held.tolist()
            self._before.append((datum.sample, old))
            drawn, gaps = datum.sample.logprobs, entropy.detach().tolist()
            diagnostics.add_response(
                new.detach().tolist(), drawn, gaps, advantages.tolist(), rules, old
            )
        return diagnostics.means_and_maxima()

    def optim_step(self, rules: Rules) -> dict[str, float]:
        """Take one step of AdamW.

        Returns the gradient's norm before the cut, and kl (k3) between the weights before and
        after.
        """
        optimiser = self._configured_adam(rules)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        norm = float(self.torch.nn.utils.clip_grad_norm_(trained, rules.norm))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        total = sum(kl_estimate(old, self.logprobs(sample)) for sample, old in self._before)
        count = sum(len(old) for _, old in self._before)
        self._before = []
        return {"grad_norm": norm, "kl": total / max(1, count)}

    def publish(self) -> int:
        """Advance the version; sampling uses the current weights."""
        self.version += 1
        self._held = {}
        return self.version

    def save(self, folder: Path) -> None:
        """Write the weights (or the adapter), the optimiser's state and the generator's."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.capabilities.adapter:
            self.model.save_pretrained(folder / ADAPTER)
        else:
            self.torch.save(self.model.state_dict(), folder / _WEIGHTS)
        state = self._optimiser.state_dict() if self._optimiser is not None else {}
        kept = {"version": self.version, "optimiser": state, "random": self._random}
        self.torch.save(kept, folder / _STATE)

    def load(self, folder: Path) -> None:
        """Load a checkpoint, bit for bit on a CPU; a gradient that was not applied is dropped."""
        state = self.torch.load(folder / _STATE, weights_only=True)
        if self.capabilities.adapter:
            weights = import_extra("safetensors.torch", "train").load_file(
                folder / ADAPTER / "adapter_model.safetensors"
            )
            import_extra("peft", "train").set_peft_model_state_dict(self.model, weights)
        else:
            self.model.load_state_dict(self.torch.load(folder / _WEIGHTS, weights_only=True))
        self.model.zero_grad(set_to_none=True)
        self.version, self._optimiser, self._before, self._held = state["version"], None, [], {}
        if state["optimiser"]:
            self._configured_adam(Rules()).load_state_dict(state["optimiser"])
        self._random = state["random"]

    def discard(self, folder: Path) -> None:
        """Remove a checkpoint."""
        shutil.rmtree(folder, ignore_errors=True)

    def export(self, folder: Path) -> None:
        """Write the adapter in PEFT's layout, or the whole model as a folder of transformers.

        The tokenizer lies beside it.
        """
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(str(folder))

    @property
    def _device(self) -> Any:
        return next(self.model.parameters()).device

    @contextmanager
    def _training_pass(self) -> Iterator[None]:
        """Run a pass with a gradient whose randomness comes from the policy's generator.

        This covers dropout and the noise of experts.
        """
        random = self.torch.random
        with random.fork_rng():
            random.set_rng_state(self._random)
            if self._device.type == "cuda":
                self.torch.cuda.manual_seed(self.version)
            again = any(
                getattr(layer, "gradient_checkpointing", False) for layer in self.model.modules()
            )
            self.model.train(again)  # activations are recomputed in training mode only
            yield
            self.model.eval()
            self._random = random.get_rng_state()

    def _configured_adam(self, rules: Rules) -> Any:
        """The optimiser, made when first needed; its settings follow the rules."""
        if self._optimiser is None:
            trained = [p for p in self.model.parameters() if p.requires_grad]
            self._optimiser = self.torch.optim.AdamW(trained, lr=rules.rate)
        for group in self._optimiser.param_groups:
            group.update(lr=rules.rate, betas=rules.betas, weight_decay=rules.decay)
        return self._optimiser

    def _logprobs_and_entropies(self, sample: PolicySample, model: Any = None) -> tuple[Any, Any]:
        """Log-probabilities of the response's tokens, and entropies of their distributions."""
        ids, begin = (
            self.torch.tensor([[*sample.prompt, *sample.response]], device=self._device),
            len(sample.prompt),
        )
        # no logits of the prompt, which may be long
        out = (model or self.model)(ids, use_cache=False, logits_to_keep=len(sample.response) + 1)
        levels = self._masked_logprobs(out.logits[0, :-1], sample.among)
        entropy = -(levels.exp() * levels.clamp(min=-1e9)).sum(-1)
        return levels.gather(-1, ids[0, begin:, None])[:, 0], entropy

    def _token_advantages(self, data: Sequence[Datum], anchor: float) -> list[Any]:
        """An advantage for each token of each response, shape (tokens,) each.

        Those of an anchored update pull towards the first weights.
        """
        torch = self.torch
        plain = [
            torch.full((len(datum.sample.response),), datum.advantage, device=self._device)
            for datum in data
        ]
        if not anchor:
            return plain
        if not self.capabilities.anchor:
            raise ValueError("this engine does not keep its first weights")
        divergences = [
            torch.tensor(datum.sample.logprobs, device=self._device)
            - self._initial_logprobs(datum.sample)
            for datum in data
        ]
        mean = torch.cat(divergences).mean()
        return [
            advantages + anchor * (mean - gap)
            for advantages, gap in zip(plain, divergences, strict=True)
        ]

    def _initial_logprobs(self, sample: PolicySample) -> Any:
        """The response's log-probabilities under the first weights.

        These are the weights without the adapter, or the copy.
        """
        with self.torch.no_grad():
            if self._first is not None:
                return self._logprobs_and_entropies(sample, self._first)[0]
            with self.model.disable_adapter():
                return self._logprobs_and_entropies(sample)[0]

    def _surrogate_loss(
        self, new: Any, held: Any, sample: PolicySample, advantages: Any, rules: Rules, tokens: int
    ) -> Any:
        """Equation 6 of one response: its share of the mean over all `tokens` of the batch."""
        torch = self.torch
        drawn = torch.tensor(sample.logprobs, device=new.device, dtype=new.dtype)
        ratio = torch.exp(new - held) * torch.exp(held - drawn).clamp(max=rules.correct)
        clipped = ratio.clamp(1 - rules.low, 1 + rules.high)
        return -torch.minimum(ratio * advantages, clipped * advantages).sum() / tokens

    def _masked_logprobs(self, logits: Any, among: Sequence[int]) -> Any:
        """Log-probabilities over the whole vocabulary, or over some of its tokens."""
        logits = logits.float()
        if among:
            allowed = self.torch.full_like(logits, float("-inf"))
            allowed[..., list(among)] = 0.0
            logits = logits + allowed
        return self.torch.log_softmax(logits, -1)


def check_version(data: Sequence[Datum], version: int, stale: int = 0) -> None:
    """Raise `ValueError` for samples more than `stale` versions old, or of a later version."""
    if any(not 0 <= version - datum.sample.version <= stale for datum in data):
        allowed = f"{version}, or up to {stale} before it," if stale else version
        raise ValueError(f"samples of another version than {allowed} cannot be trained on")
