"""The folder that a Slurm session shares: beats, and files that are cleared away."""

from __future__ import annotations

import os
from pathlib import Path

from culmen.extensions.cluster.slurm_worker import LAPSE, Spool


def made(place: Path, name: str = "culmen-01234567") -> Spool:
    spool = Spool(place / name)
    spool.create_spool()
    spool.write_beat("driver", b"terms")
    return spool


def test_a_side_is_silent_from_its_last_change_on_and_a_failed_look_is_no_change(tmp_path: Path):
    spool, other = made(tmp_path), Spool(tmp_path / "culmen-01234567")
    assert other.seconds_silent("driver") == 0.0 < other.seconds_silent("driver")
    silent = other.seconds_silent("driver")
    spool.remove_file("driver")
    assert other.read_beat("driver") is None and other.seconds_silent("driver") > silent
    spool.write_beat("driver", b"new")
    beat = other.read_beat("driver")
    assert beat is not None and 0.0 < beat[0] < LAPSE and beat[1] == b"new"
    assert other.seconds_silent("driver") == 0.0
    assert spool.list_names("in") == [] and spool.list_names("in/worker") is None


def test_folders_that_nobody_needs_any_more_are_removed_and_others_are_not(tmp_path: Path):
    old, young, foreign = (
        made(tmp_path, name) for name in ("culmen-aaaaaaaa", "culmen-bbbbbbbb", "results")
    )
    for spool in (old, foreign):
        os.utime(spool.root / "driver", (1.0, 1.0))
    users = tmp_path / "culmen-training"
    users.mkdir()
    (users / "driver").write_text("a file of the user's")
    os.utime(users / "driver", (1.0, 1.0))
    made(tmp_path).remove_abandoned()
    assert (
        not old.root.exists() and young.root.exists() and foreign.root.exists() and users.exists()
    )
