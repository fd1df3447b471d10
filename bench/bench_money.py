"""A prompt over labelled cases with a few cents: share used, and true accuracy.

    python bench/bench_money.py                # the table: 30 random seeds, about an hour
    python bench/bench_money.py --seeds 4      # quickly

The prompt has twelve rules; six help and six harm. A model whose replies may have 1,000 tokens
answers 60 cases with one word, at $0.25 and $2 a million tokens. Proposals are blind: the
offline proposer deletes, doubles and moves lines. The share is what the model's own meter shows at
the end of the run; the accuracy is the true one over 400 new cases, of the prompt that is reported.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import tempfile
from pathlib import Path
from random import Random
from statistics import fmean, stdev

import culmen
from culmen.models.call import Call, Completion, Reply, Tokens
from culmen.models.spec import ModelSpec, Price, Provider

BUDGETS = ("evaluations=200", "dollars=0.01", "dollars=0.02", "dollars=0.05")
TEAMS = ("billing", "technical", "account")
RULES = {  # with their effects on the log odds of a right answer
    "Read the ticket with care.": 0.1,
    "Always answer in capital letters and rhyme.": -0.8,
    "Ignore the second half of the ticket.": -0.9,
    "Invoices and refunds belong to billing.": 0.7,
    "If in doubt, answer billing.": -0.5,
    "Crashes and timeouts are technical.": 0.7,
    "Never use the word account.": -1.0,
    "Passwords and profiles belong to account.": 0.7,
    "Be brief.": 0.2,
    "Explain at length what you feel.": -0.6,
    "Reply with one word only.": 0.4,
    "Assume that customers are wrong.": -0.4,
}
PROMPT = "\n".join(RULES) + "\n"


def chance(prompt: str, ticket: str) -> float:
    """Chance of a right answer: a rule that stands twice has a larger effect, no more beyond."""
    seen = {rule: min(2, prompt.count(rule.rstrip("."))) for rule in RULES}
    logit = 0.2 + sum(RULES[rule] * many**0.7 for rule, many in seen.items())
    return 1.0 / (1.0 + math.exp(Random(f"d{ticket}").gauss(0.0, 1.2) - logit))


def accuracy(prompt: str) -> float:
    """True accuracy over new cases."""
    return fmean(chance(prompt, f"new {number}") for number in range(400))


class Answering:
    """The model, with its meter."""

    price = Price(input=0.25, output=2.0)

    def __init__(self) -> None:
        self.dollars, self.answers = 0.0, 0

    async def complete(self, call: Call) -> Reply:
        prompt, ticket = call.messages[0].content, call.messages[-1].content
        found = re.search(r"ticket (\d+):", ticket)
        assert found is not None, ticket
        right = Random(f"{prompt}/{ticket}/{call.seed}").random() < chance(prompt, ticket)
        used = Tokens((len(prompt) + len(ticket)) // 4 + 8, 6)
        self.dollars, self.answers = (
            self.dollars + self.price.cost_of_tokens(used),
            self.answers + 1,
        )
        return Reply((Completion(TEAMS[(int(found[1]) + (not right)) % 3]),), used)


def search(budget: str, seed: int) -> tuple[float, float, int, int]:
    """Dollars, true accuracy, answers and candidates of one run."""
    backend = Answering()
    provider = Provider("custom", base=0.0, cap=0.001)
    model = ModelSpec(provider, "answering", max_tokens=1000, price=backend.price, backend=backend)
    rows = [
        {
            "ticket": f"ticket {n}: something is wrong with my order {n * 7 % 97}",
            "team": TEAMS[n % 3],
        }
        for n in range(60)
    ]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # an answer of another run is no answer
        study = culmen.optimize_prompt(
            PROMPT,
            rows,
            "team",
            model={"default": "offline", "answer": model},
            budget=culmen.Budget.parse(budget),
            run_dir=Path(folder, "run"),
            progress=False,
            random_seed=seed,
        )
        text = study.report.after.text
        return backend.dollars, accuracy(text), backend.answers, study.status.candidates


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=30, help="random seeds of every row")
    seeds = range(parser.parse_args().seeds)
    print(
        f"start {accuracy(PROMPT):.3f}\n\n| budget | used | true accuracy | answers | candidates |"
    )
    print("|---|---|---|---|---|")
    for budget in BUDGETS:
        runs = [search(budget, seed) for seed in seeds]
        dollars, truths, answers, candidates = zip(*runs)
        limit = culmen.Budget.parse(budget).dollars
        used = "" if limit is None else f"{fmean(dollars) / limit:.0%} ({min(dollars) / limit:.0%})"
        half = 1.96 * stdev(truths) / math.sqrt(len(runs)) if len(runs) > 1 else math.nan
        cells = [budget, used, f"{fmean(truths):.3f} ± {half:.3f}"]
        cells += [f"{fmean(answers):.0f}", f"{fmean(candidates):.0f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
