"""The fixtures of the model tests."""

from tests.llm.conftest import _environment  # noqa: F401
