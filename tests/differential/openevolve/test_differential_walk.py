"""The page From OpenEvolve, walked: its published example by its command, then by ours."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.differential.folders import checkout, run
from tests.differential.published import scripted_openai
from tests.servers.model_script import Asked, Turn

pytestmark = pytest.mark.timeout(1800)

EXAMPLE = "examples/alphaevolve_math_problems/kissing_number"
EDIT = "<<<<<<< SEARCH\nimport numpy as np\n=======\nimport numpy as np  # {}\n>>>>>>> REPLACE\n"


def model(asked: Asked) -> Turn:
    """An edit that changes no result, another one each time."""
    return Turn(EDIT.format(len(asked.body["messages"][-1]["content"])))


def test_the_published_example_runs_with_both(tmp_path: Path) -> None:
    folder = shutil.copytree(checkout("CULMEN_OPENEVOLVE") / EXAMPLE, tmp_path / "example")
    with scripted_openai(model) as server:
        models = folder / "models.yaml"  # the reader's own
        models.write_text(
            f"llm:\n  primary_model: scripted\n  api_base: {server.url}/v1\n"
            "max_code_length: 60000\n"
        )
        package = [sys.executable, "-m", "openevolve.cli", "initial_program.py", "evaluator.py"]
        run([*package, "--config", "models.yaml", "--iterations", "2"], folder)
        best = folder / "openevolve_output" / "best" / "best_program_info.json"
        theirs = json.loads(best.read_text())["metrics"]["combined_score"]
        asked = len(server.asked)
        assert asked
        culmen = [sys.executable, "-m", "culmen.cli.main"]
        report = json.loads(run([*culmen, "check", ".", "--json"], folder))
        assert report["seeds"][0]["mean"] == theirs
        chosen = ["--models", "models.yaml", "--pool", "openevolve_output"]
        run([*culmen, "run", ".", "--budget", "evaluations=3", *chosen], folder)
        assert len(server.asked) > asked
        run([*culmen, "best", "--out", "best"], folder)
        assert "kissing" in (folder / "best" / "initial_program.py").read_text()
