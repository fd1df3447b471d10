def best_of_restarts(score, reduce="sum", sign=1, seconds=0.5, most=1000):
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
        @functools.wraps(function)
        def repeated(*args, **kwargs):
            end = time.perf_counter() + seconds
            best = function(*args, **kwargs)
            top = gain(best)
            for _ in range(int(most)):
                if time.perf_counter() > end:
                    break
                result = function(*args, **kwargs)
                value = gain(result)
                if value > top:
                    best, top = result, value
            return best

        return repeated

    return decorate
