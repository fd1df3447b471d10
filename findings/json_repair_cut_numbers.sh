#!/usr/bin/env bash
# json-repair 0.64.6
# A number without quotes that is followed by more is mostly cut to its first part:
# 8 out of 10 is 8, 12:30 is 12, 1 000 is 1, 2**3 is 2; but 1/3, 3-4 and 1,5 stay texts. A minus before what is not
# a plain number is lost: -inf is the text "inf", while -Infinity is the number.
. "$(dirname "$0")/environment.sh"
in_environment json-repair==0.64.6 <<'PYTHON'
import json_repair

replies = ("8 out of 10", "12:30", "1 000", "2**3", "1/3", "3-4", "1,5", "-inf", "-Infinity", "-(5)")
seen = {text: json_repair.loads('{"score": %s}' % text)["score"] for text in replies}
for text, found in seen.items():
    print(f"{text} -> {found!r}")
assert list(seen.values()) == [8, 12, 1, 2, "1/3", "3-4", "1,5", "inf", float("-inf"), ""]
PYTHON
