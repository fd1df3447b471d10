"""Edits judged by `culmen judge` and by HillClimbAnything, on the same commands.

    python bench/bench_judge.py --rival /path/to/its/python

Three commands: one that times a loop, one that prints a number with normal noise, one that passes
or fails at random. Edits of two kinds: those that change nothing, and those worth one standard
deviation of one run. Reports the share called better and the runs of the command that it took.
Every value is printed by a new process. culmen's rule comes from `extensions/judge/verify.py`; the
rival's from `hca.stats` in its own environment, with its own defaults (10 blocks, 20 if extended,
one run of each side before them). Pairs of both have a random order.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from culmen.extensions.judge import verify

SERVER = """
use Time::HiRes 'time'; $| = 1;
while (defined(my $shift = <STDIN>)) {
    my $child = fork();
    if (!$child) { srand(); BODY; exit 0; }
    waitpid($child, 0);
}
"""
COMMANDS = {  # each has the shift that the edit makes, and prints a number above 0
    "timing": "my $t = time; my $n = LOOP - $shift; my $x = 0; $x += $_ for 1..$n; "
    "printf(qq(%.9f\n), time - $t)",
    "noisy": "printf(qq(%.9f\n), 10 + $shift + sqrt(-2 * log(1 - rand())) "
    "* cos(6.283185307 * rand()))",
    "flaky": "print 1 + (rand() < 0.45 + $shift), qq(\n)",
}
LOOP = 20_000  # turns of the loop that is timed: about a millisecond
RIVAL = """
import json, sys
from hca import stats
for line in sys.stdin:
    asked = json.loads(line)
    scores = [stats.log_ratio(b, a, asked["direction"]) for b, a in asked["pairs"]]
    useful = stats.parse_effect("1%", asked["direction"])
    rest = {"look": asked["look"], "looks": 2, "direction": asked["direction"]}
    print(stats.keep_decision(scores, useful, **rest)["verdict"], flush=True)
"""
Command = Callable[[float], float]
Draw = Callable[[bool], float]
Verdict = tuple[bool, int]  # called better, runs


def start_command(kind: str) -> Command:
    """A function that runs a command in a new process, forked from one that has read it."""
    text = SERVER.replace("BODY", COMMANDS[kind].replace("LOOP", str(LOOP)))
    server = subprocess.Popen(
        ["perl", "-e", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None and server.stdout is not None
    asks, answers = server.stdin, server.stdout

    def run(shift: float) -> float:
        asks.write(f"{shift!r}\n")
        asks.flush()
        return float(answers.readline())

    return run


def one_deviation(kind: str, run: Command) -> float:
    """The change of the command's setting that is worth one standard deviation of a run."""
    if kind != "timing":
        return 1.0 if kind == "noisy" else 0.5
    times = [run(0.0) for _ in range(400)]
    return LOOP * min(0.5, statistics.stdev(times) / statistics.fmean(times))


def judge(kind: str, draw: Draw, chance: random.Random) -> Verdict:
    """culmen's verdict, as the first ask of a session."""
    passes = kind == "flaky"
    bar: dict[str, Any] = {"direction": direction_of(kind), "passes": passes, "exact": False}
    bar |= {"relative": not passes, "gain": 0.05 if passes else 0.01}
    bar |= {"alpha": 0.01 / 2, "pairs": 60}
    pairs: list[dict[str, float]] = []
    while not (told := verify.verdict(bar, pairs)):
        pairs.append(dict(zip(("before", "after"), draw_pair(draw, chance), strict=True)))
    return told == verify.BETTER, 2 * len(pairs)


def judge_as_rival(kind: str, draw: Draw, chance: random.Random, rival: Any) -> Verdict:
    """The rival's verdict."""
    pairs: list[tuple[float, float]] = []
    for look, blocks in ((1, 10), (2, 20)):
        pairs += [draw_pair(draw, chance) for _ in range(blocks - len(pairs))]
        asked = {"pairs": pairs, "look": look, "direction": direction_of(kind)}
        rival.stdin.write(json.dumps(asked) + "\n")
        rival.stdin.flush()
        told = rival.stdout.readline().strip()
        if told != "extend":
            break
    return told == "keep", 2 + 2 * len(pairs)


def draw_pair(draw: Draw, chance: random.Random) -> tuple[float, float]:
    """Values before and after the edit, run in random order."""
    if chance.random() < 0.5:
        return draw(False), draw(True)
    after = draw(True)
    return draw(False), after


def direction_of(kind: str) -> str:
    """The direction of better values."""
    return "min" if kind == "timing" else "max"


def main() -> None:
    """Judge edits of all kinds and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rival", help="Python with hillclimbanything 0.2.0")
    parser.add_argument("--noops", type=int, default=200, help="edits that change nothing")
    parser.add_argument("--edits", type=int, default=100, help="edits worth one deviation")
    parser.add_argument("--only", choices=COMMANDS, help="this command alone")
    parser.add_argument("--json", help="file for all numbers")
    args = parser.parse_args()
    rival = args.rival and subprocess.Popen(
        [args.rival, "-c", RIVAL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    chance, rows = random.Random(1), []
    for kind in [args.only] if args.only else COMMANDS:
        run = start_command(kind)
        for name, count, gain in (
            ("nothing", args.noops, 0.0),
            ("one deviation", args.edits, one_deviation(kind, run)),
        ):

            def draw(edited: bool, run: Command = run, gain: float = gain) -> float:
                return run(gain if edited else 0.0)

            told = {"culmen": [], "rival": []}
            for _ in range(count):  # in turn, so that the machine is the same for both
                told["culmen"].append(judge(kind, draw, chance))
                if rival:
                    told["rival"].append(judge_as_rival(kind, draw, chance, rival))
            for who, verdicts in told.items():
                if not verdicts:
                    continue
                better = sum(found for found, _ in verdicts)
                runs = statistics.fmean(taken for _, taken in verdicts)
                rows.append(
                    {"command": kind, "edit": name, "referee": who, "edits": count}
                    | {"better": better, "runs": runs}
                )
                line = f"{kind:7} {name:14} {who:7} better {better:4} of {count}"
                sys.stdout.write(f"{line}  runs {runs:6.1f}\n")
                sys.stdout.flush()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
