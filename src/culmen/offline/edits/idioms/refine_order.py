def refine_order(score, start, reduce="sum", sign=1, calls=1000, seconds=0.5, heat=0.05, seed=0):
    """The items of `start` rearranged (exchanged, moved, reversed) so that sign * reduce(score(.)) rises."""
    import math
    import random
    import time

    import numpy as np

    rng, kind = random.Random(seed), type(start)
    items = list(start)

    def rebuild(order):
        return np.array(order) if isinstance(start, np.ndarray) else kind(order)

    def gain(order):
        try:
            value = sign * float(getattr(np, reduce)(score(rebuild(order))))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return -1e30
        return value if math.isfinite(value) else -1e30

    now = top = gain(items)
    best = list(items)
    begin, used = time.process_time(), vars(refine_order).setdefault("used", {})
    looks, (done, took) = 1, used.get(score.__code__, (0, 0.0))
    room, time_left = min(calls, 2 * calls - done), min(seconds, 2 * seconds - took)  # one place gets twice that
    while (spent := max(looks / max(room, 1), 2 * (time.process_time() - begin) / max(time_left, 1e-9) - 1)) < 1:
        if len(items) < 2:
            break
        trial = list(items)
        low, high = sorted(rng.sample(range(len(items)), 2))
        move = rng.randrange(3)
        if move == 0:
            trial[low], trial[high] = trial[high], trial[low]
        elif move == 1:
            trial.insert(low, trial.pop(high))
        else:
            trial[low : high + 1] = trial[low : high + 1][::-1]
        value, looks = gain(trial), looks + 1
        if value >= now or rng.random() < math.exp((value - now) / (heat * abs(top) * (1 - spent) ** 2 + 1e-12)):
            items, now = trial, value
        if now > top:
            best, top = list(items), now
    used[score.__code__] = done + looks, took + time.process_time() - begin
    return rebuild(best)
