"""Share of a budget that servers bill, by the way in which they report it.

    python bench/bench_servers.py              # the table: 10 random seeds
    python bench/bench_servers.py --seeds 2    # quickly

Servers on the loopback, each with a meter of its own. A reply has about 1,200 bytes and may have
16,384 tokens, at $1 and $4 a million; four workers. The share is what the meter shows at the end of
the run: the median over random seeds, and the least and the most. Exit 1 if a run used more than
its budget. The table is written into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers.billing_server import PRICE, REPORTS, BillingServer

import culmen

ROOT = Path(__file__).parents[1]
SEED = "VALUE = 1.0\n"
BUDGETS = {"dollars": 0.1, "tokens": 50_000, "calls": 20}
# words, what the server reports, bytes of its tokens, errors of ten, lines of the models file
WORLDS = [
    *((name, name, 4.0, 0, "", "") for name in REPORTS),
    ("nothing, a byte a token", "nothing", 1.0, 0, "", ""),
    ("nothing, `token_bytes = 3.9`", "nothing", 4.0, 0, "", "token_bytes = 3.9"),
    ("the total alone, `token_bytes = 3.9`", "the total alone", 4.0, 0, "", "token_bytes = 3.9"),
    ("counts; of ten replies three are a billed 500", "counts", 4.0, 3, "", ""),
    ("the same, `bills_errors = true`", "counts", 4.0, 3, "bills_errors = true", ""),
]
MODELS = """
[providers.own]
base_url = "{url}/v1"
base = 0.001
cap = 0.002
{provider}
[models.m]
provider = "own"
price = {{ input = {price.input}, output = {price.output} }}
{model}
"""
BEGIN, END = "<!-- servers -->\n", "<!-- end of servers -->"


def score(candidate: str) -> float:
    """The evaluator: nearer to a million is better."""
    return -abs(float(re.findall(r"VALUE = ([-\d.]+)", candidate)[0]) - 1e6)


def used_share(world: tuple[str, str, float, int, str, str], budget: str, seed: int) -> float:
    """Sum that the server has billed for one run, as a share of its budget."""
    _, report, token_bytes, errors, provider, model = world
    server = BillingServer(report, token_bytes=token_bytes, errors=errors, random_seed=seed)
    with tempfile.TemporaryDirectory() as folder, server:
        os.environ["XDG_CACHE_HOME"] = folder  # a reply of another server is no reply
        file = Path(folder, "models.toml")
        file.write_text(MODELS.format(url=server.url, provider=provider, model=model, price=PRICE))
        culmen.optimize(
            SEED,
            evaluator=score,
            model="m",
            models_file=str(file),
            strategy="best_of_n",
            budget=culmen.Budget.parse(f"evaluations=20000,{budget}={BUDGETS[budget]}"),
            workers=4,
            run_dir=Path(folder, "run"),
            progress=False,
            deterministic=True,
            random_seed=seed,
        )
    return getattr(server, budget) / BUDGETS[budget]


def main() -> None:
    """Print the table, and write it into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10, help="random seeds of every cell")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    options = parser.parse_args()
    heads = [f"{name}={limit:g}" for name, limit in BUDGETS.items()]
    lines, failed = [f"| the server reports | {' | '.join(heads)} |", "|---|" + "---|" * 3], False
    print("\n".join(lines), flush=True)
    for world in WORLDS:
        cells: list[str] = []
        for budget in BUDGETS:
            shares = [used_share(world, budget, seed) for seed in range(options.seeds)]
            is_known = not world[3] or bool(world[4])
            failed |= is_known and max(shares) > 1
            cells.append(f"{median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})")
        lines.append(f"| {world[0]} | {' | '.join(cells)} |".replace("%", " %"))
        print(lines[-1], flush=True)
    if options.write:
        page = ROOT / "docs" / "benchmarks.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        table = "\n".join(lines) + "\n"
        page.write_text(before + BEGIN + table + END + rest.partition(END)[2], encoding="utf-8")
    sys.exit(failed)


if __name__ == "__main__":
    main()
