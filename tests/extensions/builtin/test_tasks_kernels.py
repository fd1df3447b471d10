"""Kernels in C: every problem is checked.

Attempts to cheat the check or the clock fail.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.evaluate.local import LocalBackend
from culmen.tasks import example_path, load
from tests.tasks.folder import modules

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
FOLDER = example_path("kernel_matmul")
SMALL = {"batch": 1, "m": 24, "k": 40, "n": 24}
HEAD = """
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static void plain(int m, int k, int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) {
        float sum = 0; for (int l = 0; l < k; l++) sum += a[i * k + l] * b[l * n + j]; c[i * n + j] = sum; } }
#define ARGS int problem, int batch, int m, int k, int n, const float *a, const float *b, float *c
"""


def judged(sources: list[str], problem: int = 1, **sizes: int) -> list[Observation]:
    """Each text of kernel.c in the jail, on one small problem."""
    task = load(FOLDER)
    case = replace(task.cases[0], info={**SMALL, "problem": problem, **sizes})

    async def run() -> list[Observation]:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            parts = [
                {**task.seeds[0], **({"kernel.c": source} if source else {})} for source in sources
            ]
            return [await backend.evaluate(Candidate.of(each), case, 3) for each in parts]
        finally:
            await backend.close()

    return asyncio.run(run())


@pytest.mark.parametrize("problem", range(1, 19))
def test_the_sizes_of_the_cases_fit_and_the_tolerance_tells_single_from_half_precision(
    problem: int,
) -> None:
    _, evaluator = modules("kernel_matmul", "reference", "evaluator")
    info = next(case.info for case in load(FOLDER).cases if case.info["problem"] == problem)
    a, b = evaluator.inputs(
        np.random.default_rng(), *(info[key] for key in ("problem", "batch", "m", "k", "n"))
    )
    exact, allowed = evaluator.answer(problem, a, b)
    single = evaluator.reference.product(problem, a, b)
    half = evaluator.reference.product(
        problem, *(x.astype(np.float16).astype(np.float32) for x in (a, b))
    )
    assert evaluator.fault_of(single, exact, allowed) == ""
    assert "elements are wrong" in evaluator.fault_of(half, exact, allowed)
    assert "elements are wrong" in evaluator.fault_of(np.full_like(single, np.nan), exact, allowed)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [3, 5, 12, 14, 16, 18])
def test_the_initial_kernel_is_right(problem: int) -> None:
    (seen,) = judged(
        [""], problem, batch=3 if problem == 3 else 1, n=40 if problem == 14 else 24, m=40
    )
    assert seen.status is Status.OK and 0 < seen.score < 1 and seen.metrics["speed_up"] > 0, (
        seen.feedback
    )


WRONG = {
    "a result kept from the call before": """static float *kept;
void kernel(ARGS) { if (!kept) { kept = malloc(4 * m * n); plain(m, k, n, a, b, kept); }
    memcpy(c, kept, 4 * m * n); }""",
    "a thread that finishes later": """struct job { int m, k, n; const float *a, *b; float *c; };
static void *late(void *p) { struct job *j = p; usleep(300000); plain(j->m, j->k, j->n, j->a, j->b, j->c); return 0; }
void kernel(ARGS) { struct job *j = malloc(sizeof *j); *j = (struct job){m, k, n, a, b, c}; pthread_t t;
    pthread_create(&t, 0, late, j); }""",
    "half of the work": "void kernel(ARGS) { plain(m, k / 2, n, a, b, c); }",
    "the last row left out": "void kernel(ARGS) { plain(m - 1, k, n, a, b, c); }",
    "changed inputs": "void kernel(ARGS) { memset((float *)a, 0, 4 * m * k); memset(c, 0, 4 * m * n); }",
}


def test_what_is_not_the_product_of_these_inputs_is_invalid() -> None:
    for name, seen in zip(WRONG, judged([HEAD + text for text in WRONG.values()], k=41)):
        assert seen.status is Status.INVALID and "elements are wrong" in seen.feedback, name


def test_a_forged_clock_and_a_busy_machine_gain_nothing() -> None:
    forged = """int clock_gettime(clockid_t i, struct timespec *t) { t->tv_sec = t->tv_nsec = 0; return 0; }
time_t time(time_t *t) { return 0; }
void kernel(ARGS) { usleep(100000); plain(m, k, n, a, b, c); }"""
    busy = """static void *spin(void *p) { for (;;) __asm__ volatile(""); }
__attribute__((constructor)) static void begin(void) { for (int i = 0; i < 4; i++) { pthread_t t;
    pthread_create(&t, 0, spin, 0); } }
void kernel(ARGS) { usleep(100000); plain(m, k, n, a, b, c); }"""
    for seen in judged([HEAD + forged, HEAD + busy]):
        assert (
            seen.status is Status.OK
            and seen.metrics["milliseconds"] > 99
            and seen.metrics["fast_1"] == 0
        )


def test_while_the_kernel_keeps_the_machine_busy_numpys_time_counts_as_before() -> None:
    _, evaluator = modules("kernel_matmul", "reference", "evaluator")
    numpys = [1.0]

    def call(problem, batch, m, k, n, a, b, shape):
        return 1.0, evaluator.reference.product(problem, a, b)

    def build(name, command):
        numpys[0] = 50.0  # from here on NumPy is fifty times slower
        return ""

    call.named = build
    names = {"timed": evaluator.timed, "numpy_": evaluator.numpy_}
    try:
        evaluator.timed = lambda action: action()  # calls tell their own time here
        evaluator.numpy_ = lambda process, problem, a, b: (numpys[0], None)
        assert evaluator.judged(call, None, 1, 1, 8, 8, 8)["metrics"]["speed_up"] == 1.0
    finally:
        evaluator.timed, evaluator.numpy_ = names["timed"], names["numpy_"]


def test_what_does_not_compile_says_why_and_reads_no_files_of_the_host() -> None:
    broken, curious = judged(["void kernel( {", '#include "/etc/shadow"\n'])
    assert broken.status is curious.status is Status.INVALID
    assert "does not compile" in broken.feedback and "root:" not in curious.feedback


def test_without_a_gpu_cuda_is_refused(tmp_path: Path) -> None:
    for name in ("evaluator.py", "reference.py"):
        text = (
            (FOLDER / name)
            .read_text()
            .replace('DEVICE = "cpu"', 'DEVICE = "cuda"')
            .replace("/dev/nvidia0", "/no")
        )
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "evaluator.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and "needs an NVIDIA GPU, and this machine has none" in done.stderr
