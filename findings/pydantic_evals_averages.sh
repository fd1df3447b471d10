#!/usr/bin/env bash
# pydantic-evals 2.62.0 (numpy 2.4.6)
# A score that is NaN, an evaluator that raises on a case and a task that raises are left out of the averages: the more
# a program fails, the fewer cases it is judged by, and 1 right of 4 averages 1.0. numpy's True counts as a score of 1.0,
# Python's as an assertion, so that one evaluator's results stand in two columns.
. "$(dirname "$0")/environment.sh"
in_environment pydantic-evals==2.62.0 numpy==2.4.6 <<'PYTHON'
import math
from dataclasses import dataclass

import numpy as np
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Evaluator


@dataclass
class Right(Evaluator):
    values: list

    def evaluate(self, context):
        value = self.values[context.inputs]
        if value is None:
            raise RuntimeError("no value")
        return value


def task(number):
    if number == 3:
        raise ValueError("no answer")
    return number


def averages(values):
    cases = [Case(name=str(index), inputs=index) for index in range(4)]
    found = Dataset(name="d", cases=cases, evaluators=[Right(values)]).evaluate_sync(task, progress=False).averages()
    return found.scores, found.assertions


lost = averages([1.0, math.nan, None, 1.0])
print("1, NaN, an error, a task that raises:", lost)
assert lost == ({"Right": 1.0}, None)
mixed = averages([np.bool_(True), np.bool_(False), True, True])
print("numpy's True and False, Python's True:", mixed)
assert mixed == ({"Right": 0.5}, 1.0)
PYTHON
