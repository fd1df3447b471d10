"""Weights and tokenizer of a GGUF file (extra `train-gguf`), unpacked into a plain model that can be trained and saved.

transformers reads the file and unpacks its blocks; the model it returns counts as quantised, which neither saving nor
adapters take, so its weights move into a fresh one of the same configuration.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from culmen.core.errors import UserError
from culmen.train.engine import require

_EXTRA = "train-gguf"


def is_gguf(path: str) -> bool:
    """Whether `path` names a GGUF file rather than a model folder."""
    return path.lower().endswith(".gguf")


def load_tokenizer(path: str) -> Any:
    """transformers' tokenizer of a GGUF file."""
    return _load("AutoTokenizer", path)


def load_model(path: str) -> Any:
    """The model of a GGUF file: float32 on a CPU, bfloat16 for a GPU."""
    torch, transformers = require("torch", "train"), require("transformers", "train")
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


def _load(kind: str, path: str, **more: Any) -> Any:
    """By the class `kind` of transformers; raises `UserError` where file, architecture or package lack."""
    file = Path(path)
    if not file.is_file():
        raise UserError("there is no such GGUF file", where=str(file), fix="--set policy=FILE.gguf, or a model folder")
    require("gguf", _EXTRA)
    require("accelerate", _EXTRA)
    loader = getattr(require("transformers", "train"), kind)
    try:
        return loader.from_pretrained(str(file.parent), gguf_file=file.name, **more)
    except (OSError, ValueError, KeyError, NotImplementedError, struct.error) as error:
        said = (str(error).splitlines() or [""])[0]
        raise UserError(
            f"transformers cannot read this GGUF file: {said}",
            where=str(file),
            fix="a newer transformers, or the same model as a folder: --set policy=FOLDER",
        ) from error
