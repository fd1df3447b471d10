"""Writes cases.jsonl of the example `bin_packing`, into the current folder.

Bins are cut into three items each, so that the fewest bins possible are known.
"""

from __future__ import annotations

import json
import random

CAPACITY, BINS = 100, 20
SPLITS = ["train"] * 12 + ["val"] * 6 + ["test"] * 6


def draw_items(rng: random.Random) -> list[int]:
    """Sizes of the items of `BINS` full bins, in random order."""
    items: list[int] = []
    for _ in range(BINS):
        first = rng.randint(38, 49)
        second = rng.randint(26, 36)
        items += [first, second, CAPACITY - first - second]
    rng.shuffle(items)
    return items


if __name__ == "__main__":
    rng = random.Random(26)
    with open("cases.jsonl", "w", encoding="utf-8") as file:
        for number, split in enumerate(SPLITS, 1):
            case = {
                "id": f"{split}-{number}",
                "input": {"capacity": CAPACITY, "items": draw_items(rng)},
                "info": {"bins": BINS},
                "split": split,
            }
            file.write(json.dumps(case) + "\n")
