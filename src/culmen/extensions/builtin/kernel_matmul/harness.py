"""Compiles kernel.c where the candidate runs, and calls it. Nothing here is believed: see evaluator.py."""

import ctypes
import subprocess

import numpy as np

library = None


def build(command):
    """Compile; "" or what the compiler says."""
    global library
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return (done.stderr or done.stdout)[-3000:] or f"the compiler ended with {done.returncode}"
    library = ctypes.CDLL("./kernel.so")
    library.kernel.restype = None
    return ""


def multiply(problem, batch, m, k, n, a, b, shape):
    a, b = np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32)
    c = np.zeros(shape, np.float32)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (a, b, c)]
    library.kernel(*(ctypes.c_int(size) for size in (problem, batch, m, k, n)), *pointers)
    return c
