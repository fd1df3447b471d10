"""Writes cases.jsonl of the example `tide_forecast`, into the current folder.

A made-up harbour, four real tidal periods, and a gauge that errs by 0.05 m.
"""

from __future__ import annotations

import json
import math
import random

MEAN = 0.35
WAVES = [
    (12.4206, 1.2, 3.1),
    (12.0, 0.4, 1.7),
    (23.9345, 0.3, 6.2),
    (25.8193, 0.2, 11.5),
]  # period, height, delay
SPLITS = ["train"] * 8 + ["val"] * 4 + ["test"] * 4


def gauge_level(hour: int, rng: random.Random) -> float:
    """The level at an hour, in metres, as the gauge has it."""
    waves = sum(
        height * math.cos(2 * math.pi * (hour - delay) / period) for period, height, delay in WAVES
    )
    return round(MEAN + waves + rng.gauss(0, 0.05), 3)


if __name__ == "__main__":
    rng = random.Random(12)
    with open("cases.jsonl", "w", encoding="utf-8") as file:
        for day, split in enumerate(SPLITS):
            hours = [96 * day + h for h in range(0, 48, 2)]
            case = {
                "id": f"{split}-{day + 1}",
                "input": hours,
                "info": [gauge_level(h, rng) for h in hours],
                "split": split,
            }
            file.write(json.dumps(case) + "\n")
