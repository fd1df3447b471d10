"""UniXcoder's loading and pooling on a small model with random weights, made here.

The model has UniXcoder's architecture. Skipped without
torch and transformers (the extra `local-embeddings`): what it loads in earnest is a download.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from culmen.core.errors import UserError
from culmen.models.embed.models import LocalEmbedder, UnixcoderEmbedder, token_windows

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<encoder-only>"]


def small_model(folder: Path) -> Path:
    """RoBERTa with two layers of width 32, as files.

    With a tokenizer of single bytes and UniXcoder's special tokens.
    """
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    letters = [
        chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))
    ]  # printable bytes as themselves
    letters += [chr(256 + n) for n in range(68)]  # and the rest as byte-level BPE writes them
    folder.mkdir()
    (folder / "vocab.json").write_text(
        json.dumps({token: n for n, token in enumerate([*SPECIAL, *letters])})
    )
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = transformers.RobertaTokenizer.from_pretrained(str(folder))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<encoder-only>"]})
    tokenizer.save_pretrained(str(folder))
    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    config = transformers.RobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=1026,
        type_vocab_size=10,
        pad_token_id=1,
        **shape,
    )
    transformers.RobertaModel(config).save_pretrained(str(folder))
    return folder


def test_a_small_model_is_loaded_and_pooled(tmp_path: Path) -> None:
    made = UnixcoderEmbedder(str(small_model(tmp_path / "model")), device="cpu", batch=2)
    long = "x = [" + ", ".join(map(str, range(400))) + "]\n"
    texts = ["def f():\n    return 1\n", "class A: pass\n", "def f():\n    return 1\n", long, ""]
    found = made.embed(texts)
    assert found.shape == (5, 32) and found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    assert np.allclose(found[0], found[2], atol=1e-5) and not np.allclose(
        found[0], found[1], atol=1e-3
    )
    for row, text in zip(found, texts):  # neither neighbours nor padding matter
        assert np.allclose(made.embed([text])[0], row, atol=1e-5)
    torch, tokenizer, model = made._load_unixcoder()
    ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(texts[0]))
    row = [0, tokenizer.convert_tokens_to_ids("<encoder-only>"), 2, *ids, 2]
    with torch.inference_mode():
        mean = model(torch.tensor([row]))[0][0].mean(0).double().numpy()
    assert np.allclose(mean / np.linalg.norm(mean), found[0], atol=1e-5)


def test_long_programs_are_read_in_windows() -> None:
    assert token_windows(range(10), 4, 8) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert token_windows(range(10), 4, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert token_windows([], 4, 8) == [[]]


def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="cannot load the model"):
        UnixcoderEmbedder(str(tmp_path / "empty")).embed(["x"])


def test_sentence_transformers_loads_such_a_model(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    made = LocalEmbedder(str(small_model(tmp_path / "model")), device="cpu")
    found = made.embed(["def f(): pass", "class A: pass", "def f(): pass"])
    assert found.shape == (3, 32) and np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    assert np.allclose(found[0], found[2], atol=1e-5) and not np.allclose(
        found[0], found[1], atol=1e-3
    )
