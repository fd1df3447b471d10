"""The metric `speedup` in a container: scores are ratios of times.

Things that the image lacks are reported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extensions.timing.test_timing_speedup import CHEATS, HONEST, TOML, evaluate, write_task

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]
SLOW = HONEST.replace(
    "return [total(*problem)]", "total(*problem)\n        return [total(*problem)]"
)


def write_container_task(folder: Path, image: str, packages: str = "[]") -> Path:
    toml = TOML.replace("[limits]", f'image = "{image}"\npackages = {packages}\n[limits]')
    return write_task(folder, **{"task.toml": toml})


@pytest.mark.slow
def test_speedup_in_a_container_is_a_ratio_of_times_and_cheats_win_nothing(
    podman: str, tmp_path: Path
) -> None:
    programs = {"honest": HONEST, "slow": SLOW, **CHEATS}
    folder = write_container_task(tmp_path, podman)
    found = evaluate(folder, programs, level="container")
    assert found["honest"].ok, found["honest"].feedback
    scores = {name: found.pop(name).score or 0.0 for name in ("honest", "slow")}
    assert all(0.1 < score < 2.5 for score in scores.values()), scores  # about 1 and .5, unloaded
    fast = {name: CHEATS[name] for name, each in found.items() if (each.score or 0.0) > 2.5}
    again = evaluate(folder, fast, level="container") if fast else {}  # a load may do it once
    assert {name: each.score for name, each in again.items() if (each.score or 0.0) > 2.5} == {}


def test_a_package_that_the_image_lacks_is_to_be_installed_there(
    podman: str, tmp_path: Path
) -> None:
    folder = write_container_task(tmp_path, podman, '["sklearn"]')
    line = [
        sys.executable,
        "-m",
        "culmen.cli.main",
        "check",
        str(folder),
        "--isolation",
        "container",
    ]
    told = subprocess.run(
        line, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "400"}
    ).stderr
    assert "No module named 'sklearn'" in told
    assert f"install it into the image {podman}" in told
