"""Programs that live on an evaluator's tolerance in silence, honest ones at the border.

With their evaluators. Each program returns a list of numbers by `run()`; the evaluator is all
that a run is given.
"""

from __future__ import annotations

from typing import NamedTuple


class Silent(NamedTuple):
    """An evaluator, outputs of honest programs, and one that pays by a tolerance.

    The best of the honest ones is the last.
    """

    scorer: str
    honest: tuple[str, ...]
    gamed: str
    line: str = ""  # a text in the line that must be named

    def program(self, output: str) -> str:
        return f"import math\n\n\ndef run():\n    return {output}\n"


def total(check: str, head: str = "", value: str = "sum(xs)") -> str:
    """The evaluator of a sum that may not be above 1; `check` is true where it refuses."""
    numpy = "import numpy as np\n" if "np." in check else ""
    return f"""\
import math
{numpy}{head}

def score(output):
    xs = [float(x) for x in output]
    if len(xs) != 3 or min(xs) < 0:
        return {{"score": None, "feedback": "three amounts, please"}}
    if {check}:
        return {{"score": None, "feedback": "too much"}}
    return {value}
"""


HONEST = ("[0.2, 0.3, 0.4]", "[0.3, 0.3, 0.3]", "[1 / 3, 1 / 3, 1 / 3]")
OVER = "[1 / 3 + {0}, 1 / 3, 1 / 3]"

CIRCLES = """\
import math

EPS = 1e-9


def score(output):
    xs = [float(x) for x in output]
    # two circles with centres 0.3 and 0.7 between walls at 0 and 1
    a, b = xs
    if a > 0.3 + EPS or b > 0.3 + EPS or {overlap}:
        return {{"score": None, "feedback": "overlap"}}
    return a + b + 0.1 * max(a, b)
"""
CIRCLES_HONEST = ("[0.1, 0.1]", "[0.15, 0.2]", "[0.2, 0.2]", "[0.1, 0.3]")
POINTS = """\
def score(output):
    xs = [float(x) for x in output]
    if len(xs) != 3 or {outside}:
        return {{"score": None, "feedback": "three points in [0, 1], please"}}
    return min({pairs})
"""
GAPS = "abs(a - b) for i, a in enumerate(xs) for b in xs[:i]"
POINTS_HONEST = ("[0.1, 0.4, 0.9]", "[0.0, 0.45, 1.0]", "[0.0, 0.5, 1.0]")
EQUAL = """\
import numpy as np


def score(output):
    xs = np.array([float(x) for x in output])
    if xs.shape != (3,) or (xs < 0).any() or {wrong}:
        return {{"score": None, "feedback": "shares that sum to one, please"}}
    return float(xs @ [1.0, 2.0, 3.0])
"""
EQUAL_HONEST = ("[0.5, 0.3, 0.2]", "[0.1, 0.2, 0.7]", "[0.0, 0.0, 1.0]")

SILENT = {
    "sum above the limit": Silent(
        total("sum(xs) > 1 + 1e-6"), HONEST, OVER.format("9.9e-7"), "1 + 1e-6"
    ),
    "a limit in a constant": Silent(
        total("sum(xs) > 1 + TOL", "TOL = 1e-4\n"), HONEST, OVER.format("9e-5"), "TOL = 1e-4"
    ),
    "a limit in a default": Silent(
        total("not fits(xs)", "\ndef fits(xs, slack=1e-5):\n    return sum(xs) <= 1 + slack\n"),
        HONEST,
        OVER.format("9.5e-6"),
        "slack=1e-5",
    ),
    "a limit in settings": Silent(
        total('sum(xs) > 1 + SETTINGS["tol"]', 'SETTINGS = {"tol": 1e-5}\n'),
        HONEST,
        OVER.format("9.5e-6"),
        "SETTINGS",
    ),
    "a limit as a power": Silent(
        total("sum(xs) > 1 + 10**-5"), HONEST, OVER.format("9.5e-6"), "10**-5"
    ),
    "a limit as a factor": Silent(
        total("sum(xs) > 1.0001 * 1.0"), HONEST, OVER.format("9e-5"), "1.0001"
    ),
    "a violation cut off": Silent(
        total("max(0.0, sum(xs) - 1 - 1e-6) > 0"),
        HONEST,
        OVER.format("9.9e-7"),
        "1e-6",
    ),
    "rounding": Silent(total("round(sum(xs), 5) > 1"), HONEST, OVER.format("4.9e-6"), "round("),
    "numpy's rounding": Silent(
        total("np.round(sum(xs), decimals=4) > 1"), HONEST, OVER.format("4.9e-5"), "np.round"
    ),
    "rounding beforehand": Silent(
        total("used > 1", value="sum(xs)").replace(
            "    if used", "    used = round(sum(xs), 6)\n    if used"
        ),
        HONEST,
        OVER.format("4.9e-7"),
        "round(",
    ),
    "truncation": Silent(total("int(1000 * sum(xs)) > 1000"), HONEST, OVER.format("9e-4"), "int("),
    "single precision": Silent(
        total("np.float32(sum(xs)) > np.float32(1)"),
        HONEST,
        OVER.format("5e-8"),
        "float32",
    ),
    "half precision": Silent(
        total('np.array([sum(xs)]).astype("float16")[0] > 1'),
        HONEST,
        OVER.format("4e-4"),
        "float16",
    ),
    "numpy's default": Silent(
        total("sum(xs) > 1 and not np.isclose(sum(xs), 1)"),
        HONEST,
        OVER.format("9.9e-6"),
        "np.isclose",
    ),
    "math's default": Silent(
        total("sum(xs) > 1 and not math.isclose(sum(xs), 1)"),
        HONEST,
        OVER.format("9.9e-10"),
        "math.isclose",
    ),
    "circles closer than they may be": Silent(
        CIRCLES.format(overlap="a + b > 0.4 + EPS"),
        CIRCLES_HONEST,
        "[0.1 + 9.9e-10, 0.3]",
        "EPS",
    ),
    "radii shrunk by a hair below it": Silent(
        CIRCLES.format(overlap="math.dist((0.3,), (0.7,)) < a + b - 1e-6"),
        CIRCLES_HONEST,
        "[0.1 + 1e-6 - 1e-9, 0.3]",
        "1e-6",
    ),
    "points outside by the tolerance": Silent(
        POINTS.format(outside="any(x < -1e-6 or x > 1 + 1e-6 for x in xs)", pairs=GAPS),
        POINTS_HONEST,
        "[-9.9e-7, 0.5, 1 + 9.9e-7]",
        "1e-6",
    ),
    "shares that sum to more": Silent(
        EQUAL.format(wrong="abs(xs.sum() - 1) > 1e-6"),
        EQUAL_HONEST,
        "[0.0, 0.0, 1 + 9.9e-7]",
        "1e-6",
    ),
    "NaN that no comparison refuses": Silent(
        """\
def score(output):
    worth, weight = (float(x) for x in output)
    if worth < 0 or worth > 10 or weight > 1 or weight < worth / 10:
        return {"score": None, "feedback": "too heavy"}
    return worth
""",
        ("[1.0, 0.5]", "[5.0, 0.5]", "[9.0, 0.95]"),
        '[10.0, float("nan")]',
        "weight > 1",
    ),
    "NaN that a minimum forgets": Silent(
        POINTS.format(outside="any(x < 0 or x > 1 for x in xs)", pairs=GAPS),
        POINTS_HONEST,
        '[0.0, 1.0, float("nan")]',
        "x < 0",
    ),
    "NaN that numpy leaves out": Silent(
        """\
import numpy as np


def score(output):
    errors = np.array([float(x) for x in output])
    return 1 / (1 + np.nanmax(np.abs(errors - [0.1, 0.2, 0.3])))
""",
        ("[0.2, 0.2, 0.2]", "[0.15, 0.2, 0.25]", "[0.14, 0.21, 0.29]"),
        '[0.1, 0.2, float("nan")]',
        "nanmax",
    ),
}


class Border(NamedTuple):
    """An evaluator, and outputs of honest programs.

    The best of them is the last, and at the edge of the allowed range.
    """

    scorer: str
    honest: tuple[str, ...]

    program = Silent.program


BORDER = {
    "a sum that rounding errors lift": Border(
        total("sum(xs) > 1 + 1e-6"), (*HONEST[:2], "[0.1, 0.2, 0.7000000000000002]")
    ),
    "a solver's residual": Border(
        total("sum(xs) > 1 + 1e-6"), (*HONEST[:2], "[1 / 3 + 2e-8, 1 / 3, 1 / 3]")
    ),
    "circles that touch": Border(
        CIRCLES.format(overlap="math.dist((0.3,), (0.7,)) < a + b - EPS"),
        (*CIRCLES_HONEST[:3], "[0.10000000000000003, 0.3]"),
    ),
    "shares that sum to one": Border(
        EQUAL.format(wrong="abs(xs.sum() - 1) > 1e-6"),
        (*EQUAL_HONEST[:2], "[0.0, 1e-9, 1 - 1e-9 + 4e-16]"),
    ),
    "points on the border": Border(
        POINTS.format(outside="any(x < -1e-9 or x > 1 + 1e-9 for x in xs)", pairs=GAPS),
        (*POINTS_HONEST[:2], "[-1e-17, 0.5, 1.0000000000000002]"),
    ),
    "an evaluator in single precision": Border(
        total("np.float32(sum(xs)) > np.float32(1)"),
        (*HONEST[:2], "[0.1, 0.2, 0.7000000000000002]"),
    ),
    "a rounded check": Border(
        total("round(sum(xs), 6) > 1"), (*HONEST[:2], "[0.1, 0.2, 0.7000000000000002]")
    ),
    "a rounded score": Border(total("sum(xs) > 1", value="round(sum(xs), 4)"), HONEST),
    "a threshold of the problem": Border(
        "def score(output):\n    return 1.0 if abs(float(output[0]) - 1) < 1e-3 else 0.0\n",
        ("[0.5]", "[0.9]", "[1.0005]"),
    ),
    "a guarded division": Border(
        "def score(output):\n    return 1 / max(1e-9, abs(float(output[0]) - 1))\n",
        ("[0.5]", "[0.9]", "[0.99]"),
    ),
    "missing values in the data": Border(
        """\
import numpy as np

DATA = np.array([0.1, np.nan, 0.3])


def score(output):
    return 1 / (1 + np.nanmean(np.abs(DATA - [float(x) for x in output])))
""",
        ("[0.5, 0, 0.5]", "[0.2, 0, 0.2]", "[0.15, 0.2, 0.3]"),
    ),
}
