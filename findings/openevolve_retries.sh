#!/usr/bin/env bash
# openevolve 0.4.1
# max_retries (3 by default) has no effect unless cascade_evaluation is off, and it is on by default, also for an evaluator without stages.
. "$(dirname "$0")/environment.sh"
in_environment openevolve==0.4.1 <<'PYTHON'
import asyncio
import logging
from pathlib import Path

from openevolve.config import EvaluatorConfig
from openevolve.evaluator import Evaluator

logging.disable(logging.CRITICAL)
Path("evaluator.py").write_text(
    """calls = []

def evaluate(path):
    calls.append(path)
    if len(calls) < 2:
        raise OSError("busy, but only once")
    return {"combined_score": 0.5}
"""
)
assert EvaluatorConfig().max_retries == 3
for cascade, expected in ((True, {"stage1_passed": 0.0, "error": 0.0}), (False, {"combined_score": 0.5})):
    evaluator = Evaluator(EvaluatorConfig(cascade_evaluation=cascade), "evaluator.py")
    metrics = asyncio.run(evaluator.evaluate_program("x = 1\n", "first"))
    print(f"cascade_evaluation {cascade}: {metrics}, {len(evaluator.evaluate_function.__globals__['calls'])} calls")
    assert metrics == expected
PYTHON
