"""The loop that the offline proposer writes into programs: a function that stands alone, inserted by its source text.

It lies beside the signs because a candidate that holds it as it is shows none by it.
"""


def refine_by_gradient(score, start, reduce="sum", sign=1, calls=1000, seconds=0.5, step=0.1, pairs=4, seed=0):
    """The numbers in `start` moved along slopes of sign * reduce(score(.)), from mirrored pairs at right angles."""
    import time

    import numpy as np

    rng, shape = np.random.default_rng(seed), np.shape(start)
    x = np.array(start, dtype=float).ravel()

    def rebuild(vector):
        value = vector.reshape(shape)
        return value.copy() if isinstance(start, np.ndarray) else type(start)(value.tolist())

    def gain(vector):
        try:
            value = sign * float(getattr(np, reduce)(score(rebuild(vector))))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return -1e30
        return value if np.isfinite(value) else -1e30

    best, top = x.copy(), gain(x)
    scale = step * (np.std(x) or np.max(np.abs(x), initial=0.0) or 1.0)
    speed, square, turns, ways = np.zeros_like(x), np.zeros_like(x), 0, []
    begin, used = time.process_time(), vars(refine_by_gradient).setdefault("used", {})
    looks, (done, took) = 1, used.get(score.__code__, (0, 0.0))
    room, time_left = min(calls, 2 * calls - done), min(seconds, 2 * seconds - took)  # one place gets twice that
    room = room if x.size else 0
    while (spent := max(looks / max(room, 1), 2 * (time.process_time() - begin) / max(time_left, 1e-9) - 1)) < 1:
        width, slope, turns = scale * (1 - spent) ** 1.5 + 1e-3 * scale, 0, turns + 1
        for _ in range(max(1, int(pairs))):
            if not ways:
                block = rng.standard_normal((x.size, min(x.size, 64, 1 + 10**6 // x.size)))
                ways = list(np.linalg.qr(block)[0].T * np.sqrt(x.size))
            move = ways.pop()
            up, down, looks = gain(x + width * move), gain(x - width * move), looks + 2
            if min(up, down) > -1e30:
                slope = slope + move * (up - down)
            for value, point in ((up, x + width * move), (down, x - width * move)):
                if value > top:
                    best, top = point, value
        speed, square = 0.8 * speed + 0.2 * slope, 0.97 * square + 0.03 * slope**2
        x = x + width * (speed / (1 - 0.8**turns)) / (np.sqrt(square / (1 - 0.97**turns)) + 1e-12)
    used[score.__code__] = done + looks, took + time.process_time() - begin
    return rebuild(best)
