"""Judges a text by the sentences in it, with a little noise where a case has some."""

import json
import random
from pathlib import Path

HINTS = json.loads(Path(__file__).with_name("hints.json").read_text(encoding="utf-8"))


def score(parts, case, seed):
    quality = min(
        1.0,
        max(0.0, 0.15 + sum(worth for hint, worth in HINTS.items() if hint in parts["text.txt"])),
    )
    wanted = case.info["difficulty"]
    noise = random.Random(seed).gauss(0.0, case.info.get("noise", 0.0))
    worth = (
        1.0
        if quality >= wanted and not noise
        else min(1.0, max(0.0, quality / wanted * 0.95 + noise))
    )
    feedback = "solved" if worth == 1.0 else "not good enough yet"
    metrics = {
        "speed_up": 1.2 * quality / wanted,
        "quality": quality,
        "steps": float(len(parts["text.txt"].split())),
    }
    return {"score": worth, "feedback": feedback, "metrics": metrics}
