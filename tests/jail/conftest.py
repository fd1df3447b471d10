"""Real backends on real processes, as in tests/evaluate."""

from tests.evaluate.conftest import ground as ground
from tests.evaluate.conftest import shared as shared
