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
        left = 2 * seconds

        @functools.wraps(function)
        def repeated(*args, **kwargs):
            nonlocal left
            begin = time.process_time()
            end = begin + min(seconds, left)
            best = function(*args, **kwargs)
            top = gain(best)
            for _ in range(int(most)):
                if time.process_time() > end:
                    break
                result = function(*args, **kwargs)
                value = gain(result)
                if value > top:
                    best, top = result, value
            left -= time.process_time() - begin
            return best

        return repeated

    return decorate
