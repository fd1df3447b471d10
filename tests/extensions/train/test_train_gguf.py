"""The error for a GGUF file that cannot be the policy.

A real one is in test_train_smollm.py.
"""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'train' is not installed")
gguf = pytest.importorskip("gguf", reason="the extra 'train-gguf' is not installed")

from culmen.core.errors import UserError  # noqa: E402
from culmen.extensions.train.models import load_model, load_tokenizer  # noqa: E402


def test_no_file_and_no_package_are_said_with_what_to_do(tmp_path, monkeypatch):
    file = tmp_path / "none.gguf"
    with pytest.raises(UserError, match="no such GGUF file") as caught:
        load_model(str(file))
    assert str(file) in caught.value.where and "policy=" in caught.value.fix
    file.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UserError, match="needs gguf") as caught:
        load_tokenizer(str(file))
    assert "culmen[train-gguf]" in caught.value.fix


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
def test_an_unknown_architecture_and_a_broken_file_are_named(load, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "nonsense")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    (tmp_path / "torn.gguf").write_bytes(b"GGUF and then nothing")
    for name in ("odd.gguf", "torn.gguf"):
        with pytest.raises(UserError, match="cannot read this GGUF file") as caught:
            load(str(tmp_path / name))
        assert name in caught.value.where and "FOLDER" in caught.value.fix
