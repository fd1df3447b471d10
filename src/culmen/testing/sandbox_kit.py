"""Checks for providers of sandboxes, on real ones.

    check_sandboxes(MyProvider(), "an-image:1", folder)

`image` has a shell and the programs cat, chmod, mkdir and sleep; `folder` is empty. All sandboxes
that the check makes are deleted.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from pathlib import Path

from culmen.core.errors import UserError
from culmen.core.ports import Sandbox, SandboxProvider, SandboxSpec

SECRET = "kit 'value' $HOME\n\"end\""
_WAIT_SECONDS = 60.0


def check_sandboxes(provider: SandboxProvider, image: str, folder: Path) -> None:
    """Raise AssertionError for a provider that breaks a promise of the port."""
    names = [f"culmen-kit-{secrets.token_hex(4)}" for _ in range(2)]
    spec, other = (SandboxSpec(name, image) for name in names)
    try:
        sandbox = provider.create(spec)
        _check_programs(sandbox)
        _check_copies(sandbox, provider.find(spec.name), folder)
        _check_background(sandbox, provider.find(spec.name))
        apart = provider.create(other)
        assert _run_shell(apart, "cat /kit/deep/file").status, "two sandboxes share their files"
        _check_mistakes(provider, spec)
        assert _run_shell(sandbox, "true").status == 0, "a refused creation ended another sandbox"
        provider.find(spec.name).delete()
        sandbox.delete()
        _require_gone(sandbox)
        _require_gone(provider.find(spec.name))
        assert _run_shell(apart, "true").status == 0, "deletion ended another sandbox"
    finally:
        for name in names:
            provider.find(name).delete()


def _run_shell(sandbox: Sandbox, script: str, seconds: float = 60.0):
    return sandbox.run(["/bin/sh", "-c", script], seconds=seconds)


def _check_programs(sandbox: Sandbox) -> None:
    ran = sandbox.run(["/bin/sh", "-c", "cat; echo bad >&2; exit 7"], stdin=b"in\0put")
    assert ran == (7, b"in\0put", b"bad\n"), ran
    variables = {"PATH_OF_KIT": SECRET, "CONTAINER_HOST": "x"}
    show = 'printf %s "$PATH_OF_KIT$CONTAINER_HOST"; sleep 1'
    found: list[bytes] = []

    def run() -> None:
        found.append(sandbox.run(["/bin/sh", "-c", show], variables, b"stdin-of-kit").output)

    running = threading.Thread(target=run)
    running.start()
    while running.is_alive():
        assert not _is_listed(b"stdin-of-kit") and not _is_listed(SECRET.encode())
        time.sleep(0.05)
    assert found == [SECRET.encode() + b"x"], found
    route = _run_shell(sandbox, "cat /proc/net/route")
    assert route.output.count(b"\n") <= 1, "a sandbox without network has a route"
    try:
        _run_shell(sandbox, "sleep 30", seconds=0.5)
    except TimeoutError:
        return
    raise AssertionError("a program ran on after its time")


def _is_listed(text: bytes) -> bool:
    """True if the command line of a process of this machine has the text."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text in line.read_bytes():
                return True
    return False


def _check_copies(sandbox: Sandbox, again: Sandbox, folder: Path) -> None:
    tree = folder / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "below" / "file").write_bytes(b"\0one")
    (tree / "program").write_text("#!/bin/sh\necho ran\n")
    (tree / "program").chmod(0o755)
    sandbox.copy_in(tree / "below" / "file", "/kit/deep/file")
    again.copy_in(tree, "/kit/tree")
    ran = _run_shell(again, "cat /kit/deep/file /kit/tree/below/file; /kit/tree/program")
    assert ran == (0, b"\0one\0oneran\n", b""), ran
    with contextlib.suppress(UserError):
        sandbox.copy_in(folder / "missing", "/kit/missing")
        raise AssertionError("a file that does not exist was copied")


def _check_background(sandbox: Sandbox, again: Sandbox) -> None:
    """Processes go on after the program that started them."""
    later = "(sleep 1; echo late > /kit/late) >/dev/null 2>&1 &"
    assert _run_shell(sandbox, later).status == 0
    until = time.monotonic() + _WAIT_SECONDS
    while _run_shell(again, "cat /kit/late").output != b"late\n":
        assert time.monotonic() < until, "a process in the background has ended"
        time.sleep(0.1)


def _check_mistakes(provider: SandboxProvider, spec: SandboxSpec) -> None:
    missing = SandboxSpec(f"{spec.name}-x", "localhost/culmen-kit-no-such-image:0")
    unknown = SandboxSpec(f"{spec.name}-x", spec.image, settings={"no-such-setting": "1"})
    for wrong in (spec, missing, unknown):
        try:
            provider.create(wrong)
        except UserError as error:
            assert error.what and error.fix, "an error names its remedy"
        else:
            raise AssertionError(f"created: {wrong}")
    _require_gone(provider.find(missing.name))
    provider.find(missing.name).delete()


def _require_gone(sandbox: Sandbox) -> None:
    try:
        _run_shell(sandbox, "true")
    except UserError:
        return
    raise AssertionError("a program ran in a sandbox that is gone")
