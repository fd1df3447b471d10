"""ShinkaEvolve's folders of results as pools: the programs of `programs.sqlite`."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from culmen.core.errors import UserError
from culmen.run.pools import Pool, PoolMember, PoolSource

DATABASE = "programs.sqlite"
_SUFFIXES = {  # of a program's file, by the language as the database has it
    "cuda": "cu",
    "fortran": "f90",
    "json5": "json",
    "julia": "jl",
    "markdown": "md",
    "python": "py",
    "rust": "rs",
    "wolfram": "wl",
}
_QUERY = (
    "SELECT code, language, combined_score FROM programs WHERE correct AND combined_score IS NOT "
    "NULL ORDER BY combined_score DESC, generation, id LIMIT ?"
)


def _database_of(path: Path) -> Path | None:
    """The database of a folder of results, or the file itself; None if it is none."""
    file = path / DATABASE if path.is_dir() else path
    return file if file.name == DATABASE and file.is_file() else None


def read_pool(path: Path, most: int = 1_000) -> Pool | None:
    """The correct programs, best first, `most` at most; their scores are claims.

    None for a place without such a database. Raises `UserError` for a file that is none.
    """
    file = _database_of(path)
    if file is None:
        return None
    try:
        address = f"{file.resolve().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            rows = connection.execute(_QUERY, (most,)).fetchall()
    except sqlite3.Error as error:
        raise UserError(
            f"this is no database of ShinkaEvolve: {error}",
            where=str(path),
            fix="name a folder of results",
        ) from None
    members = tuple(
        PoolMember(
            {f"initial.{_SUFFIXES.get(str(language), str(language))}": str(code)},
            float(score),
            1,
            source=0,
        )
        for code, language, score in rows
    )
    name = file.parent.name
    return Pool(name, "", "max", members, (PoolSource(name, "shinka-evolve"),))
