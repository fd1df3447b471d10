def best_of_restarts(score, reduce="sum", sign=1, calls=100, seconds=0.5):
    """Decorator: call the function again and again, each time with other random numbers, and keep the best result."""
    import functools
    import time

    import numpy as np

    def gain(result):
        try:
            value = sign * float(getattr(np, reduce)(score(result)))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return -1e30
        return value if np.isfinite(value) else -1e30

    def decorate(function):
        room, time_left = 2 * calls, 2 * seconds

        @functools.wraps(function)
        def repeated(*args, **kwargs):
            nonlocal room, time_left
            begin, looks = time.process_time(), 1
            end = begin + min(seconds, time_left)
            best = function(*args, **kwargs)
            top = gain(best)
            while looks < min(calls, room) and time.process_time() < end:
                result, looks = function(*args, **kwargs), looks + 1
                value = gain(result)
                if value > top:
                    best, top = result, value
            room, time_left = room - looks, time_left - (time.process_time() - begin)
            return best

        return repeated

    return decorate
