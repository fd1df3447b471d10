"""The folder that a Slurm session shares: who may take a job, and what is cleared away."""

from __future__ import annotations

import os
from pathlib import Path

from culmen.cluster.slurm_worker import Spool


def made(place: Path, name: str = "0123456789abcdef") -> Spool:
    spool = Spool(place / name)
    spool.create_spool()
    spool.change_pulse("pulse")
    return spool


def test_only_admitted_workers_take_jobs_and_what_they_held_is_known_when_they_are_gone(tmp_path: Path):
    spool = made(tmp_path)
    for number in ("a-1", "a-2", "a-3"):
        spool.write_file(f"jobs/{number}", number.encode())
    assert spool.claim_job("a-1", "w1.x") is None and not spool.is_admitted("w1.x")
    spool.admit_worker("w1.x")
    spool.admit_worker("w2.x")
    assert spool.claim_job("a-1", "w1.x") == b"a-1" and spool.claim_job("a-1", "w2.x") is None
    assert spool.claim_job("a-2", "w1.x") == b"a-2"
    assert spool.remove_file("held/w1.x/a-2") and not spool.remove_file("held/w1.x/a-2")
    assert spool.expel_worker("w1.x") == ["a-1"]
    assert spool.claim_job("a-3", "w1.x") is None and spool.list_names("jobs") == ["a-3"]
    assert spool.expel_worker("w3.x") == []


def test_folders_that_nobody_needs_any_more_are_removed_and_others_are_not(tmp_path: Path):
    old, young, foreign = made(tmp_path, "a" * 16), made(tmp_path, "b" * 16), made(tmp_path, "results")
    for spool in (old, foreign):
        os.utime(spool.root / "pulse", (1.0, 1.0))
    made(tmp_path).remove_abandoned()
    assert not old.root.exists() and young.root.exists() and foreign.root.exists()
