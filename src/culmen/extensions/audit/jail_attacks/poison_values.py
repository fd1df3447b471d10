# expect: ok bad_output exception output_limit not_finite
def run(**target):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    kinds = [float("nan"), float("inf"), 1e308 * 10, 10**100_000, deep, "\ud800", "\0" * 100]
    return kinds[target["tcp"] % len(kinds)]
