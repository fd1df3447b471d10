"""Models for an advisor, and their prompts.

A model is a chat model with a LoRA adapter, or a tiny one over a menu.
"""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.replies.thoughts import without_thoughts
from culmen.extensions.train.engine import import_extra

Render = Callable[[str, JsonObject], tuple[str, str]]


class ChatTokenizer:
    """A tokenizer of transformers for text that already has the chat format's special tokens."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.eos_token_id = inner, inner.eos_token_id

    def encode(self, text: str) -> list[int]:
        """The text's tokens; no special token is added."""
        return self.inner.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """The tokens' text."""
        return self.inner.decode(list(ids))

    def chat_prompt(self, messages: list[dict[str, str]]) -> str:
        """Messages in the model's own format, up to the beginning of its reply."""
        return self.inner.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def save_pretrained(self, folder: str) -> object:
        """Write the tokenizer's files."""
        return self.inner.save_pretrained(folder)


class ChatPersona:
    """Persona of a chat model.

    `render(role, slots) -> (system, user)` fills a step's template.
    """

    def __init__(self, tokenizer: ChatTokenizer, render: Render, max_tokens: int) -> None:
        self._tokenizer, self._render, self._max_tokens = tokenizer, render, max_tokens

    def step_prompt(self, step: str, slots: JsonObject) -> str:
        """Both messages in the chat format."""
        system, user = self._render(f"advisor.{step}", slots)
        return self._tokenizer.chat_prompt(
            [{"role": "system", "content": system}, {"role": "user", "content": user}]
        )

    def reply_limits(self, step: str, slots: JsonObject) -> tuple[int, tuple[str, ...]]:
        """The most tokens of a reply, without a limit on its words."""
        return self._max_tokens, ()

    def step_answer(self, step: str, text: str, slots: JsonObject, seed: int) -> str:
        """The text without a reasoning section."""
        return without_thoughts(text)


def load_tokenizer(path: str) -> ChatTokenizer:
    """The tokenizer of a model folder, a GGUF file, or of a name that transformers knows."""
    return ChatTokenizer(_load("AutoTokenizer", path))


def load_model(path: str) -> Any:
    """A model in its own precision, on the GPU if there is one.

    On the GPU its activations are recomputed, not kept. Raises `UserError` if it cannot be loaded.
    """
    torch, transformers = import_extra("torch", "train"), import_extra("transformers", "train")
    transformers.utils.logging.disable_progress_bar()  # the terminal shows the run's own bar
    model = gguf_model(path) if is_gguf(path) else _load("AutoModelForCausalLM", path, dtype="auto")
    if not torch.cuda.is_available():
        return model
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.to("cuda")


def adapted_model(model: Any, rank: int, seed: int, head: bool = False) -> Any:
    """The model with a LoRA adapter on all linear layers, at first equal to the model itself.

    `head` includes the output layer. The random half of the adapter depends on the seed alone;
    alpha is twice the rank.
    """
    torch, peft = import_extra("torch", "train"), import_extra("peft", "train")
    linear = {
        name.rpartition(".")[2]
        for name, one in model.named_modules()
        if isinstance(one, torch.nn.Linear)
    }
    settings = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=sorted(linear) if head else "all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            # peft uses names that transformers has deprecated
            warnings.simplefilter("ignore", FutureWarning)
            return peft.get_peft_model(model, settings)


_SPECIAL = ("<s>", "</s>", "<unk>")
_COMMON = (
    "generate",
    "select",
    "classify",
    "result",
    "condense",
    "prune",
    "better",
    "worse",
    "failed",
    "among",
)


class WordTokenizer:
    """One token per word; other words become the unknown token."""

    bos_token_id, eos_token_id, unk_token_id = 0, 1, 2

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [*_SPECIAL, *dict.fromkeys((*_COMMON, *words))]
        self._ids = {word: n for n, word in enumerate(self._words)}

    def __len__(self) -> int:
        return len(self._words)

    def encode(self, text: str) -> list[int]:
        """The words' tokens, after the opening one."""
        return [
            self.bos_token_id,
            *(self._ids.get(word, self.unk_token_id) for word in text.split()),
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The words, separated by spaces."""
        return " ".join(self._words[n] for n in ids)

    def save_pretrained(self, folder: str) -> None:
        """Write the words in the order of their tokens, as `words.json`."""
        (Path(folder) / "words.json").write_text(json.dumps(self._words))


def tiny_model(vocabulary: int, seed: int, width: int = 32, layers: int = 2) -> Any:
    """A randomly initialised causal language model of transformers (Llama's architecture)."""
    torch, transformers = import_extra("torch", "train"), import_extra("transformers", "train")
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config)


class MenuPersona:
    """Persona of a tiny model: a step as a few words, and its words back as the step's answer."""

    def __init__(self, menu: dict[str, str]) -> None:
        self._menu = menu

    def step_prompt(self, step: str, slots: JsonObject) -> str:
        """The latest failures by kind of edit, the options if there are any, and the step."""
        failed = [
            name
            for f in slots.get("failures", ())
            if (name := _edit_kind(f["experiment"])) in self._menu
        ]
        options = [_edit_kind(o["hypothesis"]) for o in slots.get("options", ())]
        return " ".join(["failed", *failed[:3], *(["among", *options] if options else []), step])

    def reply_limits(self, step: str, slots: JsonObject) -> tuple[int, tuple[str, ...]]:
        """The most words of a reply, and the words it may use.

        To generate: one word of the menu per hypothesis. To select: one word of the options.
        """
        if step == "select":
            return 1, tuple(_edit_kind(o["hypothesis"]) for o in slots["options"])
        return int(slots.get("count", 1)), tuple(self._menu)

    def step_answer(self, step: str, text: str, slots: JsonObject, seed: int) -> str:
        """JSON in the form of a larger model's reply; words that form no answer stay unchanged.

        The same kind of edit is another experiment each time it is drawn, so choices carry a
        number.
        """
        words = list(dict.fromkeys(word for word in text.split() if word in self._menu))
        if step == "generate" and words:
            lines = [f"{word}: {self._menu[word]}" for word in words[: int(slots["count"])]]
            return json.dumps({"hypotheses": [{"hypothesis": line} for line in lines]})
        options = {_edit_kind(o["hypothesis"]): o for o in slots.get("options", ())}
        chosen = next((options[word] for word in words if word in options), None)
        if step == "select" and chosen is not None:
            return json.dumps(
                {
                    "idea": chosen["idea"],
                    "experiment": f"{chosen['hypothesis']} (draw {seed % 10**6})",
                }
            )
        return text


def _edit_kind(line: str) -> str:
    return line.partition(":")[0]


# Weights and tokenizer of a GGUF file (extra `train-gguf`), unpacked into a plain model that can be
# trained and saved.
#
# transformers reads the file and unpacks its blocks; the model it returns counts as quantised,
# which neither saving nor adapters accept, so its weights move into a fresh one of the same
# configuration.


def is_gguf(path: str) -> bool:
    """True if `path` names a GGUF file rather than a model folder."""
    return path.lower().endswith(".gguf")


def gguf_model(path: str) -> Any:
    """The model of a GGUF file: float32 on a CPU, bfloat16 for a GPU."""
    torch, transformers = import_extra("torch", "train"), import_extra("transformers", "train")
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    packed = {"dtype": dtype}
    if hasattr(transformers, "GgufConfig"):  # newer versions may leave weights packed
        packed["quantization_config"] = transformers.GgufConfig(dequantize=True)
    read = _load("AutoModelForCausalLM", path, **packed)
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    return model


def _load(kind: str, path: str, **options: object) -> Any:
    """A folder, a GGUF file or a known name, loaded by the class `kind` of transformers.

    Raises `UserError` if the file, its architecture or a package is missing.
    """
    what, place, fix = f"the advisor's policy '{path}' cannot be loaded", path, "check the path"
    if is_gguf(path):
        file = Path(path)
        if not file.is_file():
            raise UserError(
                "there is no such GGUF file",
                where=path,
                fix="--set policy=FILE.gguf, or a model folder",
            )
        for package in ("gguf", "accelerate"):
            import_extra(package, "train-gguf")
        what, fix = (
            "transformers cannot read this GGUF file",
            "install a newer transformers, or use a model folder: --set policy=FOLDER",
        )
        path, options = str(file.parent), {"gguf_file": file.name, **options}
    loader = getattr(import_extra("transformers", "train"), kind)
    try:
        return loader.from_pretrained(path, **options)
    except (OSError, ValueError, KeyError, NotImplementedError, struct.error) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise UserError(f"{what}: {reason}", where=place, fix=fix) from error
