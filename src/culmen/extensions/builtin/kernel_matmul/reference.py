"""NumPy's product behind messages like those that a candidate gets, in a process of its own: the other half of a pair.

A message is a line of JSON (the problem's number, shapes) and the arrays' bytes; so is the answer.
"""

import json
import sys

import numpy as np


def product(problem, a, b):
    """What is asked for, in the precision of its inputs."""
    if problem == 5:
        return a * b[0]
    if problem == 12:
        return a[:, None] * b
    found = (a.swapaxes(-1, -2) if problem in (16, 18) else a) @ (b.T if problem in (17, 18) else b)
    return np.triu(found) if problem == 14 else np.tril(found) if problem == 15 else found


def write(pipe, head, *arrays):
    pipe.write(json.dumps([head, *(each.shape for each in arrays)]).encode() + b"\n")
    for each in arrays:
        pipe.write(np.ascontiguousarray(each).data.cast("B"))
    pipe.flush()


def read(pipe):
    """The head and the arrays, float32; None when the pipe has ended."""
    line = pipe.readline()
    if not line:
        return None
    head, *shapes = json.loads(line)
    return head, *(np.frombuffer(pipe.read(4 * int(np.prod(shape))), np.float32).reshape(shape) for shape in shapes)


if __name__ == "__main__":
    while (asked := read(sys.stdin.buffer)) is not None:
        write(sys.stdout.buffer, 0, product(*asked))
