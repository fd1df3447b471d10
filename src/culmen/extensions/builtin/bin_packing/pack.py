"""Packs items one by one, each into the open bin that has the highest priority for it."""


# EVOLVE-BLOCK-START
def order(items):
    """Which item is packed first, second, ...: as they come."""
    return list(range(len(items)))


def priority(size, gap, capacity):
    """How much an item wants a bin that has `gap` left: all bins are alike, so the first one wins."""
    return 0.0
# EVOLVE-BLOCK-END


def pack(capacity, items):
    gaps = []
    chosen = [0] * len(items)
    for i in order(items):
        fitting = [b for b, gap in enumerate(gaps) if gap >= items[i]]
        if fitting:
            b = max(fitting, key=lambda b: priority(items[i], gaps[b], capacity))
        else:
            b = len(gaps)
            gaps.append(capacity)
        gaps[b] -= items[i]
        chosen[i] = b
    return chosen
