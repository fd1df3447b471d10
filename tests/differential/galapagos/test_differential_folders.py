"""Folders of open-galapagos by a seeded draw: the evaluator's figure beside that of `check`.

CULMEN_FOLDERS is the number that is compared (200 by default). AlgoTune's tasks are left out: their
figures are measured times. A folder is passed over if its evaluator raises here, takes more than a
minute, or gives another figure the second time.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.differential.comparing import COMPARED
from tests.differential.folders import compare, outcome_of

galapagos = pytest.importorskip("galapagos", reason="python -m tests.differential")

FOLDERS = int(os.environ.get("CULMEN_FOLDERS", "200"))
TASKS = Path(galapagos.__file__).parent / "tasks"
OWN = """
import glob, importlib.util, json, os, sys
evaluator = os.path.join(sys.argv[1], "evaluator.py")
(program,) = glob.glob(os.path.join(sys.argv[1], "initial_program.*"))
sys.path.insert(0, os.path.dirname(evaluator))
spec = importlib.util.spec_from_file_location("evaluator", evaluator)
module = sys.modules["evaluator"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
found = module.evaluate(program)
print("\\n@@" + json.dumps(getattr(found, "metrics", found)["combined_score"]))
"""

pytestmark = pytest.mark.timeout(0)


def test_check_gives_the_evaluators_own_figure() -> None:
    found = sorted(path.parent.name for path in TASKS.glob("*/card.yaml"))
    names = [name for name in found if not name.startswith("algotune_")]
    random.Random(48).shuffle(names)
    outcomes: Counter[str] = Counter()
    for name in names:
        outcomes[outcome_of(compare(OWN, TASKS / name))] += 1
        compared = sum(COMPARED.values())
        print(f"{compared:>3}", name, dict(outcomes), flush=True)
        if compared == FOLDERS:
            return
    pytest.fail(f"only {sum(COMPARED.values())} folders can be compared here")
