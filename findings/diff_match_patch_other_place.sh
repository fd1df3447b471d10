#!/usr/bin/env bash
# diff-match-patch 20241021
# A patch is applied at the most similar place, with the result True: an edit of f, whose text has changed since,
# changes g, and an edit of a program is "applied" to a text that has nothing of it.
. "$(dirname "$0")/environment.sh"
in_environment diff-match-patch==20241021 <<'PYTHON'
from diff_match_patch import diff_match_patch

matcher = diff_match_patch()
edit = matcher.patch_make("def f(x):\n    return x + 1\n", "def f(x):\n    return x + 2\n")
program = "def f(y):\n    return y + 1\n\ndef g(x):\n    return x + 1\n"
other, applied = matcher.patch_apply(edit, program)
print(applied, repr(other))
assert applied == [True] and other == program.replace("x + 1", "x + 2")
prose, applied = matcher.patch_apply(edit, "completely other text\nwithout it\n")
print(applied, repr(prose))
assert applied == [True] and prose == "completely other text\nwithout 2\n"
PYTHON
