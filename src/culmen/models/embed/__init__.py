"""Embedders: maps from texts to vectors.

Vectors of embedders with different names are not comparable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from culmen.core.ports import Embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from culmen.core.ports import Embedder

    IndexArray = NDArray[np.integer]
    HashArray = NDArray[np.uint64]


def make_embedder(name: str = "hashing", models_file: str | None = None) -> Embedder:
    """The embedder of this name; raise `UserError` for an unknown name.

    hashing, hashing-512, hashing-256-v1    weight-free n-grams (default: 256 buckets)
    local, local:MODEL                      sentence-transformers on this machine
    unixcoder, unixcoder:MODEL              UniXcoder on this machine, for programs
    PROVIDER/MODEL, or a models file's name an OpenAI-compatible endpoint,
                                            e.g. openai/text-embedding-3-small
    """
    from culmen.core.errors import UserError

    hashing = re.fullmatch(r"hashing(?:-(\d+))?(?:-v1)?", name)
    if hashing:
        try:
            return HashingEmbedder(int(hashing[1] or 256))
        except ValueError as error:
            raise UserError(str(error), where=f"embedder {name}") from None
    kind, _, model = name.partition(":")
    if kind == "local":
        from culmen.models.embed.models import LocalEmbedder

        return LocalEmbedder(model) if model else LocalEmbedder()
    if kind == "unixcoder":
        from culmen.models.embed.models import UnixcoderEmbedder

        return UnixcoderEmbedder(model) if model else UnixcoderEmbedder()
    if "/" not in name and models_file is None:
        raise UserError(
            f"unknown embedder '{name}'",
            where="embedder",
            fix="use hashing, local:MODEL, unixcoder or PROVIDER/MODEL",
        )
    from culmen.models.embed.models import RemoteEmbedder
    from culmen.models.roles import ModelBook

    return RemoteEmbedder(ModelBook(models_file).model(name))


# Embeddings without weights: signed hashing of character and token n-grams into a fixed number of
# buckets.
#
# The hashing trick of Weinberger et al., "Feature Hashing for Large Scale Multitask Learning"
# (2009), section 2, over byte 4- and 6-grams, tokens and token pairs. All arithmetic before the
# last square root is exact on integers, so that a text has the same vector on every machine.

_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_MIX = 0xD6E8FEB86659FD93
_MASK = 2**64 - 1
_GRAMS = (4, 6)
_TOKEN_WEIGHT = 2  # a token is more informative than a piece of one


class HashingEmbedder(Embedder):
    """Feature hashing into `width` (a power of two) signed buckets.

    An entry is the signed square root of its bucket's sum; rows have length 1. Equal texts have
    distance 0; the distance grows with the share of n-grams that differ. Texts without content
    map to the first unit vector.
    """

    is_instant = True

    def __init__(self, width: int = 256) -> None:
        if width < 2 or width & (width - 1):
            raise ValueError(f"width must be a power of two, not {width}")
        self.width = width
        self.name = f"hashing-{width}-v1"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Array of shape (len(texts), width), float32."""
        import numpy as np

        rows = np.zeros((len(texts), self.width), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = self._text_vector(text)
        return rows

    def _text_vector(self, text: str) -> NDArray[np.float64]:
        import numpy as np

        data = np.frombuffer(text.encode("utf-8", "replace"), dtype=np.uint8)
        sums = np.zeros(self.width)
        for hashes, weight in _hashed_features(data):
            mixed = (hashes ^ (hashes >> np.uint64(32))) * np.uint64(_MIX)
            buckets = (mixed >> np.uint64(64 - self.width.bit_length())).view(
                np.int64
            )  # bucket, then one bit of sign
            counts = np.bincount(buckets, minlength=2 * self.width)
            sums += weight * (counts[0::2] - counts[1::2])
        size = np.abs(sums).sum()  # = the squared length once square roots are taken
        if size == 0:
            sums[0] = size = 1.0
        return np.sign(sums) * np.sqrt(np.abs(sums) / size)


def _hashed_features(data: NDArray[np.uint8]) -> list[tuple[HashArray, int]]:
    """(hashes, weight) of each kind of feature.

    `data` are the text's bytes, shape (n,).
    """
    import numpy as np

    classes, powers, inverses = _byte_classes(), *_base_powers(data.size + 1)
    kinds = classes[data]
    is_visible = kinds > 0
    # runs of space become one
    text = data[is_visible | np.concatenate(([False], is_visible[:-1]))] if data.size else data
    text = np.where(classes[text] > 0, text, np.uint8(32)).astype(np.uint64) + np.uint64(1)
    prefix = np.concatenate(
        (np.zeros(1, np.uint64), np.cumsum(text * powers[: text.size], dtype=np.uint64))
    )

    def spans(starts: IndexArray, ends: IndexArray) -> HashArray:
        return (prefix[ends] - prefix[starts]) * inverses[starts]

    features: list[tuple[HashArray, int]] = []
    for n in _GRAMS:
        starts = np.arange(max(0, text.size - n + 1))
        features.append((spans(starts, starts + n) + np.uint64(n), 1))
    tokens = spans(*_token_spans(classes[(text - np.uint64(1)).astype(np.uint8)]))
    features.append((tokens, _TOKEN_WEIGHT))
    features.append(
        (tokens[:-1] * np.uint64(_BASE) + (tokens[1:] ^ np.uint64(_MIX)), _TOKEN_WEIGHT)
    )
    return features


def _token_spans(kinds: NDArray[np.uint8]) -> tuple[IndexArray, IndexArray]:
    """Starts and ends of tokens.

    A token is a run of word characters, or any other visible character alone.
    """
    import numpy as np

    previous = np.concatenate((np.zeros(1, kinds.dtype), kinds[:-1]))
    starts = np.flatnonzero((kinds == 2) | ((kinds == 1) & (previous != 1)))
    following = np.concatenate((kinds[1:], np.zeros(1, kinds.dtype))) if kinds.size else kinds
    ends = np.flatnonzero((kinds == 2) | ((kinds == 1) & (following != 1))) + 1
    return starts, ends


@cache
def _byte_classes() -> NDArray[np.uint8]:
    """Class of each byte, shape (256,).

    0: white space and control; 1: word (letters, digits, _, all of non-ASCII); 2: the rest.
    """
    import numpy as np

    return np.array(
        [
            1 if b >= 128 or chr(b).isalnum() or b == 95 else 2 if 33 <= b < 127 else 0
            for b in range(256)
        ],
        dtype=np.uint8,
    )


_tables: list[HashArray] = []


def _base_powers(size: int) -> tuple[HashArray, HashArray]:
    """Powers of the base and of its inverse modulo 2**64, at least `size` of each.

    The tables are kept; they grow by doubling.
    """
    import numpy as np

    if not _tables or _tables[0].size < size:
        length = 1 << max(12, size.bit_length())
        tables: list[HashArray] = []
        for base in (_BASE, pow(_BASE, -1, 2**64)):
            factors = np.full(length, base & _MASK, dtype=np.uint64)
            factors[0] = 1
            tables.append(np.cumprod(factors, dtype=np.uint64))
        _tables[:] = tables
    return _tables[0], _tables[1]
