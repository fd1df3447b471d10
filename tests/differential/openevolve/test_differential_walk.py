"""The page From OpenEvolve, walked: its published example by its command, then by ours."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.differential.folders import checkout, run
from tests.differential.published import example, scripted_openai
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


OURS = """
    import inspect
    import culmen

    def right(code, case):
        space = {}
        exec(code, space)
        return float(space["bubble_sort"](list(case.input)) == case.info)

    cases = [culmen.Case("one", [3, 1, 2], [1, 2, 3]), culmen.Case("two", [5, 2, 8], [2, 5, 8])]
    result = culmen.optimize(
        inspect.getsource(bubble_sort), right, cases=cases, budget=20, model="openai/gpt-4o"
    )
    print(result.best.parts["candidate"])
"""
FASTER = "def bubble_sort(arr):\n    return sorted(arr)\n"


def test_the_published_function_is_evolved_by_both(tmp_path: Path) -> None:
    published = example("openevolve", "evolve_function")
    head, guard, _ = published.partition('if __name__ == "__main__":\n')
    ours = head.replace("from openevolve import evolve_function\n", "") + guard + OURS
    theirs = published.replace("iterations=50", 'iterations=2, config="models.yaml"')
    models = "diff_based_evolution: false\nllm: {{primary_model: scripted, api_base: {}/v1}}\n"
    printed = {}
    for name, text in {"theirs": theirs, "ours": ours}.items():
        (tmp_path / f"{name}.py").write_text(text)
        with scripted_openai(lambda asked: Turn(f"```python\n{FASTER}```")) as server:
            (tmp_path / "models.yaml").write_text(models.format(server.url))  # it asks for one
            printed[name] = run([sys.executable, f"{name}.py"], tmp_path)
            assert server.asked
    assert all("def bubble_sort" in text for text in printed.values()), printed
