#!/usr/bin/env bash
# pymoo 0.6.1.5 (numpy 2.4.6)
# A candidate whose objectives are all NaN is in the first front; one with a single NaN is compared
# by its other objectives. Hypervolume leaves rows with NaN out without a word.
. "$(dirname "$0")/environment.sh"
in_environment pymoo==0.6.1.5 numpy==2.4.6 <<'PYTHON'
import numpy as np
from pymoo.indicators.hv import HV
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

nan = float("nan")
rows = np.array([[1.0, 1.0], [nan, 5.0], [2.0, 2.0], [0.5, 3.0], [nan, nan]])  # minimised
fronts = [front.tolist() for front in NonDominatedSorting().do(rows)]
print("fronts:", fronts)
assert fronts == [[0, 3, 4], [2], [1]]

volume = HV(ref_point=np.array([10.0, 10.0]))
alone, beside = float(volume(rows[:1])), float(volume(rows[:2]))
print("hypervolume of the first row:", alone, "and of the first two:", beside)
assert alone == beside == 81.0
PYTHON
