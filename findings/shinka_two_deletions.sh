#!/usr/bin/env bash
# shinka-evolve 0.0.7
# An edit with an empty line under ======= deletes lines; if another edit follows, its marker lines become part of the program, without an error.
# A SEARCH text is also found inside of a longer line that stands before the one that it means.
. "$(dirname "$0")/environment.sh"
in_environment shinka-evolve==0.0.7 <<'PYTHON'
from shinka.edit import apply_diff_patch

PROGRAM = """# EVOLVE-BLOCK-START
a = 12
a = 1
b = 2
c = 3
# EVOLVE-BLOCK-END
"""


def edit(search, replace):
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def program(*edits):
    text, applied, _, error, _, _ = apply_diff_patch("\n".join(edits), PROGRAM, verbose=False)
    print(f"{applied} of {len(edits)} edits, error {error}:\n{text}\n")
    assert error is None
    return text.splitlines()[1:-1]


assert program(edit("b = 2", "")) == ["a = 12", "a = 1", "", "c = 3"]
lines = program(edit("b = 2", ""), edit("c = 3", "c = 4"))
assert lines[2] == ">>>>>>> REPLACE" and "<<<<<<< SEARCH" in lines and "c = 4" in lines and lines[-1] == "c = 3"
assert program(edit("a = 1", "a = 5"))[:2] == ["a = 52", "a = 1"]
PYTHON
