"""Small chat models as folders of transformers, made in code.

For tests of code that loads a policy by path.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from culmen.extensions.train.engine import import_extra
from culmen.extensions.train.models import tiny_model

_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} "
    "{% endfor %}{% if add_generation_prompt %}assistant{% endif %}"
)


def write_chat_model(folder: Path, words: Sequence[str], seed: int = 0) -> Path:
    """A randomly initialised language model of a few thousand weights, loadable by path.

    It has a tokenizer with a token for each word.
    """
    tokenizer(words).save_pretrained(folder)
    tiny_model(len(words) + 3, seed).save_pretrained(folder)
    return folder


def tokenizer(words: Sequence[str]) -> Any:
    """A tokenizer of transformers: words at spaces, a chat format in plain words.

    `<s>`, `</s>`, `<unk>` come first.
    """
    tokenizers, transformers = (
        import_extra("tokenizers", "train"),
        import_extra("transformers", "train"),
    )
    names = ["<s>", "</s>", "<unk>", *dict.fromkeys(words)]
    model = tokenizers.models.WordLevel(
        {name: n for n, name in enumerate(names)}, unk_token="<unk>"
    )
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    made.chat_template = _TEMPLATE
    return made
