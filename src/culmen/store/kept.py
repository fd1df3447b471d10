"""Readings of a long run's journal, kept in RUN/kept: a cache, never the truth.

Files are as safe as a checkpoint: they are read only if this user's culmen wrote them with the same
code, and if the journal still has the event that they follow. The folder may be deleted.
"""

from __future__ import annotations

import hashlib
import pickle
from contextlib import suppress
from pathlib import Path

from culmen.core.errors import CulmenError
from culmen.store.sidecar import CheckpointFile, StoredCheckpoint

FOLDER = "kept"
"""Name of the folder in a run's folder."""

LONG = 8_000
"""Evaluations from which a run's readings are kept: shorter ones are made anew as quickly."""

EVENTS = 4 * LONG
"""Events of such a run."""

TOLD = 2_000
"""Events from which a run's end keeps what its story reads: to read it takes a fiftieth of it."""


def load_kept(run: Path, run_id: str, name: str) -> StoredCheckpoint | None:
    """The event that a kept value follows, and the value; None if there is none that fits."""
    found = _kept_file(run, run_id, name).read() if (run / FOLDER).is_dir() else None
    return None if found is None else found._replace(state=pickle.loads(found.state))


def save_kept(run: Path, run_id: str, name: str, seq: int, value: object) -> None:
    """Keep a value that follows from the journal up to event `seq`.

    Nothing is kept of a value that cannot be pickled, or if the run's folder cannot be written.
    """
    file = _kept_file(run, run_id, name)
    with suppress(OSError, CulmenError, pickle.PicklingError, TypeError, AttributeError):
        (run / FOLDER).mkdir(exist_ok=True)
        file.write(seq, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def _kept_file(run: Path, run_id: str, name: str) -> CheckpointFile:
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return CheckpointFile(run, run_id, f"{FOLDER}/{digest}")
