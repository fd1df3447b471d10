"""Pictures as feedback: PNG and JPEG files as texts, and their limits of size.

The texts are data URLs: `data:image/png;base64,...`.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
from collections.abc import Mapping
from typing import cast

MOST = 4  # pictures of one evaluation
BYTES = 256 * 1024  # of all pictures of one evaluation
PIXELS = 4_000_000  # of one picture
SHOWN = 3  # pictures that one request to a model shows
_HEADS = {"png": "data:image/png;base64,", "jpeg": "data:image/jpeg;base64,"}
_PIXELS_A_TOKEN, _FRAME = 700, 100  # providers count about one token for 750 pixels


def is_picture(text: str) -> bool:
    """True if an artifact is a picture."""
    return text.startswith(tuple(_HEADS.values()))


def encode_picture(image: object) -> str:
    """The bytes of a PNG or JPEG file, or the file at a path, as a text.

    Raises `ValueError` with the reason if it is not an acceptable picture.
    """
    if isinstance(image, bytes | bytearray):
        data = bytes(image)
    elif not isinstance(image, str | os.PathLike):
        raise ValueError(f"it cannot be read: a {type(image).__name__} is not a path")
    else:
        try:
            with open(os.fspath(image), "rb") as stream:
                data = stream.read(BYTES + 1)
        except (OSError, ValueError) as error:
            raise ValueError(f"it cannot be read: {error}") from None
    kind, wide, high = read_picture_header(data)
    if len(data) > BYTES:
        raise ValueError(f"it has more than {BYTES // 1024} KiB")
    if wide * high > PIXELS:
        raise ValueError(f"it has {wide} × {high} pixels, more than {PIXELS:,}")
    return _HEADS[kind] + base64.b64encode(data).decode("ascii")


def decode_picture(text: str) -> bytes:
    """The file's bytes. Raises `ValueError` if the text is not a picture."""
    try:
        return base64.b64decode(text.partition(",")[2], validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"it is not a picture: {error}") from None


def read_picture_header(data: bytes) -> tuple[str, int, int]:
    """Kind (png, jpeg), width and height in pixels, from the file's header.

    Raises `ValueError` for any other file.
    """
    if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR" and len(data) >= 33:
        wide, high = struct.unpack(">II", data[16:24])
    elif data[:3] == b"\xff\xd8\xff":
        wide, high = _jpeg_size(data)
    else:
        raise ValueError("it is neither a PNG nor a JPEG file")
    if not (wide and high):
        raise ValueError("it has no pixels")
    return ("png" if data[0] == 0x89 else "jpeg"), wide, high


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height from the frame header (ITU T.81, B.2.2)."""
    offset = 2
    while offset + 9 < len(data) and data[offset] == 0xFF:
        marker, length = data[offset + 1], int.from_bytes(data[offset + 2 : offset + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            high, wide = struct.unpack(">HH", data[offset + 5 : offset + 9])
            return wide, high
        offset += 2 + max(length, 2)
    raise ValueError("it is not a complete JPEG file")


def picture_tokens(text: str) -> int:
    """Approximate number of tokens that a model counts for a picture."""
    _, wide, high = read_picture_header(decode_picture(text))
    return wide * high // _PIXELS_A_TOKEN + _FRAME


def picture_artifacts(images: object) -> dict[str, str]:
    """The `images` an evaluator returned (one, a list, or a mapping of names) as artifacts.

    An unacceptable picture becomes a text with the reason, and has no other effect.
    """
    named: Mapping[object, object]
    if isinstance(images, Mapping):
        named = cast("Mapping[object, object]", images)
    else:
        several: list[object] = [*images] if isinstance(images, list | tuple) else [images]
        named = {f"image {number}": image for number, image in enumerate(several, 1)}
    artifacts: dict[str, str] = {}
    left = BYTES
    for number, (name, image) in enumerate(named.items()):
        if number >= MOST:
            artifacts["images left out"] = (
                f"{len(named) - MOST} more than the {MOST} an evaluation may return"
            )
            break
        try:
            text = encode_picture(image)
            size = len(text) * 3 // 4
            if size > left:
                raise ValueError(f"the images of one evaluation have more than {BYTES // 1024} KiB")
            left, artifacts[str(name)] = left - size, text
        except ValueError as error:
            artifacts[str(name)] = f"not shown, the evaluator's image was refused: {error}"
    return artifacts


def check_pictures(texts: Mapping[str, str]) -> dict[str, str]:
    """Artifacts from elsewhere, their pictures checked.

    Pictures that are invalid, too many or too large become texts with the reason.
    """
    pictures = {name: text for name, text in texts.items() if is_picture(text)}
    if not pictures:
        return dict(texts)
    raw: dict[str, object] = {}
    for name, text in pictures.items():
        try:
            raw[name] = decode_picture(text)
        except ValueError:
            raw[name] = b""
    return {
        **{name: text for name, text in texts.items() if name not in pictures},
        **picture_artifacts(raw),
    }
