"""Expert loads: the public file format, and a generator of skewed, drifting loads in it.

A file is a JSON object {"load_history": [{"logical_expert_load": [[...], ...]}, ...]}: an entry for every step of the
serving engine, in it a list for every layer, in that the tokens each logical expert got. Placements are made anew every
`INTERVAL` steps, from the sum over the interval that just ended. A file may say "steps_per_entry": N if its entries are
already sums over N steps; `shrink` writes such files, which are a hundred times smaller.

    python loads.py shrink expert-load.json data/expert-load.json
"""

import argparse
import json
import sys

import numpy as np

INTERVAL = 100  # steps between two placements
LAYERS, EXPERTS, GROUPS = 58, 256, 8  # of the model the public file was recorded from
TOKENS = 2048 * 8  # tokens of a step, times the experts that each is routed to
# exponent: of the Zipf law, drawn evenly for each layer; drift: standard deviation of the wandering log popularity;
# burst: how likely a burst begins in an interval; share: of the tokens, that the bursting domain then takes
TRACES = {
    "steady": {"exponent": (0.3, 0.9), "drift": 0.10, "burst": 0.0, "share": 0.0},
    "shifting": {"exponent": (0.3, 0.9), "drift": 0.20, "burst": 0.25, "share": 0.5},
    "skewed": {"exponent": (0.6, 1.2), "drift": 0.15, "burst": 0.1, "share": 0.5},
    "mixed": {"exponent": (0.3, 1.2), "drift": 0.20, "burst": 0.25, "share": 0.7},
}
MEMORY = 0.8  # share of a deviation that is still there an interval later
ENDING = 0.5  # how likely a burst ends in an interval
FLAT = 2  # added to ranks in the Zipf law: the first few experts are alike (Mandelbrot)
DOMAINS = 4  # kinds of requests; each has its own popular experts
COMMON, SHARED = 0.7, 0.25  # shares of the variance behind an expert's rank: common to domains; shared within a group
MIX = 0.5  # standard deviation of the log weight of a domain in the mix of requests


class LoadError(ValueError):
    """The file does not have the public format; the text says where."""


def read(path):
    """The file's intervals, a list of arrays of shape (layers, experts), whole numbers; raises LoadError."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise LoadError(f"{path} is not valid JSON: {error}") from None
    history = data.get("load_history") if isinstance(data, dict) else None
    if not isinstance(history, list) or not history:
        raise LoadError(f"{path} has no list 'load_history' with entries")
    steps = data.get("steps_per_entry", 1)
    if type(steps) is not int or steps < 1 or INTERVAL % steps:
        raise LoadError(f"{path}: steps_per_entry must be a whole number that divides {INTERVAL}, not {steps!r}")
    entries = [_entry(path, number, entry) for number, entry in enumerate(history)]
    odd = next((number for number, entry in enumerate(entries) if entry.shape != entries[0].shape), None)
    if odd is not None:
        raise LoadError(f"{path}: entry {odd} has shape {entries[odd].shape}, the first one {entries[0].shape}")
    each = INTERVAL // steps
    whole = len(entries) // each  # a last interval that is not complete would look like a drop of all loads
    if whole < 2:
        raise LoadError(f"{path} holds {len(entries) * steps} steps, two intervals of {INTERVAL} are needed at least")
    return [sum(entries[place * each : (place + 1) * each]) for place in range(whole)]


def _entry(path, number, entry):
    """One step's loads, shape (layers, experts)."""
    if not isinstance(entry, dict) or "logical_expert_load" not in entry:
        raise LoadError(f"{path}: entry {number} has no 'logical_expert_load'")
    try:
        loads = np.array(entry["logical_expert_load"])
    except ValueError:
        raise LoadError(f"{path}: entry {number}: the layers have different numbers of experts") from None
    if loads.ndim != 2 or not loads.size or loads.dtype.kind not in "iuf":
        raise LoadError(f"{path}: entry {number} must be a list of numbers for every layer")
    if not np.isfinite(loads).all() or (loads < 0).any() or (loads != np.floor(loads)).any():
        raise LoadError(f"{path}: entry {number}: loads must be whole numbers, 0 or more")
    return loads.astype(np.int64)


def generate(
    seed, entries, trace="steady", steps=INTERVAL, layers=LAYERS, experts=EXPERTS, groups=GROUPS, tokens=TOKENS
):
    """That many entries of made-up loads, each the sum over `steps` steps: a list of arrays (layers, experts).

    In every layer and domain of requests, experts are popular by a Zipf law with the layer's exponent. Their log
    popularity and the mix of domains wander (first-order autoregression); in a burst one domain takes a share of all
    tokens, in all layers at once. Counts are Poisson.
    """
    kind, rng = TRACES[trace], np.random.default_rng(seed)
    kept, begins, ends = (
        MEMORY ** (steps / INTERVAL),
        *(1 - (1 - chance) ** (steps / INTERVAL) for chance in (kind["burst"], ENDING)),
    )
    popular = _popularity(rng, kind["exponent"], layers, experts, groups)
    drift, mix = rng.normal(0, kind["drift"], (layers, experts)), rng.normal(0, MIX, DOMAINS)
    burst = int(rng.integers(DOMAINS)) if rng.random() < begins / (begins + ends) else None
    made = []
    for _ in range(entries):
        weights = np.exp(mix) / np.exp(mix).sum()
        if burst is not None:
            weights = (1 - kind["share"]) * weights + kind["share"] * (np.arange(DOMAINS) == burst)
        share = np.tensordot(weights, popular, 1) * np.exp(drift)
        made.append(rng.poisson(tokens * steps * share / share.sum(axis=1, keepdims=True)))
        drift = kept * drift + np.sqrt(1 - kept**2) * rng.normal(0, kind["drift"], drift.shape)
        mix = kept * mix + np.sqrt(1 - kept**2) * rng.normal(0, MIX, DOMAINS)
        if burst is None:
            burst = int(rng.integers(DOMAINS)) if rng.random() < begins else None
        elif rng.random() < ends:
            burst = None
    return made


def _popularity(rng, exponents, layers, experts, groups):
    """Each expert's share of a domain's tokens, shape (DOMAINS, layers, experts)."""
    together = rng.normal(0, np.sqrt(SHARED), (DOMAINS + 1, layers, groups))
    own = rng.normal(0, np.sqrt(1 - SHARED), (DOMAINS + 1, layers, experts))
    common, *each = np.repeat(together, experts // groups, axis=2) + own
    liking = np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * np.array(each)
    ranks = 1 + np.argsort(np.argsort(-liking, axis=2), axis=2)
    law = (ranks + FLAT) ** -rng.uniform(*exponents, (layers, 1))
    return law / law.sum(axis=2, keepdims=True)


def write(path, entries, steps=1):
    """Write entries (arrays of shape (layers, experts), each the sum over `steps` steps) in the public format."""
    history = [{"logical_expert_load": entry.tolist()} for entry in entries]
    data = {"load_history": history} if steps == 1 else {"steps_per_entry": steps, "load_history": history}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, separators=(",", ":"))


def main():
    parser = argparse.ArgumentParser(description="Expert loads in the public format.")
    parser.add_argument("command", choices=["shrink"], help="sum a file's steps over the intervals between placements")
    parser.add_argument("source")
    parser.add_argument("file")
    options = parser.parse_args()
    try:
        write(options.file, read(options.source), INTERVAL)
    except (LoadError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
