"""Examples marked in the documentation run as printed, except for smaller budgets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, cut_budgets, links, name

RUNNABLE = [page for page in PAGES if any(block.mark for block in blocks(page))]


def test_the_pages_that_promise_examples_have_some():
    assert {"README.md", "docs/quickstart.md", "docs/extending.md", "docs/skills.md"} <= {
        name(page) for page in RUNNABLE
    }


def test_the_home_page_has_ten_lines_of_code_a_picture_and_a_number():
    home = ROOT / "docs/index.md"
    (code,) = (block.body for block in blocks(home) if block.mark)
    assert len([line for line in code.splitlines() if line]) <= 10
    assert any(target.startswith("img/") for target in links(home))
    assert re.search(r"\*\*\d.*\*\*.*\n?.*benchmarks\.md", home.read_text(encoding="utf-8"))


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
        command = [*program, cut_budgets(block.body)]
        answer = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, (
            f"{name(page)}:\n{block.body}\n{answer.stdout}\n{answer.stderr}"
        )
