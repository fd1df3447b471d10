"""A language model of some ten thousand weights, made in code with its tokenizer: an advisor that chooses from a menu.

It is what shows, on a laptop and without a download, that the training works. Its vocabulary is the menu of edits, so
it cannot say anything else, but from random weights it says it in no order that anyone could use.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from culmen.train.extra import require

_SPECIAL = ("<s>", "</s>", "<unk>")
_COMMON = ("generate", "select", "classify", "result", "condense", "prune", "better", "worse", "failed", "among")


class WordTokenizer:
    """One token a word; what is no word of the vocabulary is unknown."""

    bos_token_id, eos_token_id, unk_token_id = 0, 1, 2

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [*_SPECIAL, *dict.fromkeys((*_COMMON, *words))]
        self._ids = {word: n for n, word in enumerate(self._words)}

    def __len__(self) -> int:
        return len(self._words)

    def encode(self, text: str) -> list[int]:
        """The words' tokens, after the opening one."""
        return [self.bos_token_id, *(self._ids.get(word, self.unk_token_id) for word in text.split())]

    def decode(self, ids: Sequence[int]) -> str:
        """The words, separated by spaces."""
        return " ".join(self._words[n] for n in ids)

    def save_pretrained(self, folder: str) -> None:
        """The words in the order of their tokens, as `words.json`."""
        (Path(folder) / "words.json").write_text(json.dumps(self._words))


def tiny_model(vocabulary: int, seed: int, width: int = 32, layers: int = 2) -> Any:
    """A randomly initialised causal language model of transformers (Llama's architecture)."""
    torch, transformers = require("torch", "train"), require("transformers", "train")
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
    """Speaks with a tiny model: a step of a decision as a few words, and its words as the answer that step wants."""

    def __init__(self, menu: dict[str, str]) -> None:
        self._menu = menu

    def prompt(self, step: str, slots: dict[str, Any]) -> str:
        """The step, the latest failures by kind of edit, and, to select, the options."""
        failed = [name for f in slots.get("failures", ()) if (name := _name(f["experiment"])) in self._menu]
        options = [_name(o["hypothesis"]) for o in slots.get("options", ())]
        return " ".join(["failed", *failed[:3], *(["among", *options] if options else []), step])

    def grammar(self, step: str, slots: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
        """As many words as there shall be hypotheses, of the menu; one, of the options, to select."""
        if step == "select":
            return 1, tuple(_name(o["hypothesis"]) for o in slots["options"])
        return int(slots.get("count", 1)), tuple(self._menu)

    def reply(self, step: str, text: str, slots: dict[str, Any], seed: int) -> str:
        """JSON as a larger model would write it; words that make no answer stay as they are.

        The same kind of edit is another experiment each time it is drawn, so choices carry a number.
        """
        words = list(dict.fromkeys(word for word in text.split() if word in self._menu))
        if step == "generate" and words:
            lines = [f"{word}: {self._menu[word]}" for word in words[: int(slots["count"])]]
            return json.dumps({"hypotheses": [{"hypothesis": line} for line in lines]})
        options = {_name(o["hypothesis"]): o for o in slots.get("options", ())}
        chosen = next((options[word] for word in words if word in options), None)
        if step == "select" and chosen is not None:
            return json.dumps({"idea": chosen["idea"], "experiment": f"{chosen['hypothesis']} (draw {seed % 10**6})"})
        return text


def _name(line: str) -> str:
    return line.partition(":")[0]
