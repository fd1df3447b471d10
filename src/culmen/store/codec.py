"""Plain data to bytes and back, without losing what JSON cannot say.

The fast path is msgspec's JSON. Lone surrogates, NaN and the infinities are legal in Python and in what candidates and
models send, but not in JSON; such a document is written escaped, behind the prefix `~`, and comes back exactly.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder()
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}  # by type: looking at a type costs more than a small document
_ESCAPED = b"~"
_UNSAFE = re.compile("[\x00\x1b\ud800-\udfff]")
_CODE = re.compile("\x1b([0-9a-f]{4})")


def escape(text: str) -> str:
    """The text without NUL and lone surrogates: each becomes ESC and four hex digits, as does ESC itself."""
    if text.isascii() and "\x00" not in text and "\x1b" not in text:
        return text
    return _UNSAFE.sub(lambda found: f"\x1b{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return _CODE.sub(lambda found: chr(int(found[1], 16)), text) if "\x1b" in text else text


def encode(value: Any) -> bytes:
    """Structs and plain data as JSON, escaped where JSON cannot hold them."""
    try:
        raw = _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ESCAPED + _ENCODER.encode(_guard(msgspec.to_builtins(value)))
    if b"null" in raw:  # msgspec writes NaN and the infinities as null
        plain = msgspec.to_builtins(value)
        if _has_odd_float(plain):
            return _ESCAPED + _ENCODER.encode(_guard(plain))
    return raw


def decode(raw: bytes, kind: type[T] | Any = Any) -> T:
    """The inverse of `encode`; raises `msgspec.DecodeError` on damaged bytes."""
    if raw[:1] == _ESCAPED:
        return msgspec.convert(_release(msgspec.json.decode(raw[1:])), kind)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    return decoder.decode(raw)


def text_bytes(text: str) -> bytes:
    """UTF-8, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(raw: bytes) -> str:
    """The inverse of `text_bytes`."""
    return raw.decode("utf-8", "surrogatepass")


def _has_odd_float(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_odd_float(item) for item in value.values())
    return isinstance(value, list | tuple) and any(map(_has_odd_float, value))


def _guard(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"\x1b[{value}]"
    if isinstance(value, dict):
        return {_guard(key): _guard(item) for key, item in value.items()}
    return [_guard(item) for item in value] if isinstance(value, list | tuple) else value


def _release(value: Any) -> Any:
    if isinstance(value, str):
        return float(value[2:-1]) if value.startswith("\x1b[") else unescape(value)
    if isinstance(value, dict):
        return {_release(key): _release(item) for key, item in value.items()}
    return [_release(item) for item in value] if isinstance(value, list) else value
