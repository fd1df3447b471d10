#!/usr/bin/env bash
# harbor 0.26.0 with toml 0.10.2: a table is read with tomllib and written with toml
# A task.toml that Harbor wrote has another value after reading, or cannot be read: a variable with
# a backslash before an x. Dates in [metadata] become texts.
. "$(dirname "$0")/environment.sh"
in_environment harbor==0.26.0 toml==0.10.2 <<'PYTHON'
import tomllib

from harbor.models.task.config import TaskConfig


def again(text):
    return TaskConfig.model_validate_toml(TaskConfig.model_validate_toml(text).model_dump_toml())


for value, expected in ((r"a\b", r"a\b"), (r"\\x41", r"\x41"), (r"C:\x41", "cannot be read")):
    try:
        found = again(f"[environment.env]\nA = '{value}'\n").environment.env["A"]
    except tomllib.TOMLDecodeError:
        found = "cannot be read"
    print(value, "->", found)
    assert found == expected

when = again("[metadata]\nmade = 2026-01-02T03:04:05Z\n").metadata["made"]
print("a date ->", repr(when))
assert when == "2026-01-02T03:04:05Z"
PYTHON
