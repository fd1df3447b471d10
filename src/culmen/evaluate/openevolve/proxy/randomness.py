"""Random states across processes: generators travel by their state, the evaluator's seeding reaches the candidate."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

_NUMPY = "numpy.random"  # loaded late by NumPy itself, which takes longer than all we do


def random_state(value: Any) -> tuple[str, Any] | None:
    """A random generator as plain data; None for anything else."""
    if type(value) is random.Random:
        return "Random", value.getstate()
    numbers: Any = sys.modules.get(_NUMPY)
    if numbers is None:
        return None
    if type(value) is numbers.Generator:
        return "Generator", value.bit_generator.state
    return ("RandomState", value.get_state(legacy=False)) if type(value) is numbers.RandomState else None


def generator(kind: str, state: Any) -> Any:
    """The inverse of `random_state`."""
    if kind == "Random":
        made = random.Random()
        made.setstate((state[0], tuple(state[1]), state[2]))
        return made
    import numpy

    if kind == "RandomState":
        legacy = numpy.random.RandomState()
        legacy.set_state(state)
        return legacy
    bits = getattr(numpy.random, state["bit_generator"])()
    bits.state = state
    return numpy.random.Generator(bits)


def sow(seeds: dict[str, Any]) -> None:
    """Seed the global generators as the evaluator did."""
    if "random" in seeds:
        random.seed(seeds["random"])
    if "numpy" in seeds:
        import numpy

        numpy.random.seed(seeds["numpy"])


def overhear(tell: Callable[[str, Any], None]) -> None:
    """Be told of every seeding of the global generators in this process."""

    def heard(name: str, module: Any) -> None:
        seed = module.seed

        def seeding(*args: Any, **kwargs: Any) -> Any:
            result = seed(*args, **kwargs)
            value = [*args, *kwargs.values(), None][0]
            tell(name, value)
            return result

        module.seed = seeding

    heard("random", random)
    if _NUMPY in sys.modules:
        heard("numpy", sys.modules[_NUMPY])
