"""What programs of other kinds score here: python bench/baselines/eplb.py

`hierarchical` is the published policy of DeepSeek's load balancer, written anew from its description: groups of experts
are packed onto nodes, experts replicated within each node, replicas packed onto the node's devices. `greedy` is its
policy without nodes (replication, then longest processing time first), for all layers at once; `greedy_by_layer` is the
plain way to write that, one layer at a time. `snake` deals the sorted replicas out to and fro instead of packing them.
"""

import numpy as np


def in_order(load, slots, groups, nodes, devices):
    """Experts in order; spare slots begin again with the first experts."""
    return np.tile(np.arange(slots) % load.shape[1], (len(load), 1))


def replicated(load, slots):
    """Slots go, one by one, to the expert with most load per replica: (slot's expert, slot's load), both (rows, slots).

    The first `experts` slots hold every expert once.
    """
    rows, experts = load.shape
    chosen = np.tile(np.arange(experts), (rows, 1))
    counts, each, every = np.ones((rows, experts)), load.astype(float), np.arange(rows)
    for _ in range(slots - experts):
        busiest = each.argmax(axis=1)
        counts[every, busiest] += 1
        each[every, busiest] = load[every, busiest] / counts[every, busiest]
        chosen = np.concatenate([chosen, busiest[:, None]], axis=1)
    return chosen, np.take_along_axis(each, chosen, axis=1)


def packed(weight, bins):
    """Items into equal bins, heaviest first, each to the lightest bin with room: items in bin order, (rows, items)."""
    rows, items = weight.shape
    room, every = items // bins, np.arange(rows)
    if room == 1:
        return np.tile(np.arange(items), (rows, 1))
    filled, held = np.zeros((rows, bins)), np.zeros((rows, bins), dtype=np.int64)
    order = np.argsort(-weight, axis=1, kind="stable")
    seats = np.empty((rows, items), dtype=np.int64)
    for item in order.T:
        lightest = filled.argmin(axis=1)
        seats[every, lightest * room + held[every, lightest]] = item
        held[every, lightest] += 1
        filled[every, lightest] += weight[every, item]
        filled[every, lightest] = np.where(
            held[every, lightest] == room, np.inf, filled[every, lightest]
        )
    return seats


def greedy(load, slots, groups, nodes, devices):
    """Replicas to the busiest experts, then heaviest first to the lightest device; all layers at once."""
    chosen, each = replicated(load, slots)
    return np.take_along_axis(chosen, packed(each, devices), axis=1)


def snake(load, slots, groups, nodes, devices):
    """The same replicas, heaviest first, dealt to the devices in order, then in the opposite order, and so on."""
    chosen, each = replicated(load, slots)
    dealt = np.take_along_axis(chosen, np.argsort(-each, axis=1), axis=1).reshape(
        len(load), -1, devices
    )
    dealt[:, 1::2] = dealt[:, 1::2, ::-1].copy()
    return dealt.swapaxes(1, 2).reshape(len(load), slots)


def greedy_by_layer(load, slots, groups, nodes, devices):
    """The same, one layer after the other, with plain Python lists."""
    placed = []
    for row in load.tolist():
        counts = [1] * len(row)
        for _ in range(slots - len(row)):
            counts[max(range(len(row)), key=lambda expert: row[expert] / counts[expert])] += 1
        replicas = [expert for expert, count in enumerate(counts) for _ in range(count)]
        replicas.sort(key=lambda expert: -row[expert] / counts[expert])
        bins, sums = [[] for _ in range(devices)], [0.0] * devices
        for expert in replicas:
            free = [place for place in range(devices) if len(bins[place]) < slots // devices]
            place = min(free, key=lambda place: sums[place])
            bins[place].append(expert)
            sums[place] += row[expert] / counts[expert]
        placed.append([expert for each in bins for expert in each])
    return placed


def hierarchical(load, slots, groups, nodes, devices):
    """Groups onto nodes, replicas within a node, replicas onto the node's devices."""
    layers, experts = load.shape
    if groups % nodes:
        return greedy(load, slots, groups, nodes, devices)
    size, share = experts // groups, experts // nodes
    order = packed(load.reshape(layers, groups, size).sum(axis=2), nodes)  # groups by node
    members = (order[:, :, None] * size + np.arange(size)).reshape(layers * nodes, share)
    local = np.take_along_axis(np.repeat(load, nodes, axis=0), members, axis=1)
    chosen, each = replicated(local, slots // nodes)
    seats = np.take_along_axis(chosen, packed(each, devices // nodes), axis=1)
    return np.take_along_axis(members, seats, axis=1).reshape(layers, slots)


if __name__ == "__main__":
    from programs import show

    names = ("in_order", "greedy_by_layer", "greedy", "snake", "hierarchical")
    show(__file__, {name: f"place = {name}" for name in names})
