#!/usr/bin/env bash
# lm_eval 0.4.13
# The filter "flexible-extract" of the task gsm8k takes the last run of digits, dots, commas and dollar signs, so that
# three dots after an answer are the answer, and "18.." is wrong where "18." is right. 1e3 is 3, and $1,000.00 is not 1000.
. "$(dirname "$0")/environment.sh"
in_environment lm_eval==0.4.13 <<'PYTHON'
import pathlib

import lm_eval
import yaml
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter

task = yaml.safe_load((pathlib.Path(lm_eval.__file__).parent / "tasks/gsm8k/gsm8k.yaml").read_text())
[pattern] = [rule for rule in task["filter_list"] if rule["name"] == "flexible-extract"]
arguments = {name: value for name, value in pattern["filter"][0].items() if name != "function"}
ignored = task["metric_list"][0]["regexes_to_ignore"]


def scored(reply, answer):
    [[found]] = RegexFilter(**arguments).apply([[reply]], [{}])
    right = exact_match_hf_evaluate(predictions=[found], references=[answer], regexes_to_ignore=ignored)
    return found, float(right["exact_match"])


replies = [("It is 18.", "18"), ("18 apples, that is all...", "18"), ("It is 18..", "18"), ("1e3", "1000"), ("$1,000.00", "1000")]
seen = [scored(reply, answer) for reply, answer in replies]
for (reply, answer), (found, right) in zip(replies, seen):
    print(f"{reply!r}, {answer}: takes {found!r}, scores {right:.0f}")
assert seen == [("18.", 1.0), ("...", 0.0), ("18..", 0.0), ("3", 0.0), ("$1,000.00", 0.0)]
PYTHON
