"""Texts of a run in few bytes: compressed, with an earlier text of their kind as dictionary.

The prompts of a run are alike, and so are its programs: most of a text stands in the one before.
Dictionaries are rows of the table `dictionary`, whose numbers the rows of `blob` name (0: none).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from culmen.store.sql import Connection

_LEAST = 256  # bytes of a text that may be a dictionary: shorter ones share little
_LASTS = 200  # texts after which a kind gets a new dictionary, since prompts and programs move on


class Dictionary(NamedTuple):
    """A text of a kind, by number; `uses` texts were compressed with it so far."""

    number: int
    kind: str
    text: bytes
    uses: int = 0


class Packer:
    """Compresses the texts of one append after another.

    A copy compresses those of one append and takes the original's place once they are durable:
    no text may depend on a dictionary that was not stored.
    """

    def __init__(self, newest: Iterable[Dictionary] = (), last: int = 0) -> None:
        self._newest = {each.kind: each for each in newest}
        self._last = last
        self.added: list[Dictionary] = []

    @classmethod
    def load(cls, connection: Connection) -> Packer:
        """The packer of a run that is written further."""
        query = (
            "SELECT number, kind, data FROM dictionary WHERE number IN "
            "(SELECT max(number) FROM dictionary GROUP BY kind)"
        )
        rows = connection.execute(query).all()
        found = [Dictionary(number, kind, decompress(data)) for number, kind, data in rows]
        readable = (each for each in found if each.text)
        return cls(readable, max((each.number for each in found), default=0))

    def copy(self) -> Packer:
        """A packer with the same dictionaries, none of them added."""
        return Packer(self._newest.values(), self._last)

    def pack(self, kind: str, text: bytes) -> tuple[int, bytes]:
        """The number of the dictionary, and the compressed text."""
        found = self._newest.get(kind)
        if len(text) >= _LEAST and (found is None or found.uses >= _LASTS):
            self._last += 1
            # bytes that DEFLATE looks back (RFC 1951)
            found = Dictionary(self._last, kind, text[:32_768])
            self.added.append(found)
        if found is None:
            return 0, compress(text)
        self._newest[kind] = found._replace(uses=found.uses + 1)
        return found.number, compress(text, found.text)


def compress(text: bytes, dictionary: bytes = b"") -> bytes:
    """The text compressed, without a checksum: texts are known by their hashes."""
    # zlib's level: higher ones save a tenth of the bytes for twice the time
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=dictionary)
    return packer.compress(text) + packer.flush()


def decompress(data: bytes, dictionary: bytes = b"") -> bytes:
    """The inverse of `compress`; b"" for damaged bytes, whose hash then differs."""
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS, zdict=dictionary).decompress(data)
    except zlib.error:
        return b""
