"""Forked children that change themselves for good: limits, identity, descriptors, filters."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import traceback
from collections.abc import Callable
from typing import Any


def in_child(work: Callable[[], Any]) -> Any:
    """The plain result of `work` in a child of its own; its failure fails here."""
    reading, low = os.pipe()
    writing = fcntl.fcntl(
        low, fcntl.F_DUPFD, 50
    )  # out of the way of the descriptors that children arrange
    os.close(low)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            answer = json.dumps({"answer": work()})
            code = 0
        except BaseException:  # noqa: BLE001 - the parent raises it
            answer = json.dumps({"failed": traceback.format_exc()})
        finally:
            os.write(writing, answer.encode())
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        said = json.loads(answers.read() or b'{"failed": "it ended without an answer"}')
    os.waitpid(pid, 0)
    assert "failed" not in said, said["failed"]
    return said["answer"]


def outcome(call: Callable[[], Any]) -> str:
    """ "" if the call goes through, else the name of its OSError's number."""
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""
