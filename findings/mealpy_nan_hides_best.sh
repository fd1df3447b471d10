#!/usr/bin/env bash
# mealpy 3.0.3 (numpy 1.26.0)
# Where an objective is NaN in a part of the space, the solution that solve() returns is worse than the best that
# was evaluated, by a genetic algorithm, a particle swarm and differential evolution. With inf there instead of NaN
# it is the best one.
. "$(dirname "$0")/environment.sh"
in_environment mealpy==3.0.3 numpy==1.26.0 <<'PYTHON'
import math

from mealpy import DE, GA, PSO, FloatVar


def solved(method, outside):
    values = []

    def objective(x):
        value = float(sum(x**2)) if x[0] >= 0 else outside
        values.append(value)
        return value

    problem = {"obj_func": objective, "bounds": FloatVar(lb=[-1, -1], ub=[1, 1]), "minmax": "min", "log_to": None}
    best = method(epoch=5, pop_size=10).solve(problem, seed=3)
    return best.target.fitness, min(value for value in values if math.isfinite(value))


for method in (GA.BaseGA, PSO.OriginalPSO, DE.OriginalDE):
    for outside in (math.nan, math.inf):
        returned, evaluated = solved(method, outside)
        print(f"{method.__name__}, {outside} outside: returned {returned:.4f}, best evaluated {evaluated:.4f}")
        assert (returned > evaluated) == math.isnan(outside)
PYTHON
