"""Published examples, read from descriptions of installed packages, and their model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution

import pytest

from tests.servers.model_script import Script
from tests.servers.model_server import ModelServer


def example(package: str, word: str) -> str:
    """The Python block of a package's description that has a word."""
    text = distribution(package).read_text("METADATA")  # its payload is empty once opto is imported
    assert text is not None
    (found,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.S) if word in block)
    return str(found)


@contextmanager
def scripted_openai(script: Script) -> Iterator[ModelServer]:
    """OpenAI's address for packages and culmen: a scripted model on the loopback."""
    with ModelServer(script) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "scripted")
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it looks for a newer one
        for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
            patch.setenv(name, f"{server.url}/v1")
        yield server
