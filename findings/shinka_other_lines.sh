#!/usr/bin/env bash
# shinka-evolve 0.0.7
# An edit of one line also changes others, outside of the EVOLVE-BLOCK too: spaces at their ends go, also inside of
# strings, and a form feed or U+2028 in a string becomes a line end, so that the program is no Python any more.
. "$(dirname "$0")/environment.sh"
in_environment shinka-evolve==0.0.7 <<'PYTHON'
from shinka.edit import apply_diff_patch

EDIT = "<<<<<<< SEARCH\nb = 2\n=======\nb = 3\n>>>>>>> REPLACE\n"


def edited(outside):
    """The program's text around the block after an edit inside of it."""
    program = f"{outside}\n# EVOLVE-BLOCK-START\nb = 2\n# EVOLVE-BLOCK-END\n"
    text, applied, _, error, _, _ = apply_diff_patch(EDIT, program, verbose=False)
    print(f"{outside!r} becomes {text.split('# EVOLVE')[0]!r}, {applied} edit, error {error}")
    assert (applied, error) == (1, None)
    return text


found = {}
exec(edited("rows = '''one  \ntwo'''"), found)
assert (found["rows"], found["b"]) == ("one\ntwo", 3)
for character in ("\f", "\u2028"):
    text = edited(f"page = 'a{character}b'")
    assert text.startswith("page = 'a\nb'")
    try:
        compile(text, "program.py", "exec")
    except SyntaxError as error:
        print("no Python any more:", error)
    else:
        raise AssertionError(text)
PYTHON
