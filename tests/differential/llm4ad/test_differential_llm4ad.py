"""Fitness of generated functions beside that of LLM4AD's `SecureEvaluator`."""

from __future__ import annotations

import importlib.util
import math
import sys
import types
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.extensions.importers import llm4ad as ours
from culmen.jail.scorer import Invalid
from tests.differential.comparing import inputs, same

found = importlib.util.find_spec("llm4ad")
if found is None:
    pytest.skip("python -m tests.differential", allow_module_level=True)
package = types.ModuleType("llm4ad")  # its own import loads every method and its dependencies
package.__path__ = list(found.submodule_search_locations or ())
sys.modules.setdefault("llm4ad", package)
base = pytest.importorskip("llm4ad.base")

NAMES = ("choose", "rate_items", "f")
HEADS = ("", "import math\n\n", "import numpy as np\nfrom math import sqrt\n\n", "LIMIT = 2\n\n")
PARAMETERS = ("a, b", "a: float, b: Undefined = 1", "a, /, b", "a, b=2, *more", "*values, **named")
BODIES = (
    "return 1.5",
    "return a",
    "return a - b",
    "return a / b",
    "return [a, b]",
    "return None",
    "return LIMIT * a",
    "return np.float64(a) * math.pi",
    "return sqrt(a)",
    "raise ValueError(a)",
    "def inner(x):\n        return x + b\n    return inner(a)",
    "return values[0]",
    "return float('nan')",
    "return 'text'",
)
SHAPES = ("number", "numpy", "tuple", "array", "one", "none", "bool", "empty", "named", "text")
NUMBERS = st.one_of(st.integers(-3, 3), st.floats(-9, 9))


def in_shape(value: Any, shape: str) -> Any:
    """An evaluator's answer in one of its forms, made from the function's number."""
    shapes = {
        "number": lambda: float(value),
        "numpy": lambda: numpy.float64(value),
        "tuple": lambda: (float(value), 2.0),
        "array": lambda: numpy.array([float(value), -1.0]),
        "one": lambda: numpy.array([float(value)]),
        "none": lambda: None,
        "bool": lambda: value > 0,
        "empty": list,
        "named": lambda: value.real,
        "text": lambda: f"{value}",
    }
    return shapes[shape]()


class Design:
    """The evaluator: calls the function on two numbers, by position or by name."""

    def __init__(self, given: tuple[Any, Any], shape: str, by_name: bool) -> None:
        self._given, self._shape, self._by_name = given, shape, by_name

    def evaluate_program(self, program_str: str, callable_func: Any, **settings: Any) -> Any:
        a, b = self._given
        value = callable_func(a, b=b) if self._by_name else callable_func(a, b)
        return in_shape(value, self._shape)


def package_fitness(program: str, design: Design) -> Any:
    """The package's value for a program, None if it does not accept it."""

    class Evaluation(base.Evaluation):
        def evaluate_program(self, *given: Any, **named: Any) -> Any:
            return design.evaluate_program(*given, **named)

    evaluation = Evaluation(program, "", safe_evaluate=False)
    evaluator = base.SecureEvaluator.__new__(base.SecureEvaluator)  # sets no way to start processes
    evaluator._evaluator, evaluator._debug_mode = evaluation, False
    return evaluator.evaluate_program(program)


def own_fitness(program: str, design: Design) -> Any:
    """The adapter's value in the package's form, None if the program is not acceptable."""
    text = f"{ours._HEAD}{program.strip()}\n"
    evaluation: Any = design
    names: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compile(text, "program.py", "exec", dont_inherit=True), names)
        return ours.fitness_of(evaluation, names[ours.entry_of(text)])
    except Invalid:
        return None
    except Exception:  # noqa: BLE001 - the package takes every exception for None
        return None


def comparable(value: Any) -> Any:
    """A value as numbers by objective; None for values that have no rank."""
    if value is None or isinstance(value, dict):
        return value
    try:
        numbers = [float(each) for each in numpy.ravel(numpy.asarray(value, dtype=float))]
    except (TypeError, ValueError):
        return None
    if not numbers or not all(map(math.isfinite, numbers)):
        return None
    return numbers[0] if len(numbers) == 1 else dict(zip(ours.objective_names(2), numbers))


@inputs(2500)
@given(
    st.sampled_from(HEADS),
    st.sampled_from(NAMES),
    st.sampled_from(PARAMETERS),
    st.sampled_from(BODIES),
    st.tuples(NUMBERS, NUMBERS),
    st.sampled_from(SHAPES),
    st.booleans(),
)
def test_fitness_of_a_function(
    head: str,
    name: str,
    parameters: str,
    body: str,
    numbers: tuple[Any, Any],
    shape: str,
    by_name: bool,
) -> None:
    program = f"{head}def {name}({parameters}):\n    {body}\n"
    design = Design(numbers, shape, by_name)
    value = comparable(package_fitness(program, design))
    same("fitness of a function", value, own_fitness(program, design), (program, numbers, shape))


def test_a_helper_is_accepted_here_on_purpose() -> None:
    program = "def helper(a):\n    return a\n\n\ndef choose(a, b):\n    return helper(a)\n"
    design = Design((2.0, 1.0), "number", False)
    assert package_fitness(program, design) is None
    assert own_fitness(program, design) == 2.0
