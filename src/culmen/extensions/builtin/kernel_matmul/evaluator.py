"""Scores kernels: every product is compared with float64, and every call timed beside NumPy on the same inputs.

The kernel's process shares nothing with this one, which holds the clock, the inputs and the answers:
- inputs come from the system's entropy, after compilation, and never twice: nothing can be computed or kept before;
- a call ends when the whole result has arrived, so threads that finish later deliver what is wrong or late;
- every timed result is checked, element by element, at a tolerance that half precision does not meet;
- NumPy's time in a pair counts at most as much as before the kernel was loaded: a kernel whose threads or processes keep
  the machine busy while NumPy has its turn gains nothing;
- NumPy gets and sends the same bytes through pipes of a process of its own, so both times hold the way there and back.
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import reference

DEVICE = "cpu"  # or "cuda": kernel.c is then CUDA C++ whose host function kernel() (extern "C") moves its own data
PAIRS = 5
TOLERANCE = 4e-5  # of the root of the sum of the squared products: float32 errs by 1e-5 at most here, half by 3e-4
COMPILE = {
    "cpu": ["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", "kernel.so", "kernel.c", "-lm", "-lpthread"],
    "cuda": ["nvcc", "-O3", "-x", "cu", "-shared", "-Xcompiler", "-fPIC", "-o", "kernel.so", "kernel.c"],
}[DEVICE]


def missing():
    """What this machine lacks for DEVICE, "" if nothing."""
    if DEVICE == "cuda" and not Path("/dev/nvidia0").exists():
        return 'DEVICE = "cuda" needs an NVIDIA GPU, and this machine has none: set DEVICE = "cpu" in evaluator.py'
    if not shutil.which(COMPILE[0]):
        return f"kernel_matmul compiles with {COMPILE[0]}, which is not installed" + (
            ": apt install gcc" if DEVICE == "cpu" else ""
        )
    return ""


if missing():
    raise RuntimeError(missing())


def score(call, case):
    sizes = [case.info[key] for key in ("problem", "batch", "m", "k", "n")]
    with subprocess.Popen(
        [sys.executable, reference.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            return judged(call, process, *sizes)
        finally:
            process.kill()


def judged(call, process, *sizes):
    rng = np.random.default_rng()
    quiet = [timed(lambda pair=inputs(rng, *sizes): numpy_(process, sizes[0], *pair))[0] for _ in range(PAIRS + 2)]
    bound = median(quiet[2:])  # the first ones warm up
    fault = call.named("build", COMPILE)
    if fault:
        return {"score": None, "feedback": f"kernel.c does not compile:\n{fault}"}
    ratios, mine = [], []
    for number in range(PAIRS + 1):
        a, b = inputs(rng, *sizes)
        exact, allowed = answer(sizes[0], a, b)
        taken, found = timed(lambda a=a, b=b, shape=exact.shape: call(*sizes, a, b, list(shape)))
        theirs, _ = timed(lambda a=a, b=b: numpy_(process, sizes[0], a, b))
        wrong = fault_of(found, exact, allowed)
        if wrong:
            return {"score": None, "feedback": f"problem {sizes[0]}: {wrong}"}
        if number:  # the first call loads pages
            ratios.append(min(theirs, bound) / taken)
            mine.append(1000 * taken)
    speed = median(ratios)
    metrics = {"speed_up": speed, "fast_1": float(speed > 1), "milliseconds": median(mine)}
    feedback = f"problem {sizes[0]}: right; {median(mine):.2f} ms a call, {speed:.3f} times NumPy's speed"
    return {"score": speed / (1 + speed), "metrics": metrics, "feedback": feedback}


def timed(action):
    """Wall seconds of an action, and what it gives."""
    begun = time.perf_counter()
    found = action()
    return time.perf_counter() - begun, found


def numpy_(process, problem, a, b):
    reference.write(process.stdin, problem, a, b)
    return reference.read(process.stdout)[1]


def inputs(rng, problem, batch, m, k, n):
    """Fresh float32 arrays a and b of standard normal numbers."""
    many = (batch,) if batch > 1 else ()
    first, second = (*many, m, k), (*(many if problem == 3 else ()), k, n)
    first = {5: (m, n), 12: (m,), 16: (k, m), 18: (k, m)}.get(problem, first)
    second = {5: (1,), 12: (m, n), 17: (n, k), 18: (n, k)}.get(problem, second)
    a, b = (rng.standard_normal(shape, np.float32) for shape in (first, second))
    shape = {13: lambda x: np.triu(x) + np.triu(x, 1).T, 14: np.triu, 15: np.tril}.get(problem, lambda x: x)
    return shape(a), shape(b)


def answer(problem, a, b):
    """The product in float64, and how far each element may be off."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return reference.product(problem, a, b), TOLERANCE * reference.product(problem, a * a, b * b) ** 0.5


def fault_of(found, exact, allowed):
    """Why this is not the product, "" if it is."""
    if not isinstance(found, np.ndarray) or found.shape != exact.shape or found.dtype != np.float32:
        return f"the result is no float32 array of shape {exact.shape}"
    right = abs(found - exact) <= allowed  # NaN is not
    if right.all():
        return ""
    place = np.unravel_index(int(np.argmin(right)), right.shape)
    where = ", ".join(map(str, place))
    return f"{(~right).sum()} of {right.size} elements are wrong; c[{where}] is {found[place]}, not {exact[place]:.7g}"
