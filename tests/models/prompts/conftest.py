"""The fixtures of the model tests."""

from tests.models.conftest import _environment, pair, parent, task  # noqa: F401
