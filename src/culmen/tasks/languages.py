"""Tasks to start from whose candidates are programs in C, C++, Rust, Go or JavaScript."""

from __future__ import annotations

from typing import NamedTuple


class Language(NamedTuple):
    """A language of candidates: its initial program, and the commands that build and run it."""

    file: str
    build: tuple[str, ...]
    command: tuple[str, ...]
    program: str


_CPP = """\
#include <cmath>
#include <cstdio>

double height(double x, double y) {
    return std::sin(x) * std::cos(y) + std::sin(x * y) + (x * x + y * y) / 20.0;
}

int main() {
    double x = 2.5, y = 1.5, step = 0.1;
    for (int i = 0; i < 100; i++) {
        double slope_x = (height(x + 1e-6, y) - height(x, y)) / 1e-6;
        double slope_y = (height(x, y + 1e-6) - height(x, y)) / 1e-6;
        x -= step * slope_x;
        y -= step * slope_y;
    }
    std::printf("%.9f %.9f\\n", x, y);
}
"""

_RUST = """\
fn height(x: f64, y: f64) -> f64 {
    x.sin() * y.cos() + (x * y).sin() + (x * x + y * y) / 20.0
}

fn main() {
    let (mut x, mut y, step) = (2.5, 1.5, 0.1);
    for _ in 0..100 {
        let slope_x = (height(x + 1e-6, y) - height(x, y)) / 1e-6;
        let slope_y = (height(x, y + 1e-6) - height(x, y)) / 1e-6;
        x -= step * slope_x;
        y -= step * slope_y;
    }
    println!("{:.9} {:.9}", x, y);
}
"""

_GO = """\
package main

import (
    "fmt"
    "math"
)

func height(x, y float64) float64 {
    return math.Sin(x) * math.Cos(y) + math.Sin(x * y) + (x * x + y * y) / 20.0
}

func main() {
    x, y, step := 2.5, 1.5, 0.1
    for i := 0; i < 100; i++ {
        slopeX := (height(x + 1e-6, y) - height(x, y)) / 1e-6
        slopeY := (height(x, y + 1e-6) - height(x, y)) / 1e-6
        x -= step * slopeX
        y -= step * slopeY
    }
    fmt.Printf("%.9f %.9f\\n", x, y)
}
"""

_JAVASCRIPT = """\
function height(x, y) {
    return Math.sin(x) * Math.cos(y) + Math.sin(x * y) + (x * x + y * y) / 20.0;
}

let x = 2.5, y = 1.5, step = 0.1;
for (let i = 0; i < 100; i++) {
    const slopeX = (height(x + 1e-6, y) - height(x, y)) / 1e-6;
    const slopeY = (height(x, y + 1e-6) - height(x, y)) / 1e-6;
    x -= step * slopeX;
    y -= step * slopeY;
}
console.log(x.toFixed(9), y.toFixed(9));
"""

_C = (
    _CPP.replace("<cmath>", "<math.h>").replace("<cstdio>", "<stdio.h>").replace("std::", "")
).replace("int main()", "int main(void)")

_EVALUATOR = '''\
"""Judges the point that a program printed; computes the height there itself."""

import math


def score(output):
    try:
        x, y = map(float, output.split())
    except ValueError:
        return {"score": None, "feedback": "the program should print two numbers: x y"}
    if not (abs(x) <= 5 and abs(y) <= 5):
        return {"score": None, "feedback": f"({x}, {y}) is outside of -5 to 5"}
    return math.sin(x) * math.cos(y) + math.sin(x * y) + (x * x + y * y) / 20
'''

_TASK = '''\
# A task is this file, an initial program, and an evaluator: culmen check DIR, culmen run DIR
goal = """
Find the lowest point of a bumpy function of two variables. The program prints the point `x y` that
it believes to be lowest, both between -5 and 5; the scorer computes the height there itself.
"""
deterministic = true              # a program always prints the same

[seed]
files = ["{file}"]          # the program to improve

[evaluator]
file = "evaluator.py"             # defines score(output): judges what the program printed
form = "command"                  # it runs in a jail, the evaluator in another process
build = {build}   # once a program, in the jail
command = {command}   # once a case
packages = []

[objective]
direction = "min"                 # lower is better
bounds = [-1.9, inf]              # what an honest score can be

[limits]
seconds = 5                       # of one run; a build may take 60
'''

LANGUAGES = {
    "c": Language(
        "program.c", ("gcc", "-O2", "-o", "program", "{program.c}", "-lm"), ("./program",), _C
    ),
    "cpp": Language(
        "program.cpp", ("g++", "-O2", "-o", "program", "{program.cpp}"), ("./program",), _CPP
    ),
    "rust": Language(
        "program.rs", ("rustc", "-O", "-o", "program", "{program.rs}"), ("./program",), _RUST
    ),
    "go": Language(
        "program.go", ("go", "build", "-o", "program", "{program.go}"), ("./program",), _GO
    ),
    "javascript": Language(
        "program.js", ("node", "--check", "{program.js}"), ("node", "{program.js}"), _JAVASCRIPT
    ),
}
"""Languages of `culmen new --language`, by name."""


def language_files(name: str) -> dict[str, str]:
    """The files of a task to start from, by name; `name` is one of `LANGUAGES`."""
    language = LANGUAGES[name]
    build, command = (
        "[" + ", ".join(f'"{word}"' for word in words) + "]"
        for words in (language.build, language.command)
    )
    task = _TASK.format(file=language.file, build=build, command=command)
    return {"task.toml": task, language.file: language.program, "evaluator.py": _EVALUATOR}
