"""The page From ShinkaEvolve, walked: its published example by its script, then by ours."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.differential.folders import checkout, run
from tests.differential.published import scripted_openai
from tests.servers.model_script import Asked, Turn

pytestmark = pytest.mark.timeout(1800)

EXAMPLE = "examples/sine_approx_headless"
CHANGES = {  # another model, and fewer generations
    r"llm_models=\[.*?\]": 'llm_models=["local/scripted@{}"]',
    r"num_generations=\d+": "num_generations=2",
}


def test_the_published_example_runs_with_both(tmp_path: Path) -> None:
    folder = shutil.copytree(checkout("CULMEN_SHINKA") / EXAMPLE, tmp_path / "example")
    program = (folder / "initial.py").read_text()

    def model(asked: Asked) -> Turn:
        return Turn(
            f"<NAME>\nsame\n</NAME>\n<DESCRIPTION>\nno change\n</DESCRIPTION>\n"
            f"<CODE>\n```python\n{program}\n# {asked.rounds}\n```\n</CODE>"
        )

    with scripted_openai(model) as server:
        script = (folder / "run_evo.py").read_text()
        for old, new in CHANGES.items():
            script, count = re.subn(old, new.format(f"{server.url}/v1"), script, flags=re.S)
            assert count == 1, old
        (folder / "run_evo.py").write_text(script)
        run([sys.executable, "run_evo.py"], folder)
        (database,) = folder.rglob("*.sqlite")
        with closing(sqlite3.connect(database)) as rows:
            query = "select combined_score from programs where generation = 0"
            theirs = rows.execute(query).fetchone()[0]
        culmen = [sys.executable, "-m", "culmen.cli.main"]
        report = json.loads(run([*culmen, "check", ".", "--json"], folder))
        assert report["seeds"][0]["mean"] == theirs
        pool = str(database.parent)
        run([*culmen, "run", ".", "--budget", "evaluations=3", "--pool", pool], folder)
        run([*culmen, "best", "--out", "best"], folder)
        assert (folder / "best" / "initial.py").read_text().startswith(program[:40])
