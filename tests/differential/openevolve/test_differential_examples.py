"""OpenEvolve's example folders: the package's own figure beside that of `culmen check`.

They are in no package: CULMEN_OPENEVOLVE names a checkout of its repository.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.differential.folders import checkout, compare, outcome_of

OWN = """
import asyncio, json, logging, sys
from pathlib import Path
from openevolve.config import Config, load_config
from openevolve.evaluator import Evaluator
from openevolve.utils.metrics_utils import get_fitness_score
folder = Path(sys.argv[1])
(program,) = folder.glob("initial_program.*")
config = folder / "config.yaml"
settings = load_config(str(config)) if config.is_file() else Config()
evaluator = Evaluator(settings.evaluator, str(folder / "evaluator.py"), suffix=program.suffix)
metrics = asyncio.run(evaluator.evaluate_program(program.read_text(), "first"))
failed = {"error", "timeout"} & metrics.keys() and not any(
    metrics[name] for name in metrics.keys() - {"error", "timeout"})
if not failed:
    figure = get_fitness_score(metrics, settings.database.feature_dimensions)
    print("\\n@@" + json.dumps(figure), flush=True)
"""

pytestmark = pytest.mark.timeout(0)


def test_check_gives_the_packages_own_figure() -> None:
    examples = checkout("CULMEN_OPENEVOLVE") / "examples"
    outcomes: Counter[str] = Counter()
    for evaluator in sorted(examples.rglob("evaluator.py")):
        folder = evaluator.parent
        if len(list(folder.glob("initial_program.*"))) != 1:
            continue
        outcome = compare(OWN, folder)
        outcomes[outcome_of(outcome)] += 1
        print(folder.relative_to(examples), outcome, sep=": ", flush=True)
    print(json.dumps(outcomes))
    assert outcomes["the same figure"]
