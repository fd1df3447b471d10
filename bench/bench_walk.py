"""The newcomer's walk of docs/agents.md as it is printed there: a folder with an evaluator, the offline agent, no key.

    python bench/bench_walk.py                # what is promised: a certified improvement in less than two minutes
    python bench/bench_walk.py --show         # also everything the run printed

The evaluator and the command are taken from the page. Figures depend on the machine; the load average says whether it
had the machine to itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "agents.md"
LIMIT = 120.0


def main() -> None:
    """Walk, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    evaluator = re.search(r"<!-- file: evaluator.py -->\n```python\n(.*?)```", page, re.DOTALL)
    command = re.search(r"<!-- run -->\n```sh\n(culmen run.*?)```", page, re.DOTALL)
    assert evaluator is not None and command is not None, "the page has changed"
    words = shlex.split(command[1].replace("\\\n", " "))[1:]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "evaluator.py").write_text(evaluator[1], encoding="utf-8")
        load, began = os.getloadavg()[0], time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "culmen.cli.main", *words], cwd=folder, capture_output=True, text=True, check=True
        )
        seconds = time.perf_counter() - began
        if options.show:
            print(done.stderr + done.stdout)
        history = Path(folder, "runs/walk/view/past_experiments.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in history.splitlines()]
    certified = [row for row in rows if row["certified"] is not None]
    start = max(row["certified"] for row in certified if row["agent"] == -1)
    best = max(row["certified"] for row in certified)
    print(f"certified {start:.6g} -> {best:.6g} in {seconds:.0f} s, {len(rows)} experiments, load before {load:.1f}")
    print(f"improved within {LIMIT:.0f} s: {'yes' if best > start and seconds <= LIMIT else 'NO'}")


if __name__ == "__main__":
    main()
