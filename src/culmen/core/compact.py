"""Numbers by name in little memory: what a long run must remember of everything that it ever met."""

from __future__ import annotations

from array import array

_LEAST = 64  # places of an empty table; always a power of two
_ZERO = 0x9E3779B97F4A7C15  # stands for the name 0, which marks a free place


class Numbers:
    """A map from names of 64 bits, the beginnings of digests, to whole numbers of 64 bits.

    24 to 48 bytes an entry, by how full the table is. Open addressing with linear probing (Knuth, The Art of Computer
    Programming, Volume 3, Section 6.4): names are digests, so they lie scattered.
    """

    __slots__ = ("_count", "_mask", "_names", "_numbers")

    def __init__(self) -> None:
        self._count = 0
        self._lay_out(_LEAST)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: int) -> bool:
        return self._names[self._place(name or _ZERO)] != 0

    def get(self, name: int, default: int = -1) -> int:
        """The number under this name."""
        place = self._place(name or _ZERO)
        return self._numbers[place] if self._names[place] else default

    def put(self, name: int, number: int = 0) -> None:
        """Enter a number under this name, or another number under a known one."""
        name = name or _ZERO
        place = self._place(name)
        if not self._names[place]:
            self._count += 1
            if 3 * self._count > 2 * self._mask:
                self._grow()
                place = self._place(name)
            self._names[place] = name
        self._numbers[place] = number

    def _place(self, name: int) -> int:
        """Where the name is, or the free place where it would be."""
        names, mask = self._names, self._mask
        place = name & mask
        while (there := names[place]) and there != name:
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        names, numbers = self._names, self._numbers
        self._lay_out(2 * (self._mask + 1))
        for name, number in zip(names, numbers):
            if name:
                place = self._place(name)
                self._names[place], self._numbers[place] = name, number

    def _lay_out(self, places: int) -> None:
        self._mask = places - 1
        self._names, self._numbers = array("Q", bytes(8 * places)), array("q", bytes(8 * places))


def name_of(digest: str) -> int:
    """The name of what has this digest (or a candidate's id): its first 16 hex digits as a number."""
    return int(digest[:16], 16)
