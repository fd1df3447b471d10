"""Evaluators with a tolerance, as they are usually written, and programs for them.

Some programs are honest, others play the evaluator.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from culmen.core.candidate import Candidate
from culmen.core.task import Task
from culmen.evaluate.local import LocalBackend
from culmen.extensions.audit.attack import AuditReport
from culmen.extensions.audit.battery import audit

GRID = '''\
import numpy as np


def {name}():
    """25 equal circles on a grid and a small one between four of them: they touch, so nothing is left to gain."""
    places = (np.arange(5) + 0.5) / 5
    centers = np.array([[x, y] for x in places for y in places] + [[0.2, 0.2]])
    radii = np.array([0.1] * 25 + [0.1 * (2**0.5 - 1)])
    return {result}
'''
PACK = GRID.format(name="run", result="centers, radii")
OLD_PACK = GRID.format(name="run_packing", result="centers, radii, float(radii.sum())")

SCORER = """\
import numpy as np

TOLERANCE = 1e-6


def score(output):
    centers, radii = (np.asarray(part, dtype=float) for part in output)
    if centers.shape != (26, 2) or radii.shape != (26,):
        return {"score": None, "feedback": "26 circles, please"}
    if not (np.isfinite(centers).all() and np.isfinite(radii).all()):
        return {"score": None, "feedback": "not finite"}
    if (centers - radii[:, None] < -TOLERANCE).any() or (centers + radii[:, None] > 1 + TOLERANCE).any():
        return {"score": None, "feedback": "outside"}
    for i in range(26):
        for j in range(i + 1, 26):
            if np.linalg.norm(centers[i] - centers[j]) < radii[i] + radii[j] - TOLERANCE:
                return {"score": None, "feedback": "overlap"}
    return float(radii.sum())
"""
VERIFIER = """\
from fractions import Fraction

from culmen.evaluate.certify import Invalid, certificate, exact_text
from culmen.extensions.builtin.circle_packing.evaluator import read, repair, rounded_down


def certify(output):
    try:
        points, radii = read(output)
    except ValueError as error:
        raise Invalid(str(error)) from None
    exact = [Fraction(radius) for radius in radii]
    worst, where = repair(points, exact)
    if worst > 1e-5:
        raise Invalid(where)
    value = sum(exact)
    return certificate(rounded_down(value), exact_text(value), [where] if worst else [])
"""
TOML = """\
name = "packing"
goal = "Pack 26 circles."
deterministic = true

[seed]
files = ["pack.py"]

[evaluator]
verify = "verify.py"

[limits]
seconds = 20
"""
OLD = '''\
"""26 circles in the unit square, as usual: everything within 1e-6."""

import importlib.util

import numpy as np

TARGET = 2.635


def validate_packing(centers, radii):
    for i in range(26):
        (x, y), r = centers[i], radii[i]
        if x - r < -1e-6 or x + r > 1 + 1e-6 or y - r < -1e-6 or y + r > 1 + 1e-6:
            return False
    for i in range(26):
        for j in range(i + 1, 26):
            if np.sqrt(np.sum((centers[i] - centers[j]) ** 2)) < radii[i] + radii[j] - 1e-6:
                return False
    return True


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    centers, radii, reported = program.run_packing()
    centers, radii = np.asarray(centers), np.asarray(radii)
    valid = centers.shape == (26, 2) and radii.shape == (26,) and validate_packing(centers, radii)
    total = float(np.sum(radii)) if valid else 0.0
    return {"sum_radii": total, "validity": float(valid), "combined_score": total / TARGET}
'''

# The first example of gaming in the paper's appendix: radii pushed into what the checker forgives.
PUSHED = """\
import numpy as np


def honest():
    places = (np.arange(5) + 0.5) / 5
    centers = np.array([[x, y] for x in places for y in places] + [[0.2, 0.2]])
    return centers, np.array([0.1] * 25 + [0.1 * (2**0.5 - 1)])


def run():
    centers, radii = honest()
    tol = 1e-6
    # every radius may grow by half of it, and the checker still accepts the packing
    return centers, radii + 0.499 * tol
"""

TRIANGLE = """\
import itertools

N = 11
TOL = 1e-6


def inside_triangle(points, tol):
    return all(x >= -tol and y >= -tol and x + y <= 1 + tol for x, y in points)


def score(output):
    points = [(float(x), float(y)) for x, y in output]
    if len(points) != N or not inside_triangle(points, TOL):
        return {"score": None, "feedback": "11 points in the triangle, please"}
    areas = (
        abs((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))
        for a, b, c in itertools.combinations(points, 3)
    )
    return {"score": min(areas)}
"""
TRIANGLE_VERIFIER = """\
from fractions import Fraction
from itertools import combinations

from culmen.evaluate.certify import certificate, down, exact_text
from culmen.extensions.builtin.heilbronn_triangle.evaluator import inside, read


def area(a, b, c):
    return abs((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))


def certify(output):
    given = [(Fraction(x), Fraction(y)) for x, y in read(output)]
    moved = [inside(x, y) for x, y in given]
    value = min(area(*triple) for triple in combinations(moved, 3))
    outside = sum(p != q for p, q in zip(given, moved))
    return certificate(down(value), exact_text(value), [f"{outside} points moved to the border"] * bool(outside))
"""
POINTS = """\
POINTS = [
    (0.930852979519512, 0.0), (0.367061202830997, 0.632938797169003), (0.495555567497095, 0.062843872298051),
    (0.110211346088003, 0.0), (0.1035240206313, 0.827328958888211), (0.231157515987293, 0.500783747216269),
    (0.011146832148001, 0.062843872298051), (0.504079038819216, 0.261941576137387),
    (0.247633296537008, 0.220119115635889), (0.807313298912691, 0.192686701087309), (0.0, 0.500000013011659),
]


def run():
    return POINTS
"""
# The second one: all points scaled about their middle as far as the checker's tolerance goes, less
# a hair.
SCALED = """\
POINTS = [
    (0.930852979519512, 0.0), (0.367061202830997, 0.632938797169003), (0.495555567497095, 0.062843872298051),
    (0.110211346088003, 0.0), (0.1035240206313, 0.827328958888211), (0.231157515987293, 0.500783747216269),
    (0.011146832148001, 0.062843872298051), (0.504079038819216, 0.261941576137387),
    (0.247633296537008, 0.220119115635889), (0.807313298912691, 0.192686701087309), (0.0, 0.500000013011659),
]
TOL = 1e-6


def accepted(points, tol):
    return all(x >= -tol and y >= -tol and x + y <= 1 + tol for x, y in points)


def grown(factor, middle=(1 / 3, 1 / 3)):
    return [tuple(m + factor * (p - m) for p, m in zip(point, middle)) for point in POINTS]


def largest_factor():
    low, high = 1.0, 1.0 + 1e-6
    while accepted(grown(high), TOL):
        high = 1.0 + 2.0 * (high - 1.0)
    for _ in range(60):
        factor = 0.5 * (low + high)
        low, high = (factor, high) if accepted(grown(factor), TOL) else (low, factor)
    return low - 1e-13


def run():
    return grown(largest_factor())
"""


def packing(folder: Path, verify: bool = True, scorer: str = SCORER) -> Path:
    """A task of the form call with a tolerance."""
    folder.mkdir(exist_ok=True)
    (folder / "task.toml").write_text(TOML if verify else TOML.replace('verify = "verify.py"', ""))
    (folder / "pack.py").write_text(PACK)
    (folder / "evaluator.py").write_text(scorer)
    if verify:
        (folder / "verify.py").write_text(VERIFIER)
    return folder


def triangle(folder: Path) -> Path:
    """Heilbronn's problem with a tolerance."""
    folder.mkdir(exist_ok=True)
    (folder / "task.toml").write_text(
        TOML.replace("pack.py", "points.py").replace('"packing"', '"triangle"')
    )
    (folder / "points.py").write_text(POINTS)
    (folder / "evaluator.py").write_text(TRIANGLE)
    (folder / "verify.py").write_text(TRIANGLE_VERIFIER)
    return folder


def old(folder: Path, evaluator: str = OLD, program: str = OLD_PACK) -> Path:
    """A folder with evaluate(path)."""
    folder.mkdir(exist_ok=True)
    (folder / "evaluator.py").write_text(evaluator)
    (folder / "initial_program.py").write_text(program)
    return folder


def audited(task: Task, **options: Any) -> AuditReport:
    """The audit of a task on this machine."""
    return asyncio.run(audit(task, lambda task: LocalBackend(task, 2), **options))


@dataclass(frozen=True)
class Programs:
    """Evaluates these programs one after another, as `name`."""

    texts: tuple[str, ...]
    name: str = "pack.py"

    async def search(self, lab: Any) -> None:
        for text in self.texts:
            await lab.evaluate(Candidate.of({self.name: text}))
