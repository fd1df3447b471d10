"""Real backends for evaluators of other ecosystems, as in tests/evaluate."""

from tests.evaluate.conftest import ground as ground
from tests.evaluate.conftest import shared as shared
