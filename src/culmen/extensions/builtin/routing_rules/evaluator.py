"""Scores routing rules on one message: 1 if it is sent to the right desk, else 0.

The message is damaged first: every word is dropped with probability 0.15, drawn from the evaluation's seed. So the
same rules score differently on the same message from one evaluation to the next, and one success proves little.
"""

import random
import re

DESKS = ("billing", "shipping", "technical", "account")
DROP = 0.15
MOST = 60


def score(parts, case, seed):
    try:
        rules = parse(parts["rules.txt"])
    except ValueError as error:
        return {"score": None, "feedback": str(error)}
    words = set(damage(case.input, random.Random(f"{seed}/{case.id}")))
    number, desk = decide(rules, words)
    right = desk == case.info
    by = f"line {number}" if number else "no rule"
    feedback = f"{'right' if right else 'wrong'}: {case.input!r} went to {desk} by {by}, it belongs to {case.info}"
    return {"score": 1.0 if right else 0.0, "feedback": feedback, "metrics": {"rules": len(rules)}}


def parse(text):
    """[(line number, words, desk)]; ValueError names the line that is no rule."""
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        left, arrow, desk = line.partition("->")
        words, desk = set(left.lower().split()), desk.strip()
        if not arrow or not words or desk not in DESKS:
            raise ValueError(f"line {number} is no rule: write `word word -> desk`, desk one of {', '.join(DESKS)}")
        rules.append((number, words - {"*"}, desk))
    if len(rules) > MOST:
        raise ValueError(f"{len(rules)} rules, at most {MOST} are allowed")
    return rules


def damage(message, rng):
    return [word for word in re.findall(r"[a-z0-9']+", message.lower()) if rng.random() >= DROP]


def decide(rules, words):
    """The line and desk of the first rule that applies, or (0, "nobody")."""
    return next(((number, desk) for number, needed, desk in rules if needed <= words), (0, "nobody"))
