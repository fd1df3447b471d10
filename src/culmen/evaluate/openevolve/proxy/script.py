"""Running a candidate as a script, on standard streams that came from the evaluator's process."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Iterator

from culmen.evaluate.jail.plain import last_lines


def run(path: str, arguments: list[str], streams: list[int]) -> int:
    """Its exit status, as `python PATH ARGUMENTS` would give it; `streams` are closed."""
    for target, source in enumerate(streams[:3]):
        os.dup2(source, target)
    for fd in streams:
        os.close(fd)
    with _streams():
        return _status(path, arguments)


@contextlib.contextmanager
def _streams() -> Iterator[None]:
    """Python's own streams over the descriptors 0 to 2 as they are now."""
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = kept
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):  # whoever reads them must see their end
            os.dup2(null, fd)
        os.close(null)


def _status(path: str, arguments: list[str]) -> int:
    sys.argv = [path, *arguments]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 - as an interpreter would: the trace on stderr, and 1
        sys.stderr.write(last_lines(error))
        return 1
    return 0
