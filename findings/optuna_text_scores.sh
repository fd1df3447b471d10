#!/usr/bin/env bash
# optuna 5.0.0 (numpy 2.4.6)
# An objective that returns the text "0.5" ends the whole study with an AssertionError, also with
# catch=(Exception,), and leaves its trial running; "abc" fails that trial alone. The bytes b"1" are the
# value 49, a list [0.5] is 0.5, and a numpy array of one number fails.
. "$(dirname "$0")/environment.sh"
in_environment optuna==5.0.0 numpy==2.4.6 <<'PYTHON'
import numpy as np
import optuna

optuna.logging.set_verbosity(optuna.logging.CRITICAL)


def outcome(value):
    study = optuna.create_study()
    ended = ""
    try:
        study.optimize(lambda trial: value, n_trials=1, catch=(Exception,))
    except AssertionError as error:
        ended = f", the study ends: {error}"
    return f"{study.trials[0].state.name} {study.trials[0].value}{ended}"


seen = {repr(value): outcome(value) for value in ("0.5", "abc", b"1", [0.5], np.array([0.5]), True)}
for value, found in seen.items():
    print(f"{value}: {found}")
assert list(seen.values()) == [
    "RUNNING None, the study ends: Should not reach.",
    "FAIL None",
    "COMPLETE 49.0",
    "COMPLETE 0.5",
    "FAIL None",
    "COMPLETE 1.0",
]
PYTHON
