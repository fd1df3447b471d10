"""Scores placements of experts: how even the devices' load is on the next interval, and how fast the placement came.

The program runs in another process; this one holds the loads, the clock and the counts. Four things keep it honest:
- every call brings a load that was not seen before, its layers shuffled and its experts renumbered (within and across
  groups), so an answer that was computed earlier is worth nothing;
- loads come in threes: the fastest of three calls counts for speed, the most uneven of the three placements for
  balancedness. A busy machine then harms little, and quick bad answers cannot be mixed with slow good ones;
- how often an expert was replicated is counted here;
- speed lies between 0 and 1, so no time is too short to be true, and grows with every millisecond less.
"""

import time
from pathlib import Path
from zlib import crc32

import loads
import numpy as np

SLOTS, GROUPS, NODES, DEVICES = 288, 8, 4, 32
HALF = 0.02 / 58  # seconds per layer at which speed is 1/2: 20 ms for the 58 layers of the published set-up
PAIRS, AT_ONCE = 12, 3
HISTORY = Path(__file__).with_name("data") / "expert-load.json"
RECORDED = loads.read(HISTORY) if HISTORY.exists() else None  # a file of the wrong format is reported before any run
if RECORDED is not None and (RECORDED[0].shape[1] % GROUPS or RECORDED[0].shape[1] > SLOTS):
    raise ValueError(f"{HISTORY} has {RECORDED[0].shape[1]} experts: fit SLOTS and GROUPS in evaluator.py to them")


def score(call, case, seed):
    rng = np.random.default_rng([seed, crc32(case.id.encode())])
    first, *pairs = drawn(rng, case.info, PAIRS + 1)
    layers, experts = first[0].shape
    ask(call, shuffled(rng, *first)[0])  # not timed: the first call may still import something
    balance, seconds, worst = [], [], []
    for low in range(0, len(pairs), AT_ONCE):
        evenness, times = [], []
        for load, following in pairs[low : low + AT_ONCE]:
            load, following, rows = shuffled(rng, load, following)
            taken, placed = ask(call, load)
            fault = invalid(placed, layers, experts)
            if fault:
                return {"score": None, "feedback": fault}
            even, layer = balancedness(np.asarray(placed), following)
            evenness.append((even, int(rows[layer])))
            times.append(taken)
        balance.append(min(evenness)[0])
        worst.append(min(evenness)[1])
        seconds.append(min(times))
    return judged(balance, seconds, worst, HALF * layers)


def judged(balance, seconds, worst, half):
    """The mean over the intervals, with what a person or a model wants to know."""
    speed = [half / (half + taken) for taken in seconds]
    result = float(np.mean([(even + quick) / 2 for even, quick in zip(balance, speed)]))
    layer = worst[int(np.argmin(balance))]
    feedback = (
        f"balancedness {np.mean(balance):.4f} (worst {min(balance):.4f}, where layer {layer} is most uneven), "
        f"speed {np.mean(speed):.4f}: {1000 * np.mean(seconds):.1f} ms a call, {1000 * half:.1f} ms are worth 0.5"
    )
    metrics = {"balancedness": np.mean(balance), "speed": np.mean(speed), "milliseconds": 1000 * np.mean(seconds)}
    return {"score": result, "metrics": {key: float(value) for key, value in metrics.items()}, "feedback": feedback}


def drawn(rng, info, count):
    """Pairs of an interval's load and the next one's: of the file if there is one, else made up, no two alike."""
    if RECORDED is None:
        return [tuple(loads.generate(rng, 2, info["trace"])) for _ in range(count)]
    low, high = (round(share * (len(RECORDED) - 1)) for share in info["part"])
    low = min(low, len(RECORDED) - 2)
    there = np.arange(low, max(high, low + 1))
    firsts = rng.choice(there, count, replace=len(there) < count)
    return [(RECORDED[first], RECORDED[first + 1]) for first in firsts]


def renumbering(rng, layers, experts):
    """For every layer an order of its experts that keeps groups together; shape (layers, experts)."""
    size = experts // GROUPS
    groups = np.argsort(rng.random((layers, GROUPS)), axis=1)
    within = np.argsort(rng.random((layers, GROUPS, size)), axis=2)
    return (groups[:, :, None] * size + within).reshape(layers, experts)


def shuffled(rng, load, following):
    """Both loads, layers in the same new order and experts renumbered, and the old number of each layer."""
    rows = rng.permutation(len(load))
    order = renumbering(rng, *load.shape)
    return *(np.take_along_axis(each[rows], order, axis=1) for each in (load, following)), rows


def ask(call, load):
    """Wall seconds of one call, and its answer; of the published function's three results only the first counts."""
    begun = time.perf_counter()
    placed = call(load, SLOTS, GROUPS, NODES, DEVICES)
    taken = time.perf_counter() - begun
    if isinstance(placed, list) and len(placed) == 3 and np.ndim(placed[0]) == 2:
        placed = placed[0]
    return taken, placed


def invalid(placed, layers, experts):
    """Why this is no placement, "" if it is one."""
    try:
        chosen = np.asarray(placed)
    except ValueError:
        return "place() must return as many slots for every layer"
    if chosen.shape != (layers, SLOTS):
        return f"place() must return an array of shape ({layers}, {SLOTS}), not {chosen.shape}"
    if chosen.dtype.kind not in "iu":
        return f"the experts in the slots must be whole numbers, not {chosen.dtype}"
    if chosen.min() < 0 or chosen.max() >= experts:
        wrong = chosen.min() if chosen.min() < 0 else chosen.max()
        return f"experts are numbered 0 to {experts - 1}, there is a {wrong}"
    missing = replicas(chosen, experts) == 0
    if missing.any():
        layer, expert = np.argwhere(missing)[0]
        return f"layer {layer}: expert {expert} is in no slot ({int(missing.sum())} missing in all layers)"
    return ""


def replicas(placed, experts):
    """In how many slots each expert is, shape (layers, experts)."""
    layers = placed.shape[0]
    flat = placed.astype(np.int64) + experts * np.arange(layers)[:, None]
    return np.bincount(flat.ravel(), minlength=layers * experts).reshape(layers, experts)


def balancedness(placed, load):
    """Sum over layers of the mean device load divided by the sum of the largest ones, and the most uneven layer."""
    each = load / replicas(placed, load.shape[1])
    devices = np.take_along_axis(each, placed.astype(np.int64), axis=1).reshape(len(load), DEVICES, -1).sum(axis=2)
    mean, most = devices.mean(axis=1), devices.max(axis=1)
    if not most.sum():
        return 1.0, 0
    uneven = np.divide(mean, most, out=np.ones_like(mean), where=most > 0)
    return float(mean.sum() / most.sum()), int(uneven.argmin())
