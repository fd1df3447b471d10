"""Savings by several candidates per reply on the real path.

The figures are requests and tokens per evaluated candidate.

    python bench/bench_calls.py [--evaluations 400] [--seeds 2]

A scripted model behind a real HTTP server on the loopback answers every prompt in the format it
asks for, with programs whose numbers it changed at random. The gateway, the parsing, the jailed
evaluations and the journal are those of every run. Tokens are the server's: a token for every four
characters of prompts and replies. The second half of a run's evaluations counts as its steady
state. Nothing is cached: the cache lies in a folder of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.servers.openai_server import SCRIPTED, OpenAIServer

from culmen.core.usage import Budget
from culmen.run.study import Study
from culmen.store.journal import SqlJournal
from culmen.strategies import catalog
from culmen.tasks import example_path, load

TASK = "first_autocorr_ineq"
_PROGRAM = re.compile(r"# Current candidate.*?\n(`{3,})[^\n]*\n(.*?)\n\1", re.DOTALL)
_ASKED = re.compile(r'"responses" is a list of (\d+) objects')
_NUMBER = re.compile(r"(?<![\w.])\d+\.?\d*(?![\w.])")


class Tinkerer:
    """Changes one to three numbers between the markers of the program it is shown."""

    def __init__(self, seed: int) -> None:
        self._rng, self._lock = random.Random(seed), threading.Lock()

    def __call__(self, body: dict) -> str:
        prompt = body["messages"][-1]["content"]
        found = _PROGRAM.search(prompt)
        assert found, prompt[:2000]
        asked = _ASKED.search(prompt)
        with self._lock:
            programs = [self._changed(found[2]) for _ in range(int(asked[1]) if asked else 1)]
        if asked is None:
            return f"Other numbers.\n\n```heights.py\n{programs[0]}\n```\n"
        share = 1 / len(programs)
        return json.dumps(
            {"responses": [{"code": program, "probability": share} for program in programs]}
        )

    def _changed(self, program: str) -> str:
        head, mark, rest = program.partition("# EVOLVE-BLOCK-START")
        body, end, tail = rest.partition("# EVOLVE-BLOCK-END")
        spots = list(_NUMBER.finditer(body))
        for spot in sorted(
            self._rng.sample(spots, min(len(spots), self._rng.randint(1, 3))),
            key=lambda s: -s.start(),
        ):
            text = (
                f"{float(spot[0]) * 2 ** self._rng.gauss(0, 0.7):.4g}"
                if "." in spot[0]
                else str(self._near(spot[0]))
            )
            body = body[: spot.start()] + text + body[spot.end() :]
        return head + mark + body + end + tail

    def _near(self, whole: str) -> int:
        return max(0, min(300, int(whole) + self._rng.choice([-2, -1, 1, 2])))


def run(strategy: str, seed: int, evaluations: int, folder: Path) -> dict[str, float]:
    """One run of one strategy; counts over all of it, and in its steady state."""
    with OpenAIServer(Tinkerer(seed)) as server:
        models = folder / f"models-{strategy}-{seed}.toml"
        models.write_text(SCRIPTED.format(url=server.url))
        study = Study.create(
            load(example_path(TASK)),
            catalog.make_strategy(strategy),
            model="scripted",
            models_file=str(models),
            budget=Budget(evaluations=evaluations),
            random_seed=seed,
            workers=2,
            run_dir=folder / f"{strategy}-{seed}",
        )
        began = time.perf_counter()
        study.run()
        took = time.perf_counter() - began
        assert server.outcomes["ok"] == len(server.requests)
        tokens = sum(server.billed.values())
    journal = SqlJournal.open(study.path, write=False)
    kinds = [event.entry.effect for event in journal.read() if event.entry.kind == "done"]
    journal.close()
    kinds = [kind for kind in kinds if kind in ("propose", "evaluate")]
    half = [i for i, kind in enumerate(kinds) if kind == "evaluate"][kinds.count("evaluate") // 2]
    late = kinds[half:]
    best = study.best
    assert best is not None
    return {
        "requests": len(server.requests),
        "evaluations": kinds.count("evaluate"),
        "per": kinds.count("propose") / kinds.count("evaluate"),
        "steady": late.count("propose") / late.count("evaluate"),
        "tokens": tokens,
        "tokens_per": tokens / kinds.count("evaluate"),
        "score": best.score,
        "seconds": took,
    }


def main() -> None:
    """Both strategies, several seeds; medians and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--evaluations", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        for seed in range(chosen.seeds):
            for strategy in ("turboevolve", "openevolve"):
                one = run(strategy, seed, chosen.evaluations, Path(name))
                found.setdefault(strategy, []).append(one)
                print(
                    f"{strategy:12} seed {seed}: {one['requests']:.0f} requests, {one['evaluations']:.0f} evaluations "
                    f"({one['per']:.3f}, steady {one['steady']:.3f}), {one['tokens']:,.0f} tokens "
                    f"({one['tokens_per']:.0f} each), best {one['score']:.6f}, {one['seconds']:.0f} s",
                    flush=True,
                )
    middle = {
        name: {key: statistics.median(one[key] for one in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    turbo, plain = middle["turboevolve"], middle["openevolve"]
    for key, text in (
        ("steady", "requests per evaluation in steady state"),
        ("tokens_per", "tokens per evaluation"),
    ):
        print(
            f"{text}: {turbo[key]:.3g} against {plain[key]:.3g} at K = 1, ratio {turbo[key] / plain[key]:.3f}"
        )


if __name__ == "__main__":
    main()
