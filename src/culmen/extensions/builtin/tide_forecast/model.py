"""The level as a sum of waves around a mean."""

import json
import math
from pathlib import Path

CONSTANTS = json.loads(Path(__file__).with_name("constants.json").read_text())


def level(hour):
    total = CONSTANTS["mean"]
    for wave in CONSTANTS["waves"]:
        total += wave["height"] * math.cos(2 * math.pi * (hour - wave["delay"]) / wave["period"])
    return total


def forecast(hours):
    return [level(hour) for hour in hours]
