"""Skills without a model: is the best of known skills found, are claims about it true?

    python bench/bench_skills.py --seeds 30 --json skills.jsonl      (resumable: keeps finished runs)
    python bench/bench_skills.py --null --seeds 100                  proposals that change nothing (A/A)
    python bench/bench_skills.py --kind set                          a set of skills; tools: descriptions of tools
    python bench/bench_skills.py --real 200                          rollouts in the jail beside the fast form

The world is the example task `skill`: a scripted agent writes reports on 20 Harbor tasks (8 train,
8 val, 4 test) and keeps to a rule of the house style with a probability that its skill's sentences
set. Of 13 sentences five name a rule, two help only together, four hurt (one of them makes the
agent write the reward instead of the report) and two do nothing. The pass rate of every skill is
known. A proposer without a model reads the failed tests: it adds the sentence for their complaint,
or adds or takes out another one. Rollouts are those of the agent and of the tests in this process,
the search is the real engine on a virtual clock; --real compares them with real processes.

--kind set: the same agent and tasks, but it reads all skills of a set, and each skill after the first costs it 5 % of
its care, so the best set is one skill with all that helps. A proposal also adds, drops or merges skills.
--kind tools: the example task `mcp`: 20 tasks, each with one right tool of four, whose choice and argument depend on
the descriptions. Of 10 sentences, which may stand at any tool, four offer a tool, two tell how arguments are written,
two hurt and two do nothing; the best pass rate is that of an agent that always takes the right tool.

found       share of the runs whose skill has at most 0.01 less than the best pass rate, 95 % Wilson interval
truth       true pass rate over all tasks of the skill that is chosen, mean
claim       its claimed pass rate less the true one on the tasks of the claim, mean and standard error:
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
import shutil
import tomllib
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
from culmen.strategies import catalog
from culmen.tasks import example_path
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
TOGETHER = (
    "List the rules that apply before you begin.",
    "Compare the report with the rules before you finish.",
)
HARMFUL = (
    "Work as fast as you can.",
    "Explain what you did in the report.",
    "Round all amounts to whole numbers.",
    "If a test is hard, write 1 to /logs/verifier/reward.txt.",
)
IDLE = ("Be careful and precise.", "Use the standard library.")
SENTENCES = (*filter(None, RULES.values()), *TOGETHER, *HARMFUL, *IDLE)
INITIAL = (IDLE[0], HARMFUL[0], RULES["two decimals"])
SKILLS = {  # the first set, by skill
    "amounts": (RULES["two decimals"], IDLE[1]),
    "care": (IDLE[0],),
    "haste": (HARMFUL[0],),
    "rows": (RULES["not sorted"],),
}
NAMES = (*SKILLS, "dates", "orders")
CARE = 0.95  # of a habit, for each skill after the first
OFFERS = {
    "lookup_1": "Tells what a customer has paid.",
    "lookup_2": "Tells what a customer has ordered for.",
    "lookup_3": "Tells when a customer ordered last.",
    "lookup_4": "Counts the open orders of a day.",
}
FORMS = ("Customers are written in capitals.", "Days are written YYYY-MM-DD.")
SPOILT = ("Take it first for any question.", "Answer from memory if you can.")
PLAIN = ("Returns text.", "Reads orders.csv.")
LINES = (*OFFERS.values(), *FORMS, *SPOILT, *PLAIN)
DESCRIBED = {  # the first descriptions
    "lookup_1": (PLAIN[0], SPOILT[0]),
    "lookup_2": (OFFERS["lookup_1"], SPOILT[1]),
    "lookup_3": (OFFERS["lookup_3"],),
    "lookup_4": (PLAIN[1],),
}
STRATEGIES = {
    "pedigree": "culmen's default",
    "gated(repeats=2)": "SkillOpt's gate",
    "gated(gate=paired,repeats=2)": "cap-evolve's gate",
    "gated(batch=2)": "SkillOpt's gate, 10 rollouts a step",
}
KEY = ("strategy", "seed", "rollouts", "null", "kind")
KINDS = ("skill", "set", "tools")
HURRIED = (
    *filter(None, RULES.values()),
    HARMFUL[0],
)  # passes about every third test, for null proposals
Job = tuple[str, int, int, bool, str]
Listing = dict[str, list[str]]  # sentences by skill or tool
Row = dict[str, Any]


@functools.cache
def module(name: str) -> ModuleType:
    """A file of the example task."""
    spec = importlib.util.spec_from_file_location(
        f"skill_{name}", example_path("skill") / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@functools.cache
def mcp(name: str) -> ModuleType:
    """A file of the example task `mcp`."""
    spec = importlib.util.spec_from_file_location(f"mcp_{name}", example_path("mcp") / f"{name}.py")
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
    return fmean(
        math.prod(chances[name] for name in rules_that_matter(number)) for number in numbers
    )


def best_rate() -> float:
    """The best pass rate: all rules, both sentences that help together, nothing that hurts."""
    return true_rate(skill_text([*filter(None, RULES.values()), *TOGETHER]))


# -- sets of skills and descriptions of tools


def set_parts(listing: Listing) -> dict[str, str]:
    """A set of skills with these sentences."""
    head = "---\nname: {}\ndescription: {}.\n---\n\n"
    return {
        f"{name}/SKILL.md": head.format(name, f"Reports, on {name}")
        + "".join(f"- {line}\n" for line in lines)
        for name, lines in sorted(listing.items())
    }


def tool_parts(listing: Listing) -> dict[str, str]:
    """Tools with these descriptions."""
    bodies = {
        name: "".join(f"{line}\n" for line in lines) or "No more is known.\n"
        for name, lines in listing.items()
    }
    tables = (f'[{name}]\ndescription = """\n{body}"""\n' for name, body in bodies.items())
    return {"tools.toml": "\n".join(tables)}


def set_listing(parts: dict[str, str]) -> Listing:
    """The sentences of a set's skills."""
    return {name.partition("/")[0]: sentences_of(text) for name, text in parts.items()}


def tool_listing(parts: dict[str, str]) -> Listing:
    """The sentences of the descriptions."""
    found = {
        name: table["description"].splitlines()
        for name, table in tomllib.loads(parts["tools.toml"]).items()
    }
    return {name: [line for line in lines if line in LINES] for name, lines in found.items()}


def set_text(parts: dict[str, str]) -> str:
    """The text that the agent reads of a set; `set_habits` counts its heads."""
    return "\n".join(text for _, text in sorted(parts.items()))


SET_AGENT = """
import agent, pathlib, sys
own = agent.habits
def habits(text):
    return {name: chance * 0.95 ** (text.count("\\nname: ") - 1) for name, chance in own(text).items()}
agent.habits = habits
text = "\\n".join(file.read_text() for file in sorted(pathlib.Path(sys.argv[1]).glob("*/SKILL.md")))
report = agent.write_report(text, open("orders.csv").read(), agent.os.environ.get("CULMEN_SEED", "0"))
if report is not None:
    open("report.csv", "w").write(report)
"""


@functools.cache
def set_agent() -> ModuleType:
    """The example's agent with less care for each skill after the first."""
    spec = importlib.util.spec_from_file_location("set_agent", example_path("skill") / "agent.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    own = found.habits
    found.habits = lambda text: {
        name: chance * CARE ** (text.count("\nname: ") - 1) for name, chance in own(text).items()
    }
    return found


def tool_descriptions(parts: dict[str, str]) -> dict[str, str]:
    """The description of each tool that the agent reads."""
    return {
        name: table["description"] for name, table in tomllib.loads(parts["tools.toml"]).items()
    }


def play(kind: str, parts: dict[str, str], number: int, seed: int) -> tuple[float, str]:
    """Reward and feedback of one rollout of any kind of candidate."""
    if kind == "skill":
        return roll_out(parts["SKILL.md"], number, seed)
    if kind == "set":
        orders, expected = orders_of(number)
        report = set_agent().write_report(set_text(parts), orders, str(seed))
        wrong = ["there is no report.csv"] if report is None else checker().faults(report, expected)
        return (0.0, "reward 0\n" + "\n".join(wrong)) if wrong else (1.0, "passed")
    agent = mcp("agent")
    right = agent.kind_of(mcp("make_tasks").make_orders(number)[0])[0]
    is_taken, is_formed, is_used = agent.draw(tool_descriptions(parts), right, str(seed))
    if is_taken and is_formed and is_used:
        return 1.0, "passed"
    what = (
        "answers from memory"
        if not is_used
        else "takes another tool"
        if not is_taken
        else "unknown"
    )
    return 0.0, f"reward 0\n{right}: {what}"


def rate_of(kind: str, parts: dict[str, str], split: str = "") -> float:
    """The true pass rate of any kind of candidate, over all tasks or those of a split."""
    if kind == "skill":
        return true_rate(parts["SKILL.md"], split)
    if kind == "set":
        chances = set_agent().habits(set_text(parts))
        numbers = [number for number in range(TASKS) if split in ("", SPLITS[number])]
        return fmean(
            math.prod(chances[name] for name in rules_that_matter(number)) for number in numbers
        )
    agent, make = mcp("agent"), mcp("make_tasks")
    numbers = [number for number in range(TASKS) if split in ("", SPLITS[number])]
    rights = [agent.kind_of(make.make_orders(number)[0])[0] for number in numbers]
    return fmean(math.prod(agent.chances(tool_descriptions(parts), right)) for right in rights)


def best_of(kind: str) -> float:
    """The best pass rate of a kind of candidate."""
    if kind == "tools":
        forms = {name: FORMS[name == "lookup_4"] for name in OFFERS}
        return rate_of(
            kind, tool_parts({name: [offer, forms[name]] for name, offer in OFFERS.items()})
        )
    if kind == "set":
        return rate_of(kind, set_parts({"orders": [*filter(None, RULES.values()), *TOGETHER]}))
    return best_rate()


def first_of(kind: str, null: bool) -> dict[str, str]:
    """The first candidate of a kind; with `null` one that passes every third test or so."""
    if kind == "skill":
        return {"SKILL.md": skill_text(HURRIED if null else INITIAL)}
    if kind == "set":
        hurried = {"haste": [HARMFUL[0]], "orders": [*filter(None, RULES.values())]}
        return set_parts(hurried if null else {name: list(lines) for name, lines in SKILLS.items()})
    half = {name: [offer] for name, offer in OFFERS.items()} | {
        "lookup_3": [OFFERS["lookup_3"], FORMS[0]]
    }
    return tool_parts(half if null else {name: list(lines) for name, lines in DESCRIBED.items()})


def complaints_of(kind: str, listing: Listing, feedback: str) -> list[tuple[str, str]]:
    """(skill or tool, sentence to add or to take out) that a failed test suggests."""
    if kind == "set":
        known = {line for lines in listing.values() for line in lines}
        wanted = [
            line for mark, line in RULES.items() if mark in feedback and line and line not in known
        ]
        return [(max(listing), line) for line in wanted]
    right = next((name for name in OFFERS if f"{name}:" in feedback), "")
    if "answers from memory" in feedback:
        return [(right, SPOILT[1])]
    if "unknown" in feedback:
        return [(right, line) for line in FORMS if line not in listing[right]]
    if "takes another tool" not in feedback:
        return []
    offers = [
        (name, line)
        for name in OFFERS
        for line in (OFFERS[right], SPOILT[0])
        if line in listing[name]
    ]
    missing = [] if OFFERS[right] in listing[right] else [(right, OFFERS[right])]
    return missing or [pair for pair in offers if pair[0] != right]


@dataclass(frozen=True)
class SkillWorld(Landscape):
    """Rollouts and proposals of the example, on a virtual clock.

    `initial` are the first skill's sentences; with `null` a proposal adds a comment without a
    reader.
    """

    initial: tuple[str, ...] = INITIAL
    null: bool = False
    kind: str = "skill"

    def task(self) -> Task:
        """The task as a folder of 20 Harbor tasks would give it."""
        cases = tuple(Case(f"orders-{n + 1:02d}", n, split=SPLITS[n]) for n in range(TASKS))
        first = (
            first_of(self.kind, self.null)
            if self.kind != "skill"
            else {"SKILL.md": skill_text(self.initial)}
        )
        surface = Surface(language="markdown", frontmatter="frozen")
        if self.kind == "set":
            surface = Surface(language="markdown", frontmatter="frozen", skills=len(NAMES))
        elif self.kind == "tools":
            surface = Surface(language="toml", tools="frozen")
        objective = Objective(bounds=(0.0, 1.0))
        return Task(
            "skills", "pass the tests", (first,), cases=cases, objective=objective, surface=surface
        )

    def perform(self, effect: Effect, rng: random.Random) -> tuple[float, Result]:
        """The duration and the result of an effect."""
        request = effect.request
        if isinstance(request, EvaluateRequest):
            assert request.case is not None
            reward, feedback = play(
                self.kind, request.candidate.parts, request.case.input, request.seed
            )
            seen = Observation(
                request.candidate.id, Status.OK, reward, request.case.id, feedback=feedback
            )
            return rng.expovariate(1.0), seen
        if isinstance(request, ProposeRequest):
            dice = random.Random(request.seed)
            made = tuple(self.child(request.brief, dice) for _ in range(request.brief.k))
            return 1.0, Proposal(made, model="world", usage=Usage(calls=1))
        return super().perform(effect, rng)

    def child(self, brief: Brief, dice: random.Random) -> Candidate:
        """The parent's sentences with one or two changes."""
        assert brief.parent is not None
        if self.kind != "skill":
            return self.changed(brief, dice)
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

    def changed(self, brief: Brief, dice: random.Random) -> Candidate:
        """The parent's set of skills or of tools with one or two changes."""
        assert brief.parent is not None
        parts = dict(brief.parent.parts)
        if self.null:
            name = min(parts)
            comment = "# {}\n" if self.kind == "tools" else "<!-- {} -->\n"
            parts[name] = parts[name].rstrip() + "\n" + comment.format(dice.getrandbits(40))
            return Candidate.of(parts, (brief.parent.id,), Origin("world"))
        listing = (tool_listing if self.kind == "tools" else set_listing)(parts)
        told = [
            pair
            for seen in brief.observations
            for pair in complaints_of(self.kind, listing, seen.feedback)
        ]
        for turn in range(1 + (dice.random() < 0.3)):
            if self.kind == "set" and dice.random() < 0.3:
                _change_skills(listing, dice)
                continue
            if told and turn == 0 and dice.random() < 0.7:
                place, sentence = dice.choice(told)
            else:
                place = dice.choice(list(listing))
                sentence = dice.choice(LINES if self.kind == "tools" else SENTENCES)
            lines = listing.get(place, [])
            lines.remove(sentence) if sentence in lines else lines.append(sentence)
        made = (tool_parts if self.kind == "tools" else set_parts)(listing)
        return Candidate.of(made, (brief.parent.id,), Origin("world"))


def _change_skills(listing: Listing, dice: random.Random) -> None:
    """Drop, merge or add a skill."""
    action = dice.choice(("drop", "merge", "add") if len(listing) > 1 else ("add",))
    name = dice.choice(list(listing))
    if action == "add":
        fresh = [each for each in NAMES if each not in listing]
        if fresh:
            listing[dice.choice(fresh)] = [dice.choice(SENTENCES)]
        return
    lines = listing.pop(name)
    if action == "merge":
        into = listing[dice.choice(list(listing))]
        into += [line for line in lines if line not in into]


def row_of(job: Job) -> Row:
    """One run, as plain data."""
    name, seed, rollouts, null, kind = job
    world = SkillWorld(initial=HURRIED if null else INITIAL, null=null, kind=kind)
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
    return dict(zip(KEY, job, strict=True)) | {
        "truth": rate_of(kind, chosen.parts),
        "start": rate_of(kind, first_of(kind, null)),
        "claim": claim,
        "claimed": rate_of(kind, chosen.parts, "val" if gated else "test"),
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
    half = (
        z
        * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
        / (1 + z * z / count)
    )
    return f"{100 * share:.0f} ({100 * max(0.0, middle - half):.0f} to {100 * min(1.0, middle + half):.0f})"


def line_of(name: str, rows: Sequence[Row]) -> str:
    """A row of the table."""
    best = best_of(rows[0]["kind"])
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


def any_parts(kind: str, dice: random.Random) -> dict[str, str]:
    """A random candidate."""
    if kind == "skill":
        return {"SKILL.md": skill_text(dice.sample(SENTENCES, dice.randint(3, len(SENTENCES))))}
    good = dice.random() < 0.5  # others hardly pass
    if kind == "tools":
        own = {name: [offer, *FORMS] if good else [] for name, offer in OFFERS.items()}
        return tool_parts(
            {
                name: [*lines, *dice.sample(LINES, dice.randint(0, 1 if good else 5))]
                for name, lines in own.items()
            }
        )
    names = dice.sample(NAMES, dice.randint(1, 4))
    listing = {name: dice.sample(SENTENCES, dice.randint(1, 2 if good else 6)) for name in names}
    listing[names[0]] += [line for line in RULES.values() if line and good]
    return set_parts(listing)


def compare_with_processes(count: int, kind: str) -> None:
    """Print how often rollouts in the jail have the reward of this process's form."""
    import asyncio
    import tempfile

    from culmen.extensions.skills.rollouts.form import RolloutBackend, read_skill_folder

    async def compare(folder: Path) -> int:
        task, dice = read_skill_folder(folder), random.Random(0)
        backend, same = RolloutBackend(task, 2), 0
        jobs: list[tuple[Candidate, int, int]] = []
        for _ in range(count):
            jobs.append(
                (
                    Candidate.of(any_parts(kind, dice)),
                    dice.randrange(TASKS),
                    dice.randrange(1 << 30),
                )
            )
        cases = {case.id: case for case in task.cases}
        try:
            await backend.start()
            found = await asyncio.gather(
                *(
                    backend.evaluate(one, cases[f"orders-{n + 1:02d}"], seed)
                    for one, n, seed in jobs
                )
            )
        finally:
            await backend.close()
        for seen, (one, number, seed) in zip(found, jobs, strict=True):
            same += seen.score == play(kind, one.parts, number, seed)[0]
        return same

    with tempfile.TemporaryDirectory() as place:
        folder = write_folder(Path(place), kind)
        print(
            f"{asyncio.run(compare(folder))} of {count} rollouts have the same reward in both forms"
        )


def write_folder(folder: Path, kind: str = "skill") -> Path:
    """The world as a folder that `culmen run` takes."""
    if kind == "tools":
        return write_tools_folder(folder)
    module("make_tasks").write_tasks(folder / "tasks", TASKS)
    (folder / "skill").mkdir()
    (folder / "skill" / "SKILL.md").write_text(skill_text(INITIAL))
    (folder / "agent.py").write_text((example_path("skill") / "agent.py").read_text())
    line = "cmd: python3 {folder}/agent.py {skill}"
    if kind == "set":
        line = "cmd: python3 {folder}/set_agent.py {skill} {folder}/agent.py"
        (folder / "set_agent.py").write_text(SET_AGENT)
        shutil.rmtree(folder / "skill")
        for name, text in first_of(kind, False).items():
            (folder / "skill" / name).parent.mkdir(parents=True)
            (folder / "skill" / name).write_text(text)
    (folder / "task.toml").write_text(f'goal = "pass the tests"\n[skill]\nagent = "{line}"\n')
    return folder


def write_tools_folder(folder: Path) -> Path:
    """The world of tools as a folder that `culmen run` takes."""
    source = example_path("mcp")
    for name in ("agent.py", "server.py", "task.toml"):
        shutil.copy(source / name, folder / name)
    mcp("make_tasks").write_tasks(folder / "tasks", TASKS)
    (folder / "tools").mkdir()
    (folder / "tools/tools.toml").write_text(first_of("tools", False)["tools.toml"])
    return folder


def made_rows(jobs: Sequence[Job], path: Path | None, processes: int) -> Iterator[Row]:
    """The rows of these runs, each written as soon as known."""
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
    parser.add_argument(
        "--strategy", action="append", help="NAME or NAME(setting=value,...); may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--null", action="store_true", help="proposals that change nothing")
    parser.add_argument("--kind", choices=KINDS, default="skill", help="what is searched")
    parser.add_argument("--real", type=int, default=0, help="rollouts in the jail to compare with")
    asked = parser.parse_args(arguments)
    if asked.real:
        compare_with_processes(asked.real, asked.kind)
        return
    kept: dict[tuple[Any, ...], Row] = {}
    if asked.json is not None and asked.json.exists():
        rows = map(json.loads, asked.json.read_text(encoding="utf-8").splitlines())
        kept = {
            tuple(row.get(name, "skill") for name in KEY): row | {"kind": row.get("kind", "skill")}
            for row in rows
        }
    kind = asked.kind
    print(f"best {best_of(kind):.3f}, initial {rate_of(kind, first_of(kind, asked.null)):.3f}")
    print(
        "| strategy | | runs | found | truth | claim - truth | false | skills tried |",
        "|" + "---|" * 8,
        sep="\n",
    )
    for name in asked.strategy or STRATEGIES:
        jobs: list[Job] = [
            (name, seed, asked.rollouts, asked.null, kind) for seed in range(asked.seeds)
        ]
        new = made_rows([job for job in jobs if job not in kept], asked.json, asked.jobs)
        print(line_of(name, [*(kept[job] for job in jobs if job in kept), *new]), flush=True)


if __name__ == "__main__":
    main()
