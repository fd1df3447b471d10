"""Trains a candidate's model and ranks what users viewed next. Targets, metrics and the clock are in this process only.

The program runs in another one: `fit` gets every user's history before the target; `rank` gets histories again, some
users at a time, and returns a score for every video of the catalogue. What a program says of itself is not looked at.
"""

import time
from pathlib import Path

import interactions
import numpy as np

SETTINGS = {
    "tiny": {
        "history": 32, "width": 32, "blocks": 4, "heads": 2, "epochs": 16, "batch": 40, "negatives": 64,
        "rate": 4e-3, "dropout": 0.1, "chunk": 32, "device": "cpu", "budget": 120.0,
    },
    "paper": {
        "history": 1024, "width": 128, "blocks": 4, "heads": 4, "epochs": 16, "batch": 32, "negatives": 128,
        "rate": 1e-3, "dropout": 0.2, "chunk": 128, "device": "auto", "budget": 1200.0,
    },
}  # fmt: skip
AT_ONCE = 128  # users in a call of rank(), so that an answer stays far below the 64 MB a call may bring
FOLDER = Path(__file__).with_name("data")
FILE = next((FOLDER / name for name in ("interactions.npz", "big_matrix.csv") if (FOLDER / name).exists()), None)
MADE = {"seed": 7, "users": 500, "videos": 300, "topics": 15, "mean": 36}
SEQUENCES = interactions.load(FILE) if FILE else interactions.sequences(*interactions.generate(**MADE))


def score(call, case, seed):
    return evaluated(call, call.named, case.info, seed)


def evaluated(fit, named, info, seed):
    """The judgement of one program: `fit(...)` and `named("rank", ...)` are its functions."""
    settings = {**SETTINGS[info["settings"]], "seed": seed % (1 << 31)}
    videos, seconds, offsets, targets, catalogue = before(SEQUENCES, info["back"], settings["history"])
    budget, spent = settings["budget"], time.monotonic()
    fit(videos, seconds, offsets, catalogue, settings)
    ranks = []
    for low in range(0, len(targets), AT_ONCE):
        if time.monotonic() - spent > budget:
            break
        high = min(low + AT_ONCE, len(targets))
        rows = slice(offsets[low], offsets[high])
        scores = named("rank", videos[rows], seconds[rows], offsets[low : high + 1] - offsets[low])
        fault = invalid(scores, high - low, catalogue)
        if fault:
            return {"score": None, "feedback": fault}
        ranks.append(ranked(scores, targets[low:high]))
    spent = time.monotonic() - spent
    if spent > budget:
        return {"score": None, "feedback": f"training and scoring took {spent:.1f} s, {budget:.0f} s are allowed"}
    return judged(np.concatenate(ranks), spent, catalogue)


def before(sequences, back, history):
    """Every user's last `history` views before the one that is `back` from the end, and that one as the target."""
    videos, seconds, offsets, catalogue = sequences
    targets = videos[offsets[1:] - back]
    rows = [np.arange(max(start, end - back - history), end - back) for start, end in zip(offsets, offsets[1:])]
    chosen = np.concatenate(rows)
    return videos[chosen], seconds[chosen], np.r_[0, np.cumsum([len(each) for each in rows])], targets, catalogue


def invalid(scores, users, catalogue):
    """Why these are no scores, "" if they are."""
    if not isinstance(scores, np.ndarray) or scores.shape != (users, catalogue):
        found = getattr(scores, "shape", type(scores).__name__)
        return f"rank() must return an array of shape ({users}, {catalogue}), not {found}"
    if scores.dtype.kind != "f":
        return f"rank() must return floating point numbers, not {scores.dtype}"
    return "" if np.isfinite(scores).all() else "scores must be finite"


def ranked(scores, targets):
    """The rank of each target, from 1; videos with the same score as the target's count as better."""
    mine = np.take_along_axis(scores, targets[:, None], axis=1)
    return (scores >= mine).sum(axis=1)


def judged(ranks, spent, catalogue):
    """Metrics of one relevant video among all."""
    found = {
        "ndcg_at_10": float(np.mean(np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0))),
        "hit_rate_at_10": float(np.mean(ranks <= 10)),
        "mrr": float(np.mean(1 / ranks)),
    }
    more = {
        "ndcg_at_50": float(np.mean(np.where(ranks <= 50, 1 / np.log2(ranks + 1), 0))),
        "hit_rate_at_50": float(np.mean(ranks <= 50)),
    }
    feedback = (
        f"NDCG@10 {found['ndcg_at_10']:.4f}, HR@10 {found['hit_rate_at_10']:.4f}, MRR {found['mrr']:.4f} over "
        f"{len(ranks)} users; the median rank is {np.median(ranks):.0f} of {catalogue}; {spent:.1f} s"
    )
    return {"score": float(np.mean(list(found.values()))), "metrics": {**found, **more}, "feedback": feedback}
