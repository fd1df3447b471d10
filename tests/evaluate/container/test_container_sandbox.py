"""Containers as sandboxes: the provider keeps the port's promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.errors import UserError
from culmen.core.ports import SandboxSpec
from culmen.evaluate.containers import ContainerProvider
from culmen.testing.sandbox_kit import check_sandboxes

pytestmark = pytest.mark.container


@pytest.mark.slow
def test_containers_keep_the_promises_of_a_provider(podman: str, tmp_path: Path) -> None:
    check_sandboxes(ContainerProvider(), podman, tmp_path)


def test_a_missing_image_is_named_with_the_command_that_gets_it(podman: str) -> None:
    with pytest.raises(UserError, match="nothing/here:1 is not on this machine") as caught:
        ContainerProvider().create(SandboxSpec("culmen-none", "nothing/here:1"))
    assert caught.value.fix.endswith("pull nothing/here:1")
