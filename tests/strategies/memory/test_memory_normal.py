"""The normal distribution function against scipy's.

Also far in the tails and for few and many values.
"""

import numpy as np
import pytest

from culmen.strategies.memory.gain import normal_cdf


@pytest.mark.parametrize("many", [1, 7, 149, 150, 100_000])
def test_agrees_with_scipy_relative_to_the_value(many):
    ndtr = pytest.importorskip("scipy.special", reason="scipy is not installed").ndtr
    for x in (np.linspace(-37.5, 9.0, many), np.random.default_rng(many).uniform(-37.5, 9.0, many)):
        np.testing.assert_allclose(normal_cdf(x), ndtr(x), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("copies", [1, 100])
def test_ends_and_what_is_no_number(copies):
    x = np.tile(np.array([-np.inf, -1e300, -60.0, -0.0, 0.0, 60.0, np.inf, np.nan]), copies)
    expected = np.tile(np.array([0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.0, np.nan]), copies)
    np.testing.assert_array_equal(normal_cdf(x), expected)


def test_no_values():
    assert normal_cdf(np.array([])).shape == (0,)
