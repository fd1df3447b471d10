"""The examples `mcp`, `tools` and `harness`, each in the jail.

Each goes from a poor candidate to a better one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

import culmen
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.core.wording import is_text
from culmen.extensions.skills.rollouts.form import RolloutBackend, read_skill_folder
from culmen.models.offline.tools import vary_candidate
from culmen.store import views
from culmen.tasks import write_new
from tests.extensions.agents.adapters.real import MODELS
from tests.extensions.agents.sandbox.grounds import need_confinement
from tests.extensions.skills.rollouts.folders import run, skill_task
from tests.servers.model_script import Asked, Turn
from tests.servers.model_server import ModelServer

pytestmark = pytest.mark.jail


def evaluated(task: Task, *parts: dict[str, str], seeds: int = 1) -> list[list[Observation]]:
    """Each candidate on the first four cases."""

    async def play() -> list[list[Observation]]:
        backend = RolloutBackend(task, 2)
        try:
            await backend.start()
            jobs = [
                asyncio.gather(
                    *(
                        backend.evaluate(Candidate.of(one), case, n)
                        for case in task.cases[:4]
                        for n in range(seeds)
                    )
                )
                for one in parts
            ]
            return [list(await job) for job in jobs]
        finally:
            await backend.close()

    return run(play())


def written(folder: Path) -> Path:
    """The built-in task of the folder's name, with its tasks."""
    write_new(folder, folder.name)
    return folder


def mean(seen: list[Observation]) -> float:
    return sum(one.score or 0.0 for one in seen) / len(seen)


@pytest.mark.slow
def test_examples_descriptions_decide_which_tool_is_taken(tmp_path: Path) -> None:
    need_confinement()
    task = read_skill_folder(written(tmp_path / "mcp"))
    first = task.seeds[0]["tools.toml"]
    good = "".join(
        line
        for line in first.splitlines(True)
        if "any question" not in line and "memory" not in line
    )
    poor, better = evaluated(task, {"tools.toml": first}, {"tools.toml": good}, seeds=2)
    assert mean(poor) < mean(better) and mean(better) >= 0.75, [one.feedback for one in better]
    assert all(one.metrics["served_calls"] >= 0 for one in better) and not is_text(task)
    options = {"weights": {"lines": 1.0}, "count": 1}
    made = [
        vary_candidate(task.initial_candidates()[:1], options, Random(seed)).parts
        for seed in range(40)
    ]
    assert all('description = """\n' in parts["tools.toml"] for each in made for parts in each)
    assert all(parts["tools.toml"].count("[lookup_") == 4 for each in made for parts in each)


def test_examples_code_of_a_tool_decides(tmp_path: Path) -> None:
    need_confinement()
    task = read_skill_folder(written(tmp_path / "tools"))
    code = task.seeds[0]["parcels.py"]
    right = code.replace("3.0", "4.2").replace("0.5", "0.8").replace("0.01", "0.004")
    poor, better = evaluated(task, {"parcels.py": code}, {"parcels.py": right})
    assert mean(poor) < 0.7 and mean(better) == pytest.approx(1.0, abs=0.01)


def answering(asked: Asked) -> Turn:
    """A model that adds up if it sees the hours, and gives only the number on request."""
    hours = [int(word) for word in re.findall(r"worked (\d+) hours", asked.text)]
    number = str(sum(hours)) if hours else "unknown"
    return Turn(number if "only the number" in asked.text else f"It was {number} hours.")


def test_examples_a_harness_is_a_candidate_with_its_model_through_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_confinement()
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SCRIPTED_KEY", "sk-upstream-only")
    folder = written(tmp_path / "harness")
    source = (folder / "agent.py").read_text()
    reads = source.replace(
        'prompt = f"{question}',
        'prompt = open("hours.txt").read() + f"Say only the number. {question}',
    )
    assert reads != source and read_skill_folder(folder).surface.language == "python"
    with ModelServer(answering) as server:
        (tmp_path / "models.toml").write_text(MODELS.format(url=server.url))
        scores: list[float | None] = []
        for number, text in enumerate((source, reads)):
            (folder / "agent.py").write_text(text)
            study = culmen.Study.create(
                folder,
                strategy="best_of_n",
                model={"default": "offline", "agent": "scripted-model"},
                models_file=str(tmp_path / "models.toml"),
                budget=Budget(evaluations=3, calls=100),
                workers=1,
                run_dir=tmp_path / f"run-{number}",
            )
            study.run(progress=False)
            seen = list(views.stream_observations(study.path))
            scores.append(max(one.score or 0.0 for one in seen))
            assert all(one.metrics["agent_tokens"] > 0 for one in seen if one.score is not None)
            status = views.run_status(study.path)
            assert 0 < status.usage.calls <= len(server.asked)
    assert scores == [0.0, 1.0]
    assert {key.removeprefix("Bearer ") for key in server.keys} == {"sk-upstream-only"}


def test_an_audit_of_a_skill_makes_rollouts(tmp_path: Path) -> None:
    judged = "#!/bin/bash\n[ -f /app/answer.txt ] && echo 1 > /logs/verifier/reward.txt\n"
    skill_task(tmp_path, "echo 42 > answer.txt\n", test=judged)
    code = "from culmen.cli.main import main; raise SystemExit(main())"
    line = [sys.executable, "-c", code, "audit", str(tmp_path), "--only", "huge", "--json"]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    report = json.loads(ran.stdout)
    assert ran.returncode == 0 and report["honest"]["score"] == 1.0, ran.stdout
    assert [(each["name"], each["result"]) for each in report["outcomes"]] == [("huge", "skipped")]


@pytest.mark.slow
def test_an_audit_of_tools_leaves_their_code_alone(tmp_path: Path) -> None:
    """Functions of an attack would be tools of the server."""
    written(tmp_path / "tools")
    for case in sorted((tmp_path / "tools" / "tasks").iterdir())[3:]:
        shutil.rmtree(case)
    code = "from culmen.cli.main import main; raise SystemExit(main())"
    line = [
        sys.executable,
        "-c",
        code,
        "audit",
        str(tmp_path / "tools"),
        "--only",
        "daemon",
        "--json",
    ]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    (outcome,) = json.loads(ran.stdout)["outcomes"]
    assert outcome["result"] == "skipped" and "an agent" in outcome["evidence"], ran.stdout
