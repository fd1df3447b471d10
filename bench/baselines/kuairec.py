"""What programs of other kinds score here, and the seed without one of its channels: python bench/baselines/kuairec.py

`popularity` scores a video by its views, `markov` by how often it came next after the last one, `recent` by how often
it came within four views after one of the last eight, nearer ones counting more.
"""

import itertools

import numpy as np

STATE = {}


def popularity(videos, offsets, catalogue):
    """The same scores for everybody, shape (1, catalogue)."""
    counts = np.bincount(videos, minlength=catalogue).astype(float)
    return lambda history: counts + 1


def markov(videos, offsets, catalogue):
    """Transitions from a video to the next one, and a little popularity."""
    last = np.zeros(len(videos), dtype=bool)
    last[offsets[1:] - 1] = True
    follows = np.zeros((catalogue, catalogue))
    np.add.at(follows, (videos[:-1][~last[:-1]], videos[1:][~last[:-1]]), 1)
    counts = np.bincount(videos, minlength=catalogue) / len(videos)
    return lambda history: follows[history[-1]] + counts


def recent(videos, offsets, catalogue, reach=4, memory=8):
    """Transitions over up to `reach` steps from the last `memory` views."""
    user = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    follows = np.zeros((catalogue, catalogue))
    for step in range(1, reach + 1):
        same = user[:-step] == user[step:]
        np.add.at(follows, (videos[:-step][same], videos[step:][same]), 1 / step)
    counts = np.bincount(videos, minlength=catalogue) / len(videos)
    weights = 1 / np.arange(1, memory + 1)
    return lambda history: weights[: len(history)] @ follows[history[::-1][:memory]] + counts


def served(learn):
    """The two functions the scorer calls, from one that learns a scoring function of a history."""

    def fit(videos, seconds, offsets, catalogue, settings):
        STATE["score"] = learn(videos, offsets, catalogue)

    def rank(videos, seconds, offsets):
        return np.stack(
            [STATE["score"](videos[low:high]) for low, high in itertools.pairwise(offsets)]
        )

    return fit, rank


CHANNELS = ("retention(y, steps)", "temporal(y, seconds)", "positional(y)")


def without(text, channel):
    """The seed's model with one channel that says nothing."""
    call = next(each for each in CHANNELS if each.startswith(channel))
    assert text.count(call) == 1
    return text.replace(call, f"0 * {call}")


if __name__ == "__main__":
    from programs import show

    from culmen.tasks import example_path

    text = (example_path("kuairec") / "model.py").read_text(encoding="utf-8")
    show(
        __file__,
        {name: f"fit, rank = served({name})" for name in ("popularity", "markov", "recent")},
        {
            f"without_{name}": {"model.py": without(text, name)}
            for name in ("retention", "temporal", "positional")
        },
    )
