"""Examples marked in the documentation run as they stand, but for smaller budgets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name

RUNNABLE = [page for page in PAGES if any(block.mark for block in blocks(page))]
_SMALLER = ((r"\bevaluations=\d+", "evaluations=12"), (r"\bseconds=\d+", "seconds=2"))


def test_the_pages_that_promise_examples_have_some():
    assert {"README.md", "docs/quickstart.md", "docs/extending.md"} <= {name(page) for page in RUNNABLE}


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_marked_examples_run(page: Path, tmp_path: Path):
    """The blocks of a page share one folder, as its reader's do."""
    binaries = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),  # a checkout's: some examples use a server of tests/servers
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    for block in filter(lambda block: block.mark, blocks(page)):
        if block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.body, encoding="utf-8")
            continue
        program = {"python": [sys.executable, "-c"], "sh": ["bash", "-euc"]}[block.lang]
        answer = subprocess.run(
            [*program, _cut(block.body)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, f"{name(page)}:\n{block.body}\n{answer.stdout}\n{answer.stderr}"


def _cut(body: str) -> str:
    for pattern, smaller in _SMALLER:
        body = re.sub(pattern, smaller, body)
    return body
