"""Control groups: the kernel holds a candidate and its children to the limit.

This is so where this process may make some groups.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from culmen.jail import fork_server, tree

# No tests of the mark jail, which must run where a jail is required: few machines let tests divide
# a control group.
CHILDREN = """
import os, time
def run():
    for _ in range(20):
        if os.fork() == 0:
            block = bytearray(60 << 20)
            time.sleep(30)
    time.sleep(30)
"""
MEASURE = """
import json, sys
from pathlib import Path
from culmen.core.task import Limits
from tests.evaluate.conftest import Grounds
import tempfile
class Folders:
    def mktemp(self, name): return Path(tempfile.mkdtemp())
level, program = sys.argv[1:]
grounds = Grounds(Folders(), shared=False)
limits = Limits(seconds=20.0, memory_mb=128, processes=32, files_mb=16)
arena = grounds("def score(output): return output\\n", level, limits)
honest = "import numpy\\ndef run(): return float(numpy.ones(3).sum())"
first = arena.one(honest)
group = arena.backend._jail._group
ended = arena.one(program)
peaks = [int(peak.read_text()) >> 20 for peak in group.glob("child-*/memory.peak")]
again = arena.one(honest)
grounds.close()
print(json.dumps([first.score, ended.reason, again.score, peaks, group.exists()]))
"""


@pytest.fixture
def delegated() -> Path:
    """A group that its only process may divide."""
    root = Path("/sys/fs/cgroup")
    try:
        if not {"memory", "pids"} <= set((root / "cgroup.controllers").read_text().split()):
            pytest.skip("no memory controller of cgroup v2")
        (root / "cgroup.subtree_control").write_text("+memory +pids")
        folder = root / f"culmen-test-{secrets.token_hex(4)}"
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    return folder


@pytest.mark.parametrize("level", ["namespaces", "restricted"])
def test_the_kernel_holds_all_processes_of_a_candidate_to_the_limit(
    delegated: Path, level: str
) -> None:
    enter = f"import os; open({str(delegated / 'cgroup.procs')!r}, 'w').write('0'); "
    run = f"os.execv({sys.executable!r}, [{sys.executable!r}, '-c', {MEASURE!r}, {level!r}, {CHILDREN!r}])"
    line = [sys.executable, "-c", enter + run]
    done = subprocess.run(line, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-2000:]
    first, reason, again, peaks, is_left = json.loads(done.stdout)
    assert (first, reason, again) == (3.0, "memory_limit", 3.0)
    assert all(peak <= (128 + 16 + 64) * 1.1 for peak in peaks), (
        peaks
    )  # files in memory, what Python itself has
    assert not is_left


def test_where_others_share_the_group_there_are_none() -> None:
    own = Path("/proc/self/cgroup").read_text()
    assert fork_server._delegated_group() is None  # whoever started the tests is in it, too
    assert Path("/proc/self/cgroup").read_text() == own
    assert tree.ChildGroups(-1).take(1024, 8) == "" and tree.ChildGroups(-1).kills("") == 0
