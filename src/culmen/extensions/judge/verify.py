"""Verify receipts of culmen with Python alone: python3 verify.py RECEIPT...

Exit code 1 if a receipt was changed, or claims another verdict or interval than its raw values
give. Tests may be looked at after every pair: bets on the sign of a difference, with a stake that
its size decides. If before and after are alike, the sign is a fair coin whatever the size, so
wealth exceeds 1/alpha with probability alpha at most (de la Pena, A general class of exponential
inequalities, 1999, section 6; pass or fail: Waudby-Smith and Ramdas, 2024, section 4).
"""

import base64
import bisect
import hashlib
import json
import math
import sys
from itertools import accumulate

STAKES = (0.25, 0.5, 1.0, 2.0)  # gains in standard deviations of a difference that are betted on
SHARES = (0.1, 0.2, 0.4, 0.8)  # of the wealth, on a difference of pass and fail
LARGEST = 6.0  # standard deviations: a larger difference, or a failure, counts as this
BETTER, WORSE, EQUAL, UNTOLD = "better", "worse", "no difference that matters", "cannot tell"


def digest(value):
    """SHA-256 (hex) of plain data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def is_swapped(seed, number):
    """True if the edited side is measured first in this pair."""
    return int(digest([seed, number])[:8], 16) % 2 == 1


def improvement(bar, pair):
    """Gain of one pair; a side that failed loses by infinity, and two that failed tell nothing."""
    before, after = pair["before"], pair["after"]
    if before is None or after is None:
        return None if before is after else math.inf if before is None else -math.inf
    return after - before if bar["direction"] == "max" else before - after


def unit_of(bar, pair):
    """The unit of gains: 1, or the size of the value before the edit."""
    return abs(pair["before"] or 1.0) if bar["relative"] else 1.0


def shows(bar, pairs, gain, side):
    """True if the pairs show a gain above (`side` 1) or below (-1) `gain`."""
    wealth, peak, sizes = [1.0] * len(STAKES), 1.0, []
    for pair in pairs:
        value = improvement(bar, pair)
        difference = 0.0 if value is None else side * (value - gain * unit_of(bar, pair))
        if difference and bar["passes"]:
            bets = [share * difference / (1.0 + abs(gain)) for share in SHARES]
        elif difference:
            bisect.insort(sizes, abs(difference))
            middle = sizes[len(sizes) // 2]
            ratio = math.copysign(1.0, difference) if middle == math.inf else difference / middle
            deviations = max(-LARGEST, min(LARGEST, 0.6745 * ratio))
            bets = [math.tanh(stake * deviations) for stake in STAKES]
        else:
            continue
        wealth = [part * (1.0 + bet) for part, bet in zip(wealth, bets)]
        peak = max(peak, sum(wealth) / len(wealth))
    exact = bar["exact"] and min(side * (improvement(bar, pair) - gain) for pair in pairs) > 0
    return exact or peak >= 1.0 / bar["alpha"]


def verdict(bar, pairs):
    """The verdict on the pairs so far; "" while more are needed."""
    gains = [(improvement(bar, pair), bar["gain"] * unit_of(bar, pair)) for pair in pairs]
    known = [(gain, most) for gain, most in gains if gain is not None]
    is_small = sum(g - m for g, m in known) < 0 < sum(g + m for g, m in known)  # on the mean, too
    if is_small and all(shows(bar, pairs, -side * bar["gain"], side) for side in (1, -1)):
        return EQUAL
    told = BETTER if shows(bar, pairs, 0.0, 1) else WORSE if shows(bar, pairs, 0.0, -1) else ""
    return told or (UNTOLD if len(pairs) >= bar["pairs"] else "")


def interval(bar, pairs):
    """Bounds of the gain that the pairs leave, each at level alpha; None: no bound."""
    known = [pair for pair in pairs if None not in (pair["before"], pair["after"])]
    gains = [(improvement(bar, pair) or 0.0) / unit_of(bar, pair) for pair in known]
    return [bound(bar, pairs, min(gains), max(gains), side) if gains else None for side in (1, -1)]


def bound(bar, pairs, least, most, side):
    """One bound of the gain, by bisection, given the extremes that were seen."""
    width = most - least or abs(most) or 1.0
    out, kept = (least - width, most) if side > 0 else (most + width, least)
    out = max(-1.0, min(1.0, out)) if bar["passes"] else out
    if not shows(bar, pairs, out, side):
        return None
    for _ in range(40):
        middle = (out + kept) / 2
        out, kept = (middle, kept) if shows(bar, pairs, middle, side) else (out, middle)
    return out


def chain(bar, pairs):
    """The digests that tie every pair to the bar and to all pairs before it."""
    return list(accumulate(pairs, lambda link, pair: digest([link, pair]), initial=digest(bar)))


def comparison_faults(bar, pairs, one):
    """Yield the faults of one comparison."""
    if chain(bar, pairs) != one["links"]:
        yield "bar and values are not those of the comparison"
    if bar["ask"]:  # of a session of judgements
        if bar["alpha"] != bar["error"] / (bar["ask"] * (bar["ask"] + 1)):
            yield "the error rate is not the one that the session had left"
        if any(is_swapped(bar["seed"], n) != pair["swapped"] for n, pair in enumerate(pairs)):
            yield "the order of the runs is not the one that was drawn"
        if any(verdict(bar, pairs[:number]) for number in range(1, len(pairs))):
            yield "the comparison goes on after its verdict"
    bounds = list(zip(interval(bar, pairs), one["interval"]))
    nulls = all((a is None) == (b is None) for a, b in bounds)
    near = all(math.isclose(a or 0, b or 0, rel_tol=1e-6, abs_tol=1e-9) for a, b in bounds)
    if verdict(bar, pairs) != one["verdict"] or not (nulls and near):
        yield "verdict or interval does not follow from the values"


def faults(receipt):
    """Yield the faults of a receipt."""
    if digest({key: value for key, value in receipt.items() if key != "seal"}) != receipt["seal"]:
        yield "it was changed after it was written"
    for one in receipt["comparisons"]:
        yield from comparison_faults(one["bar"], one["pairs"], one)
    told = [one["verdict"] for one in receipt["comparisons"]]
    if receipt["verdict"] != next((each for each in told if each != BETTER), BETTER):
        yield "the verdict is not that of its comparisons"
    link = base64.b64decode(receipt["journal"]["origin"])
    for row in receipt["journal"]["rows"]:  # MessagePack: a list of the hash before and 12 columns
        content = b"\x9d\xc4\x10" + link + base64.b64decode(row)
        link = hashlib.blake2b(content, digest_size=16).digest()
    if base64.b64encode(link).decode() != receipt["journal"]["hash"]:
        yield "the journal is not whole"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as stream:
            document = json.load(stream)
        if fault := next(faults(document), ""):
            sys.exit(f"{name}: refused: {fault}")
        shown = [one["interval"] for one in document["comparisons"]]
        sys.stdout.write(f"{name}: {document['verdict']}, gain within {shown}\n")
