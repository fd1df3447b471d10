"""The protobuf form of the Tinker API's larger messages.

Newer versions of its SDK send and expect it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

PROTO = "application/x-protobuf"
_TYPES = {1: np.float32, 2: np.int64, 3: np.int32}


def _messages() -> Any:
    """The SDK's own message classes."""
    return import_module("tinker.proto.tinker_public_pb2")


def forward_request(raw: bytes) -> dict[str, Any]:
    """A request for a forward pass, in the form it has as JSON."""
    asked = _messages().ForwardBackwardRequest.FromString(raw)
    data = [
        {
            "model_input": {
                "chunks": [
                    {"tokens": _numbers(c.encoded_text.tokens, 3)} for c in datum.model_input
                ]
            },
            "loss_fn_inputs": {
                name: {"data": _numbers(one.dense, one.dtype)}
                for name, one in datum.loss_fn_inputs.items()
            },
        }
        for datum in asked.data
    ]
    config = dict(asked.loss_fn_config) or None
    return {
        "model_id": asked.model_id,
        "forward_only": asked.forward_only,
        "forward_backward_input": {
            "data": data,
            "loss_fn": asked.loss_fn,
            "loss_fn_config": config,
        },
    }


def answer(kind: str, result: dict[str, Any]) -> bytes:
    """A sample or the outputs of a forward pass."""
    return (_sample if kind == "sample" else _forward)(result).SerializeToString()


def _sample(result: dict[str, Any]) -> Any:
    message = _messages().SampleResponse()
    for one in result["sequences"]:
        message.sequences.add(
            stop_reason=0 if one["stop_reason"] == "stop" else 1,
            tokens=np.asarray(one["tokens"], np.int32).tobytes(),
            logprobs=np.asarray(one["logprobs"], np.float32).tobytes(),
        )
    return message


def _forward(result: dict[str, Any]) -> Any:
    """Arrays of all data one after the other, with the places in bytes where each begins."""
    message = _messages().ForwardBackwardOutput(loss_fn_output_type=result["loss_fn_output_type"])
    message.metrics.update(result["metrics"])
    arrays = [np.asarray(one["logprobs"]["data"], np.float32) for one in result["loss_fn_outputs"]]
    record = message.loss_fn_outputs.add(num_datums=len(arrays))
    field = record.fields["logprobs"]
    field.data, field.dtype = b"".join(one.tobytes() for one in arrays), 1
    field.offsets = np.cumsum([0, *(one.nbytes for one in arrays)], dtype=np.int64).tobytes()
    return message


def _numbers(raw: bytes, kind: int) -> list[Any]:
    return np.frombuffer(raw, _TYPES[kind]).tolist()
