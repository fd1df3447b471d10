"""The fixtures of the model tests."""

from tests.llm.conftest import _environment, pair, parent, task  # noqa: F401
