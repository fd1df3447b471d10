"""Spare slots for the busiest experts, then all replicas dealt out to the devices in turn, in order."""

import numpy as np


# EVOLVE-BLOCK-START
THIRD = 0.1  # what a third slot for an expert is worth, compared with the load that it takes off the others


def counted(load, spare):
    """How many slots each expert gets, shape (layers, experts): one each, and up to two spare ones."""
    layers, experts = load.shape
    worth = np.concatenate([load, THIRD * load / 2], axis=1)
    chosen = np.argpartition(-worth, spare, axis=1)[:, :spare] % experts
    flat = chosen + experts * np.arange(layers)[:, None]
    return 1 + np.bincount(flat.ravel(), minlength=layers * experts).reshape(layers, experts)


def place(load, slots, groups, nodes, devices):
    layers, experts = load.shape
    counts = counted(load, slots - experts)
    replicas = np.stack([np.repeat(np.arange(experts), count) for count in counts])
    return replicas.reshape(layers, slots // devices, devices).swapaxes(1, 2).reshape(layers, slots)
# EVOLVE-BLOCK-END
