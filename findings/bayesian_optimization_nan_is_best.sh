#!/usr/bin/env bash
# bayesian-optimization 3.4.0
# A target that is NaN is taken by register() without a word and is the maximum from then on, whatever else is
# registered; the next suggest() raises a ValueError about it.
. "$(dirname "$0")/environment.sh"
in_environment bayesian-optimization==3.4.0 <<'PYTHON'
import math

from bayes_opt import BayesianOptimization

optimizer = BayesianOptimization(f=None, pbounds={"x": (0, 1)}, random_state=1, verbose=0)
for x, target in ((0.1, 0.2), (0.5, math.nan), (0.7, 0.9)):
    optimizer.register({"x": x}, target)
print("best:", optimizer.max)
assert math.isnan(optimizer.max["target"])
try:
    optimizer.suggest()
    raise AssertionError("suggest() gave a point")
except ValueError as error:
    print("suggest():", str(error).splitlines()[0])
PYTHON
