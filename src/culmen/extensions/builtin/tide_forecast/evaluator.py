"""Scores forecasts by their root mean square error; the gauge's values never reach the program."""

import math


def score(output, case):
    levels = output.tolist() if type(output).__name__ == "ndarray" else output
    gauge = case.info
    if not isinstance(levels, (list, tuple)) or len(levels) != len(gauge):
        return {"score": None, "feedback": f"forecast() must return {len(gauge)} numbers"}
    if any(type(v) not in (int, float) or not -500 <= v <= 500 for v in levels):  # NaN fails the comparison too
        return {"score": None, "feedback": "levels must be numbers between -500 and 500 metres"}
    errors = [level - true for level, true in zip(levels, gauge)]
    rms = math.sqrt(math.fsum(e * e for e in errors) / len(errors))
    worst = max(range(len(errors)), key=lambda i: abs(errors[i]))
    feedback = f"off by {rms:.3f} m; on average {math.fsum(errors) / len(errors):+.3f} m; worst at hour " + (
        f"{case.input[worst]}: {levels[worst]:.2f} m instead of {gauge[worst]:.2f} m"
    )
    return {"score": rms, "metrics": {"bias": math.fsum(errors) / len(errors)}, "feedback": feedback}
