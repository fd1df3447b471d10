"""A chat model as the advisor: its tokenizer, its LoRA adapter, and how a step of a decision is put to it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from culmen.core.errors import UserError
from culmen.train.extra import require

Render = Callable[[str, dict[str, Any]], tuple[str, str]]


class ChatTokenizer:
    """A tokenizer of transformers for text in which a chat format has put all special tokens already."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.eos_token_id = inner, inner.eos_token_id

    def encode(self, text: str) -> list[int]:
        """Tokens, none added."""
        return self.inner.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text."""
        return self.inner.decode(list(ids))

    def chat(self, messages: list[dict[str, str]]) -> str:
        """Messages in the model's own format, up to where its reply begins."""
        return self.inner.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def save_pretrained(self, folder: str) -> object:
        """The tokenizer's files."""
        return self.inner.save_pretrained(folder)


class ChatPersona:
    """Speaks with a chat model: the step's template, rendered by `render(role, slots) -> (system, user)`."""

    def __init__(self, tokenizer: ChatTokenizer, render: Render, most: int) -> None:
        self._tokenizer, self._render, self._most = tokenizer, render, most

    def prompt(self, step: str, slots: dict[str, Any]) -> str:
        """Both messages in the chat format."""
        system, user = self._render(f"advisor.{step}", slots)
        return self._tokenizer.chat([{"role": "system", "content": system}, {"role": "user", "content": user}])

    def grammar(self, step: str, slots: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
        """Free text."""
        return self._most, ()

    def reply(self, step: str, text: str, slots: dict[str, Any], seed: int) -> str:
        """As it is, without a reasoning section."""
        return text.rpartition("</think>")[2]


def load_tokenizer(path: str) -> ChatTokenizer:
    """The tokenizer of a model folder, or of a name that transformers knows."""
    transformers = require("transformers", "train")
    try:
        return ChatTokenizer(transformers.AutoTokenizer.from_pretrained(path))
    except (OSError, ValueError) as error:
        raise _missing("tokenizer", path, error) from error


def load_model(path: str) -> Any:
    """A model in its own precision, on the GPU if there is one; there its activations are computed again, not kept."""
    torch, transformers = require("torch", "train"), require("transformers", "train")
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype="auto")
    except (OSError, ValueError) as error:
        raise _missing("model", path, error) from error
    if not torch.cuda.is_available():
        return model
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.to("cuda")


def adapted(model: Any, rank: int, seed: int, head: bool = False) -> Any:
    """The model with a LoRA adapter on all linear layers, `head`: the output layer, too. Begins as the model itself.

    Its random half depends on the seed alone. alpha is twice the rank.
    """
    torch, peft = require("torch", "train"), require("peft", "train")
    linear = {name.rpartition(".")[2] for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)}
    settings = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=sorted(linear) if head else "all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by names that it is giving up
            return peft.get_peft_model(model, settings)


def _missing(what: str, path: str, error: Exception) -> UserError:
    said = (str(error).splitlines() or [""])[0]
    return UserError(f"the advisor's {what} '{path}' cannot be loaded", where=said, fix="check the path")
