"""Prompts over labelled cases: the default strategy and GEPA at equal costs.

The costs are evaluations, calls and dollars.

    pip install gepa
    python bench/bench_prompts.py --seeds 30 --out prompts.jsonl              # goes on where it was cut off
    python bench/bench_prompts.py --out prompts.jsonl --report
    python bench/bench_prompts.py --readers first last named --currencies evaluations --out readers.jsonl

A prompt is a set of words in one part or four. Words raise or lower the log odds that a small model
answers a case rightly, all of them or those of one topic; cases have difficulties. A strong model
changes the words of one part of the prompt that it is shown. A proposal costs 1, 10 or 50 answers:
40 % of that is its prompt; each further child of a call costs 60 % more. Both tools run through
their own entry points, settings at their defaults, with the same model, cases and splits (without a
val split GEPA chooses on its training cases). `culmen` runs the real engine on a virtual clock, its
evaluations of the test cases included; GEPA tests nothing and ends with the iteration that spends
all. Calls are those of both models. With `--readers` the strong model gets the prompt that each
tool writes and goes on from the first fenced text in it, from the last, or from the one that the
prompt names as the one to improve; without, it always knows that one. Printed is the true accuracy,
over 400 new cases, of the prompt that is reported.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scipy.stats import t as student

from culmen.core.brief import Brief, Proposal, resolve_format
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Case, Observation, RoleUsage, Status
from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, Request, Result
from culmen.core.task import Objective, Surface, Task
from culmen.core.usage import Budget, Usage
from culmen.models.prompts.formats import FORMATS, Completion, read_replies
from culmen.models.prompts.writer import PromptWriter
from culmen.strategies import catalog
from culmen.testing.landscape import Landscape
from culmen.testing.virtual import simulate

TOPICS, NEW_CASES = 4, 400
VOCABULARY, USEFUL, HARMFUL = 60, 12, 18  # words of all parts together; the others do nothing
PARENT_SHARE = 0.4  # of a proposal's cost: its prompt, which k children share
ANSWER_TOKENS, PROPOSAL_TOKENS = (300, 20), (2000, 800)
EVALUATIONS, CALLS = 600, 40
READERS = ("first", "last", "named")
NAMES = (
    "# Current candidate",
    "with the following instructions",
)  # culmen's and GEPA's, of the text to improve
_FENCED = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1$", re.M | re.S)
CURRENCIES = ("evaluations", "calls", "dollars 1", "dollars 10", "dollars 50")


class Steps(NamedTuple):
    """Changes of one proposal: words added (least, most), and chances.

    The chances are of a useful and of a harmful one, and of spoiling.
    """

    add: tuple[int, int]
    useful: float
    harmful: float
    spoil: float = 0.15


SMALL, LARGE, MOSTLY_HARMFUL = (
    Steps((1, 3), 0.6, 0.1),
    Steps((3, 6), 0.5, 0.25),
    Steps((1, 3), 0.25, 0.5, 0.3),
)


@dataclass(frozen=True)
class PromptWorld(Landscape):
    """One member of the family.

    `cases` of the train, val and test split; `graded` scores lie between 0 and 1, others are 0 or
    1; `base` is the log odds of the initial prompt on a case of mean difficulty, `parts` its parts.
    `same`: a prompt has one answer to a case, however often it is asked. `reads`: the model adds a
    word for the topic of a wrong answer that it is shown. `price` of a proposal in answers, and
    `priced`: dollars are known. `reader`: how the model finds the text to change in a prompt;
    without one it gets the text alone.
    """

    cases: tuple[int, int, int] = (30, 15, 15)
    steps: Steps = SMALL
    graded: bool = False
    base: float = 0.4
    parts: int = 1
    same: bool = False
    reads: bool = False
    number: int = 0
    price: float = 10.0
    priced: bool = False
    reader: str = ""

    # -- the truth

    @cached_property
    def effects(self) -> list[dict[int, tuple[float, int]]]:
        """By part: (log odds, topic) of each word; topic -1 is all cases."""
        rng = Random(f"words/{self.number}")
        laws = [1.0] * USEFUL + [-1.0] * HARMFUL + [0.0] * (VOCABULARY - USEFUL - HARMFUL)
        rng.shuffle(laws)
        found: list[dict[int, tuple[float, int]]] = [{} for _ in range(self.parts)]
        for word, sign in enumerate(laws):
            special = rng.random() < 0.5
            size = 0.35 * rng.uniform(0.5, 1.5) * (2.0 if special else 1.0)
            found[word % self.parts][word] = (sign * size, rng.randrange(TOPICS) if special else -1)
        return found

    def case_law(self, case: str) -> tuple[float, int]:
        """Difficulty and topic of a case."""
        rng = Random(f"case/{self.number}/{case}")
        return rng.gauss(0, 1.2), rng.randrange(TOPICS)

    def chance(self, parts: Mapping[str, str], case: str) -> float:
        """Chance of a right answer, or the mean of a graded one."""
        difficulty, topic = self.case_law(case)
        logit = self.base - difficulty
        for name, text in parts.items():
            effects = self.effects[int(name[1:])]
            for word in words_of(text):
                size, on = (
                    (-1.5, -1) if word < 0 else effects.get(word, (0.0, -1))
                )  # else of another part
                logit += size if on in (-1, topic) else 0.0
        return 1.0 / (1.0 + math.exp(-logit))

    def accuracy(self, parts: Mapping[str, str]) -> float:
        """True accuracy over new cases."""
        return fmean(self.chance(parts, f"new-{k}") for k in range(NEW_CASES))

    def answer(self, parts: Mapping[str, str], case: str, seed: object) -> float:
        """The score of one answer."""
        rng = Random(f"{sorted(parts.items())}/{case}/{'' if self.same else seed}/{self.number}")
        chance = min(max(self.chance(parts, case), 1e-3), 1 - 1e-3)
        return (
            rng.betavariate(8 * chance, 8 * (1 - chance))
            if self.graded
            else float(rng.random() < chance)
        )

    # -- the model

    def change(self, name: str, text: str, failed: Sequence[int], rng: Random) -> str:
        """The text of a part after one proposal.

        `failed` are topics of wrong answers that were shown.
        """
        effects, steps, words = self.effects[int(name[1:])], self.steps, set(words_of(text))
        for _ in range(rng.randint(*steps.add)):
            draw = rng.random()
            sign = 1 if draw < steps.useful else -1 if draw < steps.useful + steps.harmful else 0
            fit = [word for word, (size, _) in effects.items() if (size > 0) - (size < 0) == sign]
            if self.reads and failed and sign > 0:
                topic = rng.choice(failed)
                fit = [word for word in fit if effects[word][1] in (-1, topic)] or fit
            words.add(rng.choice(fit or sorted(effects)))  # a part may have no word of a kind
        if rng.random() < 0.3 and len(words) > 1:
            words.discard(rng.choice(sorted(words)))
        if rng.random() < steps.spoil:
            words.add(-1 - rng.randrange(1000))
        return part_text(name, words)

    def proposal_price(self, k: int) -> float:
        """Cost of a call for k children, in answers."""
        return self.price * (PARENT_SHARE + (1 - PARENT_SHARE) * k)

    # -- culmen

    def task(self) -> Task:
        """The task, as `culmen prompt` makes it: three splits, scores between 0 and 1."""
        named = zip(("train", "val", "test"), self.cases)
        cases = tuple(Case(f"{split}-{k}", k, split=split) for split, n in named for k in range(n))
        return Task(
            "prompts",
            goal="answer",
            seeds=(self.first(),),
            cases=cases,
            objective=Objective(bounds=(0.0, 1.0)),
            surface=Surface(language="text"),
        )

    def first(self) -> dict[str, str]:
        """The initial prompt."""
        return {f"p{i}": part_text(f"p{i}", ()) for i in range(self.parts)}

    def answer_usage(self) -> Usage:
        tokens = dict(zip(("input_tokens", "output_tokens"), ANSWER_TOKENS))
        known = {"dollars": 1.0} if self.priced else {"unpriced": 1}
        return Usage(calls=1, **known, **tokens)  # type: ignore[arg-type]

    def proposal_usage(self, k: int) -> Usage:
        tokens = {"input_tokens": PROPOSAL_TOKENS[0], "output_tokens": PROPOSAL_TOKENS[1] * k}
        known = {"dollars": self.proposal_price(k)} if self.priced else {"unpriced": 1}
        return Usage(calls=1, **known, **tokens)  # type: ignore[arg-type]

    def estimate(self, request: Request) -> Usage:
        """The cost of a request, known before it is made."""
        if isinstance(request, EvaluateRequest):
            return self.answer_usage() + Usage(evaluations=1)
        return (
            self.proposal_usage(request.brief.k) if isinstance(request, ProposeRequest) else Usage()
        )

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        """The duration and the result of an effect."""
        request = effect.request
        if isinstance(request, EvaluateRequest):
            assert request.case is not None
            score = self.answer(request.candidate.parts, request.case.id, request.seed)
            usage = self.answer_usage()
            asked = (RoleUsage("answer", "small", 1, usage),)
            return rng.expovariate(1.0), Observation(
                request.candidate.id,
                Status.OK,
                score,
                request.case.id,
                seed=request.seed,
                feedback=f"topic={self.case_law(request.case.id)[1]} score={score}",
                trust="verified",
                usage=usage,
                asked=asked,
            )
        if isinstance(request, ProposeRequest):
            return rng.expovariate(1.0), self.propose(request.brief, Random(request.seed))
        return super().perform(effect, rng)

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        """`brief.k` children, one part of each changed."""
        assert brief.parent is not None
        parent, found = brief.parent, []
        seen = [(o.score or 0.0, self.case_law(o.case)[1]) for o in brief.observations]
        if self.reader:
            return self.read_proposal(brief, wrong_topics(seen), rng)
        for rank in range(brief.k):
            name = rng.choice(sorted(parent.parts))
            text = self.change(name, parent.parts[name], wrong_topics(seen), rng)
            parts = {**parent.parts, name: text}
            found.append(Candidate.of(parts, (parent.id,), Origin("world", rank=rank)))
        return Proposal(tuple(found), model="strong", usage=self.proposal_usage(brief.k))

    def read_proposal(self, brief: Brief, failed: Sequence[int], rng: Random) -> Proposal:
        """The same, from the prompt that culmen writes."""
        task, form = self.task(), FORMATS[resolve_format(brief.format, brief.parent)]
        prompt = PromptWriter(task).brief_prompt(brief, form).user
        texts = [self.reply(prompt, failed, rng) for _ in range(form.samples(brief.k))]
        read = read_replies(tuple(map(Completion, texts)), form, task, brief, "strong")
        return Proposal(
            read.candidates, model="strong", usage=self.proposal_usage(brief.k), faults=read.faults
        )

    def reply(self, prompt: str, failed: Sequence[int], rng: Random) -> str:
        """The model's reply to a prompt, by how it reads."""
        name, text = read_part(prompt, self.reader, rng)
        return f"```{name}\n{self.change(name, part_text(name, words_of(text)), failed, rng)}\n```"


def read_part(prompt: str, reader: str, rng: Random) -> tuple[str, str]:
    """Name and text of the part that a model goes on from; of several that are named, any."""
    place = max(prompt.find(mark) for mark in NAMES) if reader == "named" else 0
    assert place >= 0, prompt
    shown = (
        prompt[place:].partition("\n# ")[0] if reader == "named" else prompt
    )  # the section under the name
    found = [(info, text) for _, info, text in _FENCED.findall(shown)]
    if reader == "named" and len(found) > 1 and NAMES[1] not in prompt:
        info, text = rng.choice(found)
    else:
        info, text = found[-1 if reader == "last" else 0] if found else ("", "")
    named = re.search(r"\bp\d\b", f"{info} {text}")
    return named[0] if named else "p0", text


def words_of(text: str) -> list[int]:
    """The words in the text of a part."""
    return [
        int(word)
        for word in re.findall(r"-?\d+", (re.search(r"words:([ \d-]*)", text) or ["", ""])[1])
    ]


def part_text(name: str, words: Sequence[int] | set[int]) -> str:
    """A part with these words."""
    return f"part {name} words: {' '.join(map(str, sorted(words)))}".strip()


def wrong_topics(seen: Sequence[tuple[float, int]]) -> list[int]:
    """Topics of cases with a score below a half."""
    return [topic for score, topic in seen if score < 0.5]


# tuned on, and reported
TUNED = {
    "60 cases": PromptWorld(),
    "20 cases, harmful, hard": PromptWorld(cases=(10, 5, 5), steps=MOSTLY_HARMFUL, base=-1.0),
    "10 cases, graded, large": PromptWorld(cases=(10, 0, 0), steps=LARGE, graded=True),
    "100 cases, graded, 4 parts, hard": PromptWorld(
        cases=(50, 25, 25), graded=True, parts=4, base=-1.0
    ),
    "60 cases, harmful": PromptWorld(steps=MOSTLY_HARMFUL),
    "60 cases, graded, harmful": PromptWorld(graded=True, steps=MOSTLY_HARMFUL, reads=True),
    "100 cases, large, same answers": PromptWorld(
        cases=(50, 25, 25), steps=LARGE, same=True, reads=True
    ),
}
HELD_OUT = {
    "100 cases, harmful": PromptWorld(cases=(50, 25, 25), steps=MOSTLY_HARMFUL),
    "20 cases, graded, same answers": PromptWorld(
        cases=(10, 5, 5), graded=True, same=True, reads=True
    ),
    "10 cases, hard": PromptWorld(cases=(10, 0, 0), base=-1.0),
    "20 cases, large, 4 parts": PromptWorld(cases=(10, 5, 5), steps=LARGE, parts=4),
    "100 cases, graded, harmful, hard": PromptWorld(
        cases=(50, 25, 25), graded=True, steps=MOSTLY_HARMFUL, base=-1.0, reads=True
    ),
    "100 cases, 4 parts, hard": PromptWorld(cases=(50, 25, 25), parts=4, base=-1.0),
}
FAMILY = {**TUNED, **HELD_OUT}


def budget_of(currency: str) -> tuple[Budget, float, bool]:
    """The budget, the price of a proposal in answers, and True if dollars are known."""
    if currency.startswith("dollars"):
        price = float(currency.split()[1])
        return Budget(dollars=EVALUATIONS + CALLS * price), price, True
    if currency == "calls":
        return Budget(calls=EVALUATIONS + CALLS), 10.0, False
    return Budget(evaluations=EVALUATIONS), 10.0, False


class Spent:
    """Answers and proposals of one run, and the dollars for them."""

    def __init__(self, price: float) -> None:
        self.price, self.answers, self.calls, self.dollars = price, 0, 0, 0.0


def run_culmen(
    strategy: str, world: PromptWorld, budget: Budget, seed: int, workers: int
) -> dict[str, Any]:
    """One search of culmen."""
    done = simulate(
        catalog.make_strategy(strategy),
        world.task(),
        world,
        budget,
        seed=seed,
        workers=workers,
        estimate=world.estimate,
    )
    task, spent, found = world.task(), Spent(world.price), {}
    found = {candidate.id: candidate for candidate in task.initial_candidates()}
    for event in done.journal.read():
        if event.entry.kind != "done":
            continue
        result = event.entry.result
        if isinstance(result, Proposal):
            spent.calls += 1
            spent.dollars += world.proposal_price(
                round(result.usage.output_tokens / PROPOSAL_TOKENS[1])
            )
            found.update((candidate.id, candidate) for candidate in result.candidates)
        elif isinstance(result, Observation):
            spent.answers += 1
            spent.dollars += 1.0
    best = done.verdict
    first = found[task.initial_candidates()[0].id]
    reported = found[best.id] if best is not None else first
    return {"truth": world.accuracy(reported.parts), **vars(spent), "made": len(found)}


def run_gepa(world: PromptWorld, budget: Budget, seed: int, merge: bool) -> dict[str, Any]:
    """One search of GEPA."""
    import gepa
    from gepa.core.adapter import EvaluationBatch

    spent, rng, logged = Spent(world.price), Random(f"gepa/{seed}"), []

    class Adapter:
        """Answers of the small model, and what the strong one sees of them."""

        propose_new_texts = None

        def evaluate(
            self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False
        ) -> Any:
            scores = []
            for case in batch:
                scores.append(world.answer(candidate, case, f"{seed}/{spent.answers}"))
                spent.answers += 1
                spent.dollars += 1.0
            traces = [
                {"topic": world.case_law(case)[1], "score": s} for case, s in zip(batch, scores)
            ]
            return EvaluationBatch(
                outputs=scores, scores=scores, trajectories=traces if capture_traces else None
            )

        def make_reflective_dataset(self, candidate: Any, batch: Any, components: list[str]) -> Any:
            seen = [
                {"Feedback": f"topic={t['topic']} score={t['score']}"} for t in batch.trajectories
            ]
            return {name: seen for name in components}

    def model(prompt: str) -> str:
        spent.calls += 1
        spent.dollars += world.proposal_price(1)
        seen = [(float(s), int(t)) for t, s in re.findall(r"topic=(\d) score=(\S+)", prompt)]
        if world.reader:
            return world.reply(prompt, wrong_topics(seen), rng)
        found = re.search(r"^part (p\d) words:(.*)$", prompt, re.M)
        assert found, prompt
        return f"```\n{world.change(found[1], found[0], wrong_topics(seen), rng)}\n```"

    class Log:
        def log(self, message: str) -> None:
            logged.append(message)

    def is_spent(state: Any) -> bool:
        if budget.dollars is not None:
            return spent.dollars >= budget.dollars
        return budget.calls is not None and spent.answers + spent.calls >= budget.calls

    train, val = (
        [f"{split}-{k}" for k in range(n)] for split, n in zip(("train", "val"), world.cases)
    )
    result = gepa.optimize(
        seed_candidate=world.first(),
        trainset=train,
        valset=val or None,
        adapter=Adapter(),
        reflection_lm=model,
        max_metric_calls=budget.evaluations,
        stop_callbacks=[is_spent],
        use_merge=merge,
        logger=Log(),
        seed=seed,
    )
    assert not any("Exception" in line for line in logged), [
        line for line in logged if "Exception" in line
    ][:1]
    return {
        "truth": world.accuracy(result.best_candidate),
        **vars(spent),
        "made": len(result.candidates),
    }


def run(
    tool: str, name: str, currency: str, seed: int, workers: int, reader: str = ""
) -> dict[str, Any]:
    """One search; plain data."""
    budget, price, priced = budget_of(currency)
    world = replace(FAMILY[name], number=seed, price=price, priced=priced, reader=reader)
    if tool.startswith("gepa"):
        told = run_gepa(world, budget, seed, tool == "gepa+merge")
    else:
        told = run_culmen(tool, world, budget, seed, workers)
    row = {"tool": tool, "world": name, "currency": currency, "seed": seed, "reader": reader}
    return {**row, **told, "start": world.accuracy(world.first())}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half of its 95 % interval."""
    if len(values) < 2:
        return fmean(values), math.nan
    return fmean(values), float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(
        len(values)
    )


def report(rows: list[dict[str, Any]], one: str, other: str) -> None:
    """A table of worlds and currencies, and one of means over worlds."""
    known = {(r["tool"], r["world"], r["currency"], r["seed"]): r for r in rows}
    print(
        f"| world | currency | start | {one} | {other} | paired difference | calls | evaluations | seeds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    everything: dict[tuple[str, str], list[float]] = {}
    for half, members in (("tuned", TUNED), ("held out", HELD_OUT)):
        for world in members:
            for currency in CURRENCIES:
                seeds = [s for t, w, c, s in known if (t, w, c) == (one, world, currency)]
                seeds = [s for s in seeds if (other, world, currency, s) in known]
                if not seeds:
                    continue
                mine, its = ([known[t, world, currency, s] for s in seeds] for t in (one, other))
                gaps = [a["truth"] - b["truth"] for a, b in zip(mine, its)]
                everything.setdefault((half, currency), []).extend(gaps)
                cells = [
                    "{:.3f} ± {:.3f}".format(*interval([r["truth"] for r in each]))
                    for each in (mine, its)
                ]
                cells.append("{:+.3f} ± {:.3f}".format(*interval(gaps)))
                for what in ("calls", "answers"):
                    cells.append(
                        " : ".join(f"{fmean(r[what] for r in each):.0f}" for each in (mine, its))
                    )
                start = fmean(r["start"] for r in mine)
                print(
                    f"| {world} | {currency} | {start:.3f} | {' | '.join(cells)} | {len(seeds)} |"
                )
    print(f"\n| half | currency | {one} − {other} | runs |\n|---|---|---|---|")
    for (half, currency), gaps in everything.items():
        print(
            f"| {half} | {currency} | {'{:+.3f} ± {:.3f}'.format(*interval(gaps))} | {len(gaps)} |"
        )


def report_readers(rows: list[dict[str, Any]], tools: Sequence[str]) -> None:
    """A table of readers: true accuracy with each tool's prompts."""
    worlds = list(dict.fromkeys((r["world"], r["currency"]) for r in rows))
    print(f"| world | currency | reader | start | {' | '.join(tools)} | seeds |")
    print(f"|---|---|---|---|{'---|' * len(tools)}---|")
    for world, currency in worlds:
        for reader in READERS:
            mine = [
                r
                for r in rows
                if (r["world"], r["currency"], r["reader"]) == (world, currency, reader)
            ]
            each = [[r["truth"] for r in mine if r["tool"] == tool] for tool in tools]
            if all(each):
                cells = ["{:.3f} ± {:.3f}".format(*interval(one)) for one in each]
                start = f"{fmean(r['start'] for r in mine):.3f}"
                print(
                    f"| {world} | {currency} | {reader} | {start} | {' | '.join(cells)} | {min(map(len, each))} |"
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tools", nargs="*", default=["pedigree", "gepa"], help="strategies, gepa, gepa+merge"
    )
    parser.add_argument("--worlds", nargs="*", help="names, or tuned, or held-out")
    parser.add_argument("--currencies", nargs="*", default=CURRENCIES)
    parser.add_argument(
        "--readers", nargs="*", default=[""], choices=READERS, help="a table of its own"
    )
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("prompts.jsonl"))
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    rows = (
        [json.loads(line) for line in given.out.read_text().splitlines()]
        if given.out.exists()
        else []
    )
    rows = [{"reader": "", **row} for row in rows]
    if not given.report:
        halves = {"tuned": TUNED, "held-out": HELD_OUT}
        names = [n for each in given.worlds or FAMILY for n in halves.get(each, (each,))]
        done = {tuple(r[k] for k in ("tool", "world", "currency", "seed", "reader")) for r in rows}
        todo = [
            (tool, world, currency, seed, given.workers, reader)
            for seed in range(given.first, given.first + given.seeds)
            for world in names
            for currency in given.currencies
            for reader in given.readers
            for tool in given.tools
            if (tool, world, currency, seed, reader) not in done
        ]
        with ProcessPoolExecutor(given.jobs) as pool, given.out.open("a") as file:
            for row in pool.map(run, *zip(*todo)) if todo else ():
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
    if any(row["reader"] for row in rows):
        report_readers(rows, given.tools)
    if plain := [row for row in rows if not row["reader"]]:
        report(plain, given.tools[0], given.tools[-1])


if __name__ == "__main__":
    main()
