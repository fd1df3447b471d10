#!/usr/bin/env bash
# patch-ng 1.19.1
# A patch of two files of which the second does not apply: apply() returns False, and the first file has changed.
# A hunk whose header counts fewer lines than it has: True, and the lines beyond the count are not applied.
. "$(dirname "$0")/environment.sh"
in_environment patch-ng==1.19.1 <<'PYTHON'
import pathlib
import tempfile

import patch_ng


def applied(patch, **files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            pathlib.Path(folder, name).write_text(text)
        result = patch_ng.fromstring(patch.encode()).apply(root=folder)
        return result, {name: pathlib.Path(folder, name).read_text() for name in files}


edit = "--- a/{0}\n+++ b/{0}\n@@ -1,1 +1,1 @@\n-b\n+c\n"
both = applied(edit.format("first") + edit.format("second"), first="b\n", second="z\n")
print("the second file differs:", both)
assert both == (False, {"first": "c\n", "second": "z\n"})
short = applied("--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n a\n-b\n+c\n", f="a\nb\n")
print("a hunk counted short:", short)
assert short == (True, {"f": "a\nb\n"})
PYTHON
