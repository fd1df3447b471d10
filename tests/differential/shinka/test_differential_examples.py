"""ShinkaEvolve's example folders: the package's own figure beside that of `culmen check`.

They are in no package: CULMEN_SHINKA names a checkout of its repository.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.differential.folders import checkout, compare, outcome_of

OWN = """
import json, subprocess, sys, tempfile
from pathlib import Path
from shinka.utils.general import load_results
folder, results = Path(sys.argv[1]), tempfile.mkdtemp()
(program,) = folder.glob("initial.*")
words = ["--program_path", str(program), "--results_dir", results]
subprocess.run([sys.executable, "evaluate.py", *words], cwd=folder, check=True)
found = load_results(results)
if found["correct"]["correct"]:
    print("\\n@@" + json.dumps(found["metrics"].get("combined_score", 0.0)), flush=True)
"""

pytestmark = pytest.mark.timeout(0)


def test_check_gives_the_packages_own_figure() -> None:
    outcomes: Counter[str] = Counter()
    for evaluator in sorted((checkout("CULMEN_SHINKA") / "examples").glob("*/evaluate.py")):
        outcome = compare(OWN, evaluator.parent, seconds=300)
        outcomes[outcome_of(outcome)] += 1
        print(evaluator.parent.name, outcome, sep=": ", flush=True)
    print(json.dumps(outcomes))
    assert outcomes["the same figure"]
