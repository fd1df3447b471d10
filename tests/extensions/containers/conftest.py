"""A podman that runs here, and the image made for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.evaluate.conftest import ground as ground
from tests.evaluate.conftest import shared as shared
from tests.extensions.containers import image


@pytest.fixture(scope="package")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of an image with Python and NumPy; skips where podman cannot run it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", image.path_of_podman(tmp_path_factory.mktemp("bin")))
        why = image.made()
        if why:
            pytest.skip(f"no container can be run here: {why}")
        yield image.IMAGE
