"""An agent in the current folder, and one rollout before a search."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from culmen.cli.main import main
from culmen.core.errors import UserError
from culmen.extensions.agents.adapters.catalog import agent_with_paths
from culmen.extensions.agents.adapters.programs import absolute_words, mentioned_paths
from culmen.extensions.skills.rollouts.form import ROLLOUT, read_skill_folder
from tests.extensions.agents.sandbox.grounds import need_confinement
from tests.extensions.skills.rollouts.folders import ANSWER, HEAD, harbor_task, skill_task, write

AGENT = f"open('answer.txt', 'w').write('{ANSWER}')\n"
JUDGE = "cmp /app/answer.txt /tests/expected.txt\necho $((! $?)) > /logs/verifier/reward.txt\n"


def user_folder(folder: Path) -> Path:
    """A folder with a skill, tasks and an agent, and no task.toml."""
    files = {"skill/SKILL.md": f"{HEAD}Work.\n", "agent.py": AGENT, "tools/settings.toml": ""}
    for name in ("one", "two"):
        files |= {f"tasks/{name}/{file}": text for file, text in harbor_task(test=JUDGE).items()}
    return write(folder, files)


def test_paths_of_a_command_are_those_of_the_folder(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    words = [
        "python3",
        "agent.py",
        "{skill}",
        "skill",
        "--set=tools/settings.toml",
        "gpt-5.mini",
        "~",
    ]
    found = absolute_words(words, folder)
    assert found == [
        *("python3", f"{folder}/agent.py", "{skill}", "skill"),
        *(f"--set={folder}/tools/settings.toml", "gpt-5.mini", "~"),
    ]
    assert absolute_words(["./agent.py"], folder) == [f"{folder}/agent.py"]
    assert absolute_words(["agent.py"], folder) == ["agent.py"], "a program is looked for on PATH"
    assert f"{folder}/tools/settings.toml" in mentioned_paths(found)
    assert agent_with_paths("claude", folder) == "claude"
    assert agent_with_paths("acp:opencode", folder) == "acp:opencode"
    assert agent_with_paths("acp:./agent.py --acp", folder) == f"acp: {folder}/agent.py --acp"
    with pytest.raises(UserError, match="cannot be read"):
        agent_with_paths("cmd: agent 'x", folder)


def test_a_script_that_is_nowhere_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = skill_task(tmp_path / "a", more={"environment/hint.py": ""})
    monkeypatch.chdir(user_folder(tmp_path / "mine"))
    for word in ("agnt.py", "./agnt", "lost/agent.sh", "/no/such/agent.py"):
        with pytest.raises(UserError, match="is no file in"):
            ROLLOUT.with_agent(task, f"cmd: python3 {word} {{skill}}")
    for word in ("agent.py", "hint.txt", "{skill}/scripts/work.sh", "{folder}/puppet.py"):
        ROLLOUT.with_agent(task, f"cmd: python3 {word}")
    recipe = "FROM debian\nWORKDIR /app\nCOPY . .\n"
    files = {"environment/hint.py": "", "environment/Dockerfile": recipe}
    theirs = skill_task(tmp_path / "b", more=files)
    for word in ("hint.py", "./hint.py", "/app/hint.py"):
        ROLLOUT.with_agent(theirs, f"cmd: python3 {word}")


@pytest.mark.jail
def test_check_makes_one_rollout_of_an_agent_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_confinement()
    monkeypatch.chdir(user_folder(tmp_path))
    line = ["check", "--skill", "skill", "--tasks", "tasks", "--agent"]
    command = f"cmd: {sys.executable} agent.py {{skill}}"
    assert main([*line, command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["evaluations"] == 1 and report["seeds"][0]["mean"] == 1.0
    assert main([*line, "cmd: python3 agnt.py"]) == 2
    assert "agnt.py" in capsys.readouterr().err
    assert main(["check", "--skill", "skill"]) == 2
    write(tmp_path, {"agent.py": "raise SystemExit('no key')\n"})
    assert main([*line, command]) == 1
    told = capsys.readouterr().err
    assert "no key" in told and "the agent ended with an error" in told
    assert "resume" not in told  # there is no run
    assert main(["run", *line[1:], command, "--model", "offline", "--budget", "evaluations=9"]) == 1
    name = next((tmp_path / "runs").iterdir()).name
    assert f"correct the agent; then culmen resume {name}" in capsys.readouterr().err


def test_check_refuses_an_agent_that_a_task_has_no_use_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine"]) == 0
    assert main(["check", "mine", "--agent", "claude"]) == 2
    assert "use no agent" in capsys.readouterr().err


@pytest.mark.jail
def test_an_agent_of_task_toml_is_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_confinement()
    skill_task(tmp_path / "mine", agent=f"cmd: {sys.executable} agent.py", test=JUDGE)
    write(tmp_path / "mine", {"agent.py": AGENT})
    assert read_skill_folder(tmp_path / "mine").evaluator.options["agent"].endswith(" agent.py")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"][0]["mean"] == 1.0
    assert os.getcwd() == str(tmp_path)
