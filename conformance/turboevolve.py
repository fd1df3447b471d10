"""TurboEvolve: K's schedule (Section 3.2) and copy-and-mix (Section 3.3). No culmen needed."""

import json
import sys
from fractions import Fraction
from math import ceil, floor


def check_schedule(trace):
    """Faults of one island's K: `turns` has each turn's `k` and its candidates' `outcomes`."""
    k, updates, seen = trace["start"], 0, -trace["warmup"]
    for number, turn in enumerate(trace["turns"], 1):
        if turn["k"] != k:
            yield f"turn {number}: K is {turn['k']}, by the rule {k}"
            return
        seen += 1
        updates += seen > 0 and any(each in trace["updates"] for each in turn["outcomes"])
        if seen == trace["window"]:
            step = trace["step"] * ((updates == 0) - (updates == trace["window"]))
            k, updates, seen = min(trace["most"], max(trace["least"], k + step)), 0, 0


def check_mix(mix):
    """Faults of copy-and-mix: `mixed` clusters made of `clusters`, by `scores` of their seeds."""
    d, rho = Fraction(str(mix["d"])), Fraction(str(mix["rho"]))
    ranked = [sorted(each, key=lambda seed: -mix["scores"][seed]) for each in mix["clusters"]]
    pool = {seed for each in ranked for seed in each[: ceil(d * len(each))]}
    for own, mixed in zip(ranked, mix["mixed"], strict=True):
        guests = [seed for seed in mixed if seed not in own]
        room = min(floor(d * len(own)), len(pool - set(own)), len(own) - ceil(rho * len(own)))
        if len(guests) != room or not pool.issuperset(guests) or len(set(mixed)) != len(own):
            yield f"cluster {own}: the guests {guests} are not {room} of the pool {sorted(pool)}"
        if set(mixed) - set(guests) != set(own[: len(own) - room]):
            yield f"cluster {own}: the worst {room} had to leave, not others"


def check(document):
    """All faults of a document, in words."""
    for trace in document.get("schedules", ()):
        yield from check_schedule(trace)
    for mix in document.get("mixes", ()):
        yield from check_mix(mix)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        faults = list(check(json.load(file)))
    sys.exit("\n".join(faults) or 0)
