"""Programs of containers that are installed and do not work are named as such."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.extensions.containers.engine import find_image
from culmen.jail.fork_server import JailFailed

DAEMON = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"


@pytest.mark.parametrize(
    "words, told",
    [
        (DAEMON, "docker is installed, but its daemon does not answer"),
        ("permission denied while trying to connect to the docker API", "get access to it"),
        ("Error: No such image: x", "is not on this machine"),
    ],
)
def test_docker_without_a_daemon_is_named_first(
    words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JailFailed, match=told):
        find_image(f"culmen-test:{len(words)}")
