"""One model of a Tinker-compatible server: adapters, losses, AdamW, sampling.

The losses are over shifted targets.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from culmen.extensions.train.engine import import_extra
from culmen.extensions.train.models import adapted_model

_ALLOWED = {
    "cross_entropy": set(),
    "importance_sampling": set(),
    "ppo": {"clip_low_threshold", "clip_high_threshold"},
}


class Refused(Exception):
    """A request that cannot be answered, with its status."""

    def __init__(self, said: str, status: int = 400) -> None:
        super().__init__(said)
        self.status = status


class Trained:
    """One model in training and a second copy of it to sample from.

    `load()` gives the base model.
    """

    def __init__(self, load: Callable[[], Any], rank: int, seed: int, head: bool) -> None:
        self._torch, self._peft = import_extra("torch", "train"), import_extra("peft", "train")
        self.model, self._sampling = (
            adapted_model(load(), rank, seed, head=head).eval() for _ in range(2)
        )
        self._optimiser: Any = None
        self._examples = 0

    def adapter(self) -> dict[str, Any]:
        """A copy of the adapter's weights."""
        return {
            name: value.clone()
            for name, value in self._peft.get_peft_model_state_dict(self.model).items()
        }

    def state(self) -> dict[str, Any]:
        """Adapter and optimiser."""
        kept = copy.deepcopy(self._optimiser.state_dict()) if self._optimiser else None
        return {"adapter": self.adapter(), "optimiser": kept}

    def load(self, state: dict[str, Any], optimiser: bool) -> None:
        """The inverse of `state`; a gradient that was gathered stays, as on real servers."""
        self._peft.set_peft_model_state_dict(self.model, state["adapter"])
        self._optimiser = None
        if optimiser and state["optimiser"]:
            self._adam().load_state_dict(copy.deepcopy(state["optimiser"]))

    def export(self, adapter: dict[str, Any], folder: Path) -> None:
        """An adapter in PEFT's layout."""
        self._peft.set_peft_model_state_dict(self._sampling, adapter)
        self._sampling.save_pretrained(folder)

    def sample(
        self, adapter: dict[str, Any], prompt: list[int], params: dict[str, Any]
    ) -> dict[str, Any]:
        """One reply, by one forward pass over everything for each token.

        The stop token is part of it.
        """
        torch = self._torch
        self._peft.set_peft_model_state_dict(self._sampling, adapter)
        if (
            params.get("temperature", 1) != 1
            or params.get("top_p", 1) != 1
            or params.get("top_k", -1) != -1
        ):
            raise Refused("only the whole distribution at temperature 1 is sampled from here")
        chance = torch.Generator().manual_seed(params["seed"])
        tokens: list[int] = []
        logprobs: list[float] = []
        with torch.no_grad():
            while len(tokens) < params["max_tokens"] and not (
                tokens and tokens[-1] in params["stop"]
            ):
                levels = torch.log_softmax(
                    self._sampling(torch.tensor([prompt + tokens])).logits[0, -1].float(), -1
                )
                tokens.append(int(torch.multinomial(levels.exp(), 1, generator=chance)))
                logprobs.append(float(levels[tokens[-1]]))
        reason = "stop" if tokens and tokens[-1] in params["stop"] else "length"
        return {
            "type": "sample",
            "sequences": [{"stop_reason": reason, "tokens": tokens, "logprobs": logprobs}],
        }

    def loss(
        self,
        data: list[dict[str, Any]],
        name: str,
        config: dict[str, float],
        aggregate: str,
        backward: bool,
    ) -> dict[str, Any]:
        """The loss of every datum, and log-probabilities of all targets.

        The loss is gathered into the gradient if `backward`.
        """
        if name not in _ALLOWED or not set(config) <= _ALLOWED[name]:
            raise Refused(f"no loss {name} with {sorted(config)}")
        torch, outputs, total = self._torch, list[dict[str, Any]](), 0.0
        for datum in data:
            tokens = [
                token for chunk in datum["model_input"]["chunks"] for token in chunk["tokens"]
            ]
            given = {
                key: torch.tensor(value["data"]) for key, value in datum["loss_fn_inputs"].items()
            }
            targets = given["target_tokens"]
            if len(targets) != len(tokens):
                raise Refused("as many targets are needed as there are inputs")
            weights = given.get("weights", torch.ones(len(targets)))
            with torch.set_grad_enabled(backward):
                levels = torch.log_softmax(self.model(torch.tensor([tokens])).logits[0].float(), -1)
                new = levels[torch.arange(len(targets)), targets]
                each = _each(torch, name, new, given, config) * weights
                part = (
                    each.sum()
                    if aggregate == "token_sum"
                    else each.sum() / weights.sum().clamp(min=1e-9)
                )
            if backward:
                part.backward()
            total += float(part.detach())
            outputs.append(
                {"logprobs": {"data": new.tolist(), "dtype": "float32", "shape": [len(targets)]}}
            )
        self._examples += len(data) if backward else 0
        return {
            "loss_fn_output_type": "ArrayRecord",
            "loss_fn_outputs": outputs,
            "metrics": {"loss:sum": total},
        }

    def step(self, params: dict[str, Any], aggregate: str) -> dict[str, float]:
        """One step of AdamW.

        A mean over sequences is one over all that were gathered, and is not cut (SkyRL).
        """
        optimiser, gathered = (
            self._adam(),
            [p for p in self.model.parameters() if p.grad is not None],
        )
        if aggregate == "sequence_mean":
            for one in gathered:
                one.grad /= max(1, self._examples)
        most = params.get("grad_clip_norm") or math.inf
        norm = self._torch.nn.utils.clip_grad_norm_(
            gathered, most if aggregate == "token_sum" else math.inf
        )
        for group in optimiser.param_groups:
            betas = (params["beta1"], params["beta2"])
            group.update(
                lr=params["learning_rate"],
                betas=betas,
                eps=params["eps"],
                weight_decay=params["weight_decay"],
            )
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        self._examples = 0
        return {"skyrl.ai/grad_norm": float(norm)}

    def _adam(self) -> Any:
        if self._optimiser is None:
            self._optimiser = self._torch.optim.AdamW(
                [p for p in self.model.parameters() if p.requires_grad]
            )
        return self._optimiser


def _each(torch: Any, name: str, new: Any, given: dict[str, Any], config: dict[str, float]) -> Any:
    """Loss of every position."""
    if name == "cross_entropy":
        return -new
    ratio, advantages = torch.exp(new - given["logprobs"]), given["advantages"]
    if name == "importance_sampling":
        return -ratio * advantages
    low, high = config.get("clip_low_threshold", 0.8), config.get("clip_high_threshold", 1.2)
    return -torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
