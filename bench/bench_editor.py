"""Every strategy on the built-in tasks with a model that edits blindly.

Differences are those of the strategies alone.

    python bench/bench_editor.py --out RUNS                                # goes on where it was cut off
    python bench/bench_editor.py --out RUNS --seeds 10 --tasks pole_balance --strategies pedigree,gepa

The model is a server on this machine. It changes the program in the prompt (or each of the K that
are asked for) by one edit of the offline proposer's, without its loops: a number, a line, a
statement, an operator, a bound, or a part of another program shown. It reads neither scores nor
feedback, so a strategy gains by the texts that it lets it edit, and how often it evaluates. Every
strategy goes the whole way: prompts, replies, parsing, and a turn for every call. What each run
reports is evaluated afresh, on all held-out cases: printed is the median over random seeds of that,
on how many of them a strategy's was better and worse than the default's, and p of Wilcoxon's signed
ranks where it is below 0.05.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from statistics import fmean, median
from textwrap import dedent
from typing import Any

import msgspec
from scipy.stats import wilcoxon

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from culmen import tasks as taskfiles
from culmen.core.candidate import Candidate
from culmen.core.replies.fences import read_blocks
from culmen.core.replies.names import PartNames
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.core.wording import fence_part
from culmen.extensions.bench.picks import Afresh, pick_cases
from culmen.extensions.bench.records import find_runs
from culmen.models.offline.proposer import UNTIMED
from culmen.models.offline.tools import edited_child
from culmen.run.study import Study
from culmen.store import views

TASKS = (
    "function_minimization,routing_rules,tide_forecast,bin_packing,pole_balance,circle_packing,erdos_min_overlap,"
    "uncertainty_ineq,first_autocorr_ineq,heilbronn_triangle,min_max_distance_ratio,second_autocorr_ineq"
)
STRATEGIES = "pedigree,map_elites,openevolve,turboevolve,gepa,puct,polca,beam,sequential,best_of_n"
DEFAULT = STRATEGIES.split(",")[0]
OPERATORS = {name: 1.0 for name in UNTIMED if name != "cma"}
_FROZEN = re.compile(r"^- These parts must not change: (.*)\.$", re.M)
_NAMED = re.compile(r"^`{3,}(?:\S+ )?(\S+\.\w+)$", re.M)
_SEVERAL = re.compile(r"^Give (\d+) different candidates", re.M)


class Editor:
    """Answers prompts by the prompt, its count and the runs before.

    The n-th reply to a prompt depends on the prompt, n, and how many runs there were before: else a
    bench that goes on would make the runs of its first random seeds once more.
    """

    def __init__(self, before: int) -> None:
        self._asked: Counter[str] = Counter()
        self._before = before

    def __call__(self, body: dict[str, Any]) -> str:
        prompt = "\n\n".join(message["content"] for message in body["messages"])
        digest = hashlib.sha256(prompt.encode()).hexdigest()
        self._asked[digest] += 1
        rng = Random(f"{digest} {self._asked[digest]} {self._before}")
        before, found, after = prompt.partition("\n# Current candidate (improve this one)\n")
        parts = shown(after)
        if not found or not parts:
            return "Keep what scored best and change one thing at a time."
        frozen = _FROZEN.search(before)
        options = {"frozen": frozen[1].split(", ") if frozen else ()}
        mates = [Candidate.of({name: text}) for name in parts for text in others(before, name)]
        wanted = wanted_of(before)
        made = [
            edited_child(OPERATORS, (Candidate.of(parts), *mates), options, rng)
            for _ in range(wanted or 1)
        ]
        return reply([{**child[1].parts} for child in made if child], prompt, bool(wanted), parts)


def shown(text: str) -> dict[str, str]:
    """The parts of the candidate that a prompt shows first."""
    parts: dict[str, str] = {}
    names = PartNames(names_in(text))
    blocks = read_blocks(
        text.split("\n"), lambda _, ends, __: ends[0] if ends else None, lambda _: False
    )
    for block in blocks:
        name = names.in_info(block.opening.info)[0] if block.opening.info else ""
        if not name or name in parts:
            break
        parts[name] = "\n".join(block.lines)
    return parts


def others(text: str, name: str) -> list[str]:
    """Texts of this part that a prompt shows beside the candidate."""
    found = re.findall(rf"^`{re.escape(name)}`:\n\n((?:(?: {{4}}.*)?\n)+)", text, re.M)
    return [dedent(each).rstrip("\n") for each in found]


def names_in(text: str) -> tuple[str, ...]:
    """Names of parts, as fences open with them."""
    return tuple(dict.fromkeys(_NAMED.findall(text)))


def wanted_of(text: str) -> int:
    """The number of candidates that one reply shall hold.

    It is 0 where it shall hold one without a list of them.
    """
    found = _SEVERAL.search(text.rpartition("# Format of your answer")[2])
    return int(found[1]) if found else 0


def reply(
    children: list[dict[str, str]], prompt: str, several: bool, parent: dict[str, str]
) -> str:
    """The children in the form that the prompt asks for.

    They are whole texts, which every form understands.
    """
    changed = [
        {name: text for name, text in child.items() if text != parent.get(name)}
        for child in children
    ]
    if not changed:
        return "There is nothing to change."
    if several and '"responses"' in prompt:
        one = len(parent) == 1
        listed = [{"code": next(iter(c.values()))} if one else {"parts": c} for c in changed]
        return json.dumps(
            {"responses": [{**each, "probability": 1 / len(listed)} for each in listed]}
        )
    blocks = [
        "\n\n".join(fence_part(text, name, "python") for name, text in child.items())
        for child in changed
    ]
    if several:
        return "\n\n".join(f"=== CANDIDATE {n} ===\n\n{block}" for n, block in enumerate(blocks, 1))
    return f"One edit.\n\n{blocks[0]}"


def reported(folder: Path) -> dict[str, dict[str, dict[int, Candidate]]]:
    """The program that each finished run reports, by task, strategy and random seed."""
    found: dict[str, dict[str, dict[int, Candidate]]] = defaultdict(lambda: defaultdict(dict))
    for run in find_runs(folder):
        now = views.run_status(run)
        if now.best is not None:
            candidate = views.candidate_detail(run, now.best.id, observations=0).candidate
            found[run.parent.parent.name][run.parent.name][now.seed] = candidate
    return found


def worth(task: Task, programs: list[Candidate], times: int) -> dict[str, float]:
    """The mean reward of each program on all held-out cases, evaluated afresh `times`.

    It is once if the task is exact.
    """
    times = 1 if task.deterministic else times
    seeded = msgspec.structs.replace(task, seeds=tuple(program.parts for program in programs))
    budget = Budget(evaluations=len(programs) * len(pick_cases(task)) * times, final=0.0)
    with tempfile.TemporaryDirectory() as folder:
        Study.create(seeded, Afresh(times), run_dir=f"{folder}/run", budget=budget, workers=2).run(
            progress=False
        )
        seen = defaultdict[str, list[float]](list)
        for each in views.stream_observations(f"{folder}/run"):
            reward = task.effective_reward(each)
            floor = task.objective.floor
            if reward is not None or floor is not None:
                seen[each.candidate].append(floor if reward is None else reward)  # type: ignore[arg-type]
    return {name: fmean(rewards) for name, rewards in seen.items()}


def compared(folder: Path, times: int) -> str:
    """Median worth of each strategy's report, and its wins and losses by random seed.

    On how many random seeds it was better and worse than the default's,
    and p of Wilcoxon's signed ranks if below 0.05.
    """
    lines = list[str]()
    for name, of in reported(folder).items():
        task = taskfiles.load(taskfiles.example_path(name))
        programs = {each.id: each for runs in of.values() for each in runs.values()}
        true = worth(task, list(programs.values()), times)
        cells = [f"{name} {'↑' if task.objective.direction == 'max' else '↓'}"]
        default = of.get(DEFAULT, {})
        for strategy in STRATEGIES.split(","):
            runs = of.get(strategy, {})
            gaps = [
                true[runs[seed].id] - true[default[seed].id] for seed in runs if seed in default
            ]
            p = wilcoxon(gaps).pvalue if any(gaps) else 1.0
            counts = f" ({sum(gap > 0 for gap in gaps)}:{sum(gap < 0 for gap in gaps)}{f', p {p:.3f}' if p < 0.05 else ''})"  # noqa: E501
            middle = (
                task.objective.score(median(true[each.id] for each in runs.values()))
                if runs
                else None
            )
            cells.append(
                "-" if middle is None else f"{middle:.5g}" + (counts if strategy != DEFAULT else "")
            )
        lines.append(f"| {' | '.join(cells)} | {len(default)} |")
    heads = " | ".join(f"`{name}`" for name in STRATEGIES.split(","))
    return "\n".join(
        [f"| task | {heads} | seeds |", "|" + "---|" * (len(STRATEGIES.split(",")) + 2), *lines]
    )


def main() -> None:
    from tests.servers.openai_server import OpenAIServer

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--strategies", default=STRATEGIES)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument(
        "--times", type=int, default=20, help="fresh evaluations of what is reported, on each case"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with OpenAIServer(Editor(len(list(given.out.glob("*/*/seed-*"))))) as server:
        file = given.out / "models.toml"
        file.write_text(
            f'[providers.editor]\nbase_url = "{server.url}"\n\n[models.editor]\nprovider = "editor"\n'
        )
        words = [
            "compare",
            "--suite",
            "turboevolve",
            "--model",
            "editor",
            "--models",
            str(file),
            "--workers",
            "1",
        ]
        words += [
            "--tasks",
            given.tasks,
            "--strategies",
            given.strategies,
            "--seeds",
            str(given.seeds),
        ]
        words += ["--budget", f"evaluations={given.evaluations}", "--out", str(given.out)]
        environment = {**os.environ, "XDG_CACHE_HOME": str(given.out.resolve() / ".cache")}
        subprocess.run(
            [sys.executable, "-m", "culmen.cli.main", *words], check=True, env=environment
        )
    print(compared(given.out, given.times))


if __name__ == "__main__":
    main()
