"""Embedders."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.errors import Unavailable, UserError
from culmen.models.embed import HashingEmbedder, make_embedder
from culmen.models.embed.models import RemoteEmbedder
from culmen.models.roles import ModelBook
from tests.servers.openai_server import OpenAIServer

# The golden digest changes only together with the version in the embedder's name.
SAMPLE = "def f(x):\n    return x + 1  # größer\n"
GOLDEN = "5267829a35b6c02e48eeb23052713ed4cf104584d95c6b200627ef5280209791"


def distance(a: str, b: str) -> float:
    rows = HashingEmbedder().embed([a, b]).astype(np.float64)
    return float(np.linalg.norm(rows[0] - rows[1]))


def test_golden_vector_is_the_same_everywhere() -> None:
    code = (
        "from culmen.models.embed import HashingEmbedder as H; import hashlib;"
        f"print(hashlib.sha256(H().embed([{SAMPLE!r}]).astype('<f4').tobytes()).hexdigest())"
    )
    here = hashlib.sha256(HashingEmbedder().embed([SAMPLE]).astype("<f4").tobytes()).hexdigest()
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
        assert out.stdout.decode().strip() == here
    assert here == GOLDEN


def test_distances_follow_edits() -> None:
    program = Path(__file__).read_text(encoding="utf-8")
    small = program.replace("program", "text", 1)
    assert distance(program, program) == 0.0
    assert 0 < distance(program, small) < 0.1
    assert (
        distance(program, small)
        < distance(program, program[: len(program) // 2])
        < distance(program, "hello there")
    )
    assert 0 < distance("x = 1.0", "x = 1.5") < distance("x = 1.0", "return y")


def test_white_space_does_not_count_but_order_does() -> None:
    assert distance("a  =\n\n b", "a = b") == 0.0
    assert distance("a - b", "b - a") > 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=300), min_size=1, max_size=5), st.sampled_from([2, 64, 256]))
def test_shape_length_and_independence_of_the_batch(texts: list[str], width: int) -> None:
    embedder = HashingEmbedder(width)
    rows = embedder.embed(texts)
    assert rows.shape == (len(texts), width) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1.0, atol=1e-6)
    for row, text in zip(rows, texts, strict=True):
        assert np.array_equal(row, embedder.embed([text])[0])


def test_nothing_and_much() -> None:
    embedder = HashingEmbedder()
    assert embedder.embed([]).shape == (0, 256)
    assert embedder.embed(["", " \n"])[:, 0].tolist() == [1.0, 1.0]
    assert np.isfinite(embedder.embed(["x" * 300_000, "\ud800\0"])).all()


def test_names() -> None:
    assert make_embedder().name == "hashing-256-v1" == make_embedder("hashing-256-v1").name
    assert make_embedder("hashing-512").name == "hashing-512-v1"
    assert make_embedder("local:some/model").name == "local:some/model"
    assert make_embedder("openai/text-embedding-3-small").name == "openai/text-embedding-3-small"
    for wrong in ("hashing-100", "magic", "nobody/x"):
        with pytest.raises(UserError):
            make_embedder(wrong)


def test_local_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UserError, match="pip install"):
        make_embedder("local").embed(["x"])


def remote(tmp_path: Path, server: OpenAIServer) -> RemoteEmbedder:
    file = tmp_path / "m.toml"
    provider = (
        f'base_url = "{server.url}"\nkey_env = "TEST_KEY"\nbase = 0.01\ncap = 0.05\npatience = 20\n'
    )
    file.write_text(
        f'[providers.p]\n{provider}[models.e]\nprovider = "p"\nmodel = "emb"\nprice = {{input=1, output=0}}\n'
    )
    return RemoteEmbedder(ModelBook(file).model("e"), batch=3)


def test_remote_in_batches_with_faults(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(10)]
    with OpenAIServer(faults=["500", "html", "cut"], width=16) as server:
        embedder = remote(tmp_path, server)
        rows, usage = embedder.embed_with_usage(texts)
        again = embedder.embed(texts[::-1])
    assert rows.shape == (10, 16) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert np.array_equal(rows, again[::-1])  # the server sends them in another order
    assert usage.calls == 6 and usage.unpriced == 2 and usage.input_tokens > 0
    assert embedder.embed([]).shape[0] == 0


def test_remote_that_never_works(tmp_path: Path) -> None:
    with OpenAIServer(faults=["html"] * 50) as server:
        with pytest.raises(Unavailable, match="no embeddings from p/emb"):
            remote(tmp_path, server).embed(["x"])
