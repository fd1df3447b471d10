"""Columns of all candidates, in the order of appearance, for the table of candidates."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from culmen.store import columns
from culmen.store.codec import escape_text
from culmen.store.sql import Connection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from culmen.store.evidence import Scores

    Places = NDArray[np.int64]
    Column = columns.Array


class TableColumns:
    """Arrays with a value for each candidate; each column is read when it is first needed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read: columns.Columns = {}

    def __len__(self) -> int:
        return len(self.column("seq"))

    def column(self, name: str) -> Column:
        """A column of the table `candidate`; of texts with few values, places in `texts`."""
        if name not in self._read:
            self._read |= columns.read_columns(self._connection, columns.CANDIDATES, name)
        return self._read[name]

    def texts(self, name: str) -> list[str]:
        """The different texts of a column with few values."""
        self.column(name)
        return self._read[f"{name}+"].tolist()

    def ids_at(self, places: Places) -> list[str]:
        """Ids of the candidates at these places, escaped as in the tables."""
        return [name.decode() for name in self.column("id")[places].tolist()]

    def tally(self, name: str) -> Column:
        """A column of `tally`: 0, or -1 for `first` and `trust`, for a candidate without one."""
        import numpy as np

        places, tallies = self._tallies
        values = tallies[name]
        found = np.full(len(self), -1 if name in ("first", "trust") else 0, values.dtype)
        found[places[places >= 0]] = values[places >= 0]
        return found

    def ranks(self, scores: Scores) -> Column:
        """The rank of each candidate; of those that cannot be the best, one behind all."""
        import numpy as np

        keys, ranks = scores.ranks()
        places = self._places_of(keys)
        found = np.full(len(self), scores.ranked_count)
        found[places[places >= 0]] = ranks[places >= 0]
        return found

    def places_with(self, text: str) -> Column:
        """True for candidates with this text in id, parents, operator or model, in any case."""
        import numpy as np

        texts = ("id", "parents", "operator", "model")
        sought = (self._connection.contains(f"lower({each})", "lower(:text)") for each in texts)
        query = f"SELECT id FROM candidate WHERE {' OR '.join(sought)}"
        found = self._connection.execute(query, text=escape_text(text)).scalars()
        names = [name.encode() for name in found]
        return np.isin(self.column("id"), np.array(names, "S"))

    @cached_property
    def _tallies(self) -> tuple[Places, columns.Columns]:
        """All tallies, and the place of the candidate of each (-1: none)."""
        tallies = columns.read_columns(self._connection, columns.TALLIES)
        return self._places_of(tallies["key"]), tallies

    def _places_of(self, keys: Column) -> Places:
        """Places of the candidates with these keys, -1 for unknown ones."""
        import numpy as np

        if not len(self):
            return np.full(len(keys), -1)
        own, asked = self._key_order, np.argsort(keys)  # both in order: memory is read in order
        known = self.column("key")[own]
        at = np.minimum(np.searchsorted(known, keys[asked]), len(known) - 1)
        found = np.full(len(keys), -1)
        found[asked] = np.where(known[at] == keys[asked], own[at], -1)
        return found

    @cached_property
    def _key_order(self) -> Places:
        import numpy as np

        return np.argsort(self.column("key"))


def text_words(values: Column) -> list[Column]:
    """Fixed-width byte texts as numbers of 64 bits, the first ones first, that sort alike."""
    import numpy as np

    width = -(-values.dtype.itemsize // 8) * 8
    words = values.astype(f"S{width}").view(">u8").reshape(len(values), width // 8)
    return [words[:, number].astype(np.uint64) for number in range(width // 8)]


def text_ranks(texts: list[str]) -> Column:
    """The rank of each of these texts among them."""
    import numpy as np

    ranks = {text: rank for rank, text in enumerate(sorted(texts))}
    return np.array([ranks[text] for text in texts], np.int64)


def float_ranks(values: Column) -> Column:
    """Whole numbers that sort as these floats do."""
    import numpy as np

    raw = (values + 0.0).view(np.int64)  # -0.0 becomes 0.0
    return np.where(raw < 0, np.iinfo(np.int64).min - raw - 1, raw)
