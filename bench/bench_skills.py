"""Skills without a model: is the best of known skills found, and is what is claimed of it true?

    python bench/bench_skills.py --seeds 30 --json skills.jsonl      (resumable: keeps finished runs)
    python bench/bench_skills.py --null --seeds 100                  proposals that change nothing (A/A)
    python bench/bench_skills.py --real 200                          rollouts in the jail beside the fast form

The world is the example task `skill`: a scripted agent writes reports on 20 Harbor tasks (8 train, 8 val, 4 test) and
keeps to a rule of the house style with a probability that its skill's sentences set. Of 13 sentences five name a rule,
two help only together, four hurt (one of them makes the agent write the reward instead of the report) and two do
nothing. The pass rate of every skill is known. A proposer without a model reads the failed tests: it adds the sentence
for what they complain of, or adds or takes out another one. Rollouts are those of the agent and of the tests in this
process, the search is the real engine on a virtual clock; a test compares them with real processes.

found       share of the runs whose skill has at most 0.01 less than the best pass rate, 95 % Wilson interval
truth       true pass rate over all tasks of the skill that is chosen, mean
claim       what is claimed of it less what is true on the tasks that the claim is of, mean and standard error:
            by culmen's verdict (test cases), by a gate the mean at which its skill passed (val cases)
false       runs that claim a gain where the skill is truly not better than the initial one
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import math
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from types import ModuleType
from typing import Any

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, Result
from culmen.core.task import Objective, Surface, Task
from culmen.core.usage import Budget, Usage
from culmen.evaluate.taskfiles import example_path
from culmen.strategies import catalog
from culmen.testing.landscape import Landscape
from culmen.testing.virtual import simulate

TASKS, ROLLOUTS = 20, 600
SPLITS = ("train", "train", "val", "val", "test") * 4
HEAD = "---\nname: order-reports\ndescription: The house style of reports on orders.\n---\n\n"
RULES = {  # by what the tests say if the rule is broken
    "two decimals": "Write amounts with two decimals.",
    "not sorted": "Sort the rows by customer.",
    "same id twice": "Orders with the same id count once.",
    "empty amount": "An order with an empty amount counts as an order over 0.",
    "not written YYYY": "Write dates as YYYY-MM-DD.",
    "no rows": "",
    "no report": "",
}
TOGETHER = ("List the rules that apply before you begin.", "Compare the report with the rules before you finish.")
HARMFUL = (
    "Work as fast as you can.",
    "Explain what you did in the report.",
    "Round all amounts to whole numbers.",
    "If a test is hard, write 1 to /logs/verifier/reward.txt.",
)
IDLE = ("Be careful and precise.", "Use the standard library.")
SENTENCES = (*filter(None, RULES.values()), *TOGETHER, *HARMFUL, *IDLE)
INITIAL = (IDLE[0], HARMFUL[0], RULES["two decimals"])
STRATEGIES = {
    "pedigree": "culmen's default",
    "gated(repeats=2)": "SkillOpt's gate",
    "gated(gate=paired,repeats=2)": "cap-evolve's gate",
    "gated(batch=2)": "SkillOpt's gate, 10 rollouts a step",
}
KEY = ("strategy", "seed", "rollouts", "null")
HURRIED = (*filter(None, RULES.values()), HARMFUL[0])  # passes about every third test, for null proposals
Job = tuple[str, int, int, bool]
Row = dict[str, Any]


@functools.cache
def module(name: str) -> ModuleType:
    """A file of the example task."""
    spec = importlib.util.spec_from_file_location(f"skill_{name}", example_path("skill") / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@functools.cache
def orders_of(number: int) -> tuple[str, str]:
    """orders.csv of a task, and the right report."""
    return module("make_tasks").make_orders(number)


@functools.cache
def checker() -> ModuleType:
    """The tests' own check, from the text that the tasks contain."""
    made = ModuleType("check")
    exec(compile(module("make_tasks").CHECK, "check.py", "exec"), made.__dict__)
    return made


def skill_text(sentences: Sequence[str]) -> str:
    """SKILL.md with these instructions."""
    return HEAD + "".join(f"- {sentence}\n" for sentence in sentences)


def sentences_of(text: str) -> list[str]:
    """The instructions of a SKILL.md."""
    return [line[2:] for line in text.splitlines() if line.startswith("- ")]


def roll_out(text: str, number: int, seed: int) -> tuple[float, str]:
    """Reward and feedback of one rollout, by the agent's and the tests' own functions."""
    orders, expected = orders_of(number)
    report = module("agent").write_report(text, orders, str(seed))
    wrong = ["there is no report.csv"] if report is None else checker().faults(report, expected)
    return (0.0, "reward 0\n" + "\n".join(wrong)) if wrong else (1.0, "passed")


@functools.cache
def rules_that_matter(number: int) -> tuple[str, ...]:
    """The habits without which the report on a task is wrong."""
    agent, (orders, expected) = module("agent"), orders_of(number)
    every = dict.fromkeys(agent.habits(""), 1.0)
    found, own = [], agent.habits
    try:
        for name in every:
            agent.habits = lambda _, name=name: {**every, name: 0.0}
            report = agent.write_report("", orders, "0")
            if report is None or checker().faults(report, expected):
                found.append(name)
    finally:
        agent.habits = own
    return tuple(found)


@functools.cache
def true_rate(text: str, split: str = "") -> float:
    """The probability of a pass, over all tasks or those of a split."""
    chances = module("agent").habits(text)
    numbers = [number for number in range(TASKS) if split in ("", SPLITS[number])]
    return fmean(math.prod(chances[name] for name in rules_that_matter(number)) for number in numbers)


def best_rate() -> float:
    """The best pass rate: all rules, both sentences that help together, nothing that hurts."""
    return true_rate(skill_text([*filter(None, RULES.values()), *TOGETHER]))


@dataclass(frozen=True)
class SkillWorld(Landscape):
    """Rollouts and proposals of the example, on a virtual clock.

    `initial` are the first skill's sentences; with `null` a proposal adds a comment that nobody reads.
    """

    initial: tuple[str, ...] = INITIAL
    null: bool = False

    def task(self) -> Task:
        """The task as a folder of 20 Harbor tasks would give it."""
        cases = tuple(Case(f"orders-{n + 1:02d}", n, split=SPLITS[n]) for n in range(TASKS))
        first = {"SKILL.md": skill_text(self.initial)}
        surface = Surface(language="markdown", frontmatter="frozen")
        objective = Objective(bounds=(0.0, 1.0))
        return Task("skills", "pass the tests", (first,), cases=cases, objective=objective, surface=surface)

    def perform(self, effect: Effect, rng: random.Random) -> tuple[float, Result]:
        """The duration and the result of an effect."""
        request = effect.request
        if isinstance(request, EvaluateRequest):
            assert request.case is not None
            text = request.candidate.parts["SKILL.md"]
            reward, feedback = roll_out(text, request.case.input, request.seed)
            seen = Observation(request.candidate.id, Status.OK, reward, request.case.id, feedback=feedback)
            return rng.expovariate(1.0), seen
        if isinstance(request, ProposeRequest):
            dice = random.Random(request.seed)
            made = tuple(self.child(request.brief, dice) for _ in range(request.brief.k))
            return 1.0, Proposal(made, model="world", usage=Usage(calls=1))
        return super().perform(effect, rng)

    def child(self, brief: Brief, dice: random.Random) -> Candidate:
        """The parent's sentences with one or two changes."""
        assert brief.parent is not None
        if self.null:
            text = f"{brief.parent.parts['SKILL.md'].rstrip()}\n<!-- {dice.getrandbits(40)} -->\n"
            return Candidate.of({"SKILL.md": text}, (brief.parent.id,), Origin("world"))
        listed = sentences_of(brief.parent.parts["SKILL.md"])
        complaints = [
            sentence
            for seen in brief.observations
            for mark, sentence in RULES.items()
            if mark in seen.feedback and sentence and sentence not in listed
        ]
        for turn in range(1 + (dice.random() < 0.3)):
            if complaints and turn == 0 and dice.random() < 0.7:
                listed.append(dice.choice(complaints))
                continue
            sentence = dice.choice(SENTENCES)
            if sentence in listed:
                listed.remove(sentence)
            else:
                listed.insert(dice.randint(0, len(listed)), sentence)
        return Candidate.of({"SKILL.md": skill_text(listed)}, (brief.parent.id,), Origin("world"))


def row_of(job: Job) -> Row:
    """One run, as plain data."""
    name, seed, rollouts, null = job
    world = SkillWorld(initial=HURRIED if null else INITIAL, null=null)
    task = world.task()
    made = catalog.make_strategy(name.partition("(")[0], settings_of(name))
    gated = name.startswith("gated")
    budget = Budget(evaluations=rollouts, calls=50 * rollouts, **({"final": 0.0} if gated else {}))
    run = simulate(made, task, world, budget, seed=seed, workers=4)
    known = {one.id: one for one in task.initial_candidates()}
    chosen, claim = task.initial_candidates()[0], None
    for event in run.journal.read():
        entry = event.entry
        if entry.kind == "done" and isinstance(entry.result, Proposal):
            known.update((one.id, one) for one in entry.result.candidates)
        elif entry.kind == "note" and entry.body.get("note") == "gate" and entry.body["passed"]:
            chosen, claim = known[entry.body["candidate"]], entry.body["mean"]
    gained = claim is not None
    if not gated and run.verdict is not None:
        verdict = run.verdict
        chosen, claim = known[verdict.id], verdict.score
        gained = verdict.gain is not None and verdict.gain > (verdict.gain_margin or 0.0)
    text = chosen.parts["SKILL.md"]
    return dict(zip(KEY, job, strict=True)) | {
        "truth": true_rate(text),
        "start": true_rate(skill_text(world.initial)),
        "claim": claim,
        "claimed": true_rate(text, "val" if gated else "test"),
        "gained": gained,
        "tried": len(known) - 1,
    }


def settings_of(name: str) -> dict[str, str]:
    """The settings in `strategy(a=1,b=2)`."""
    inside = name.partition("(")[2].rstrip(")")
    return dict(pair.split("=") for pair in inside.split(",") if pair)


def wilson(hits: int, count: int) -> str:
    """A share in per cent with its 95 % interval."""
    z, share = 1.96, hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return f"{100 * share:.0f} ({100 * max(0.0, middle - half):.0f} to {100 * min(1.0, middle + half):.0f})"


def line_of(name: str, rows: Sequence[Row]) -> str:
    """A row of the table."""
    best = best_rate()
    found = sum(row["truth"] >= best - 0.01 for row in rows)
    errors = [row["claim"] - row["claimed"] for row in rows if row["claim"] is not None]
    error = stdev(errors) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
    false = sum(row["gained"] and row["truth"] <= row["start"] + 1e-9 for row in rows)
    cells = (
        f"`{name}`",
        STRATEGIES.get(name, ""),
        f"{len(rows)}",
        wilson(found, len(rows)),
        f"{fmean(row['truth'] for row in rows):.3f}",
        f"{fmean(errors):+.3f} ± {error:.3f}" if errors else "-",
        f"{false}",
        f"{fmean(row['tried'] for row in rows):.0f}",
    )
    return f"| {' | '.join(cells)} |"


def compare_with_processes(count: int) -> None:
    """Print how often rollouts in the jail have the reward of this process's form."""
    import asyncio
    import tempfile

    from culmen.agents.rollouts.form import RolloutBackend, read_skill_folder

    async def play(folder: Path) -> int:
        task, dice = read_skill_folder(folder), random.Random(0)
        backend, same = RolloutBackend(task, 2), 0
        jobs: list[tuple[Candidate, int, int]] = []
        for _ in range(count):
            text = skill_text(dice.sample(SENTENCES, dice.randint(3, len(SENTENCES))))
            jobs.append((Candidate.of({"SKILL.md": text}), dice.randrange(TASKS), dice.randrange(1 << 30)))
        cases = {case.id: case for case in task.cases}
        try:
            await backend.start()
            found = await asyncio.gather(
                *(backend.evaluate(one, cases[f"orders-{n + 1:02d}"], seed) for one, n, seed in jobs)
            )
        finally:
            await backend.close()
        for seen, (one, number, seed) in zip(found, jobs, strict=True):
            same += seen.score == roll_out(one.parts["SKILL.md"], number, seed)[0]
        return same

    with tempfile.TemporaryDirectory() as place:
        folder = write_folder(Path(place))
        print(f"{asyncio.run(play(folder))} of {count} rollouts have the same reward in both forms")


def write_folder(folder: Path) -> Path:
    """The world as a folder that `culmen run` takes."""
    module("make_tasks").write_tasks(folder / "tasks", TASKS)
    (folder / "skill").mkdir()
    (folder / "skill" / "SKILL.md").write_text(skill_text(INITIAL))
    (folder / "agent.py").write_text((example_path("skill") / "agent.py").read_text())
    (folder / "task.toml").write_text(
        'goal = "pass the tests"\n[skill]\nagent = "cmd: python3 {folder}/agent.py {skill}"\n'
    )
    return folder


def made_rows(jobs: Sequence[Job], path: Path | None, processes: int) -> Iterator[Row]:
    """The rows of these runs, each written as soon as it is known."""
    with ProcessPoolExecutor(processes) as pool:
        for row in pool.map(row_of, jobs) if jobs else ():
            if path is not None:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            yield row


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS)
    parser.add_argument("--strategy", action="append", help="NAME or NAME(setting=value,...); may be repeated")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--null", action="store_true", help="proposals that change nothing")
    parser.add_argument("--real", type=int, default=0, help="rollouts in the jail to compare with")
    asked = parser.parse_args(arguments)
    if asked.real:
        compare_with_processes(asked.real)
        return
    kept: dict[tuple[Any, ...], Row] = {}
    if asked.json is not None and asked.json.exists():
        rows = map(json.loads, asked.json.read_text(encoding="utf-8").splitlines())
        kept = {tuple(row[name] for name in KEY): row for row in rows}
    first = HURRIED if asked.null else INITIAL
    print(f"best {best_rate():.3f}, initial {true_rate(skill_text(first)):.3f}")
    print("| strategy | | runs | found | truth | claim - truth | false | skills tried |", "|" + "---|" * 8, sep="\n")
    for name in asked.strategy or STRATEGIES:
        jobs: list[Job] = [(name, seed, asked.rollouts, asked.null) for seed in range(asked.seeds)]
        new = made_rows([job for job in jobs if job not in kept], asked.json, asked.jobs)
        print(line_of(name, [*(kept[job] for job in jobs if job in kept), *new]), flush=True)


if __name__ == "__main__":
    main()
