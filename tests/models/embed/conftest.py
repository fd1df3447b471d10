"""The fixtures of the model tests."""

from tests.models.conftest import _environment  # noqa: F401
