"""Agents that crash and tests that cannot start end a run at once, with the cause."""

from __future__ import annotations

import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

import culmen
from culmen.core.errors import UserError
from culmen.extensions.skills.rollouts.broken import LOOKS, missing_of_tests
from culmen.extensions.skills.rollouts.harbor import read_task, read_tasks
from culmen.extensions.skills.rollouts.needs import missing_note
from culmen.extensions.skills.rollouts.trial import RolloutTrial
from culmen.store import views
from tests.extensions.agents.sandbox.grounds import need_confinement
from tests.extensions.skills.rollouts.folders import (
    ANSWER,
    PYTEST,
    harbor_task,
    rolled_out,
    skill_task,
    write,
)

MOST = 12  # rollouts until a broken agent or test is named
WORKS = f"printf '{ANSWER}' > answer.txt\n"
JUDGED = (
    "if {}; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi\n"
)
PYTHON = f"cmd: {sys.executable} {{folder}}/agent.py {{skill}}"

# name: agent.py or the agent's command, and the words that must name the cause
AGENTS: Mapping[str, tuple[str, str]] = {
    "imports what is not here": ("import no_such_module\n", "No module named 'no_such_module'"),
    "cannot be parsed": ("def work(:\n", "SyntaxError"),
    "ends at once": ("raise SystemExit(3)\n", "exit code 3"),
    "asks for a key": ("print('error: no API key')\nraise SystemExit(1)\n", "no API key"),
    "is killed": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "exit code 139"),
}
COMMANDS: Mapping[str, tuple[str, str]] = {
    "is not executable": ("cmd: {folder}/agent.sh", "not installed"),
    "calls what is not here": ("cmd: bash -c 'no-such-agent' {prompt}", "not found"),
}
# name: tests/test.sh, and the words
TESTS: Mapping[str, tuple[str, str]] = {
    "lack their program": (JUDGED.format("jest /tests"), "no program jest"),
    "lack their runner": (JUDGED.format("python3 -m nose2 /tests"), "no Python module nose2"),
    "import what is not here": (
        JUDGED.format("python3 -m pytest -q -p no:cacheprovider /tests/test_answer.py"),
        "no Python module no_such_package",
    ),
    "end with a lost script": ("exec /tests/no-such-script.sh\n", "exit code 127"),
    "call a closed script": ("/tests/test_answer.py\n", "exit code 126"),
    "cannot be parsed": ("if true; then\n", "syntax error"),
}


def stop_of(folder: Path) -> UserError:
    """The error that ends a run of `MOST` evaluations of a folder."""
    study = culmen.Study.create(
        folder,
        strategy="best_of_n",
        model="offline",
        budget=MOST,
        workers=2,
        run_dir=folder / "run",
    )
    with pytest.raises(UserError) as stopped:
        study.run(progress=False)
    if study.path.exists():  # a run that could not begin is removed
        assert views.run_status(study.path).evaluations + LOOKS <= MOST
        assert all(not each.ok for each in views.stream_observations(study.path))
    return stopped.value


@pytest.mark.jail
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_crashes_ends_the_run_with_its_own_words(name: str, tmp_path: Path) -> None:
    need_confinement()
    text, words = AGENTS[name]
    skill_task(
        tmp_path, agent=PYTHON, test=JUDGED.format("cmp /app/answer.txt /tests/expected.txt")
    )
    write(tmp_path, {"agent.py": text})
    stopped = stop_of(tmp_path)
    assert stopped.exit_code == 1 and words in str(stopped), stopped
    assert "the agent ended with an error" in stopped.what and "agent.py" in stopped.where


@pytest.mark.jail
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_cannot_start_is_named(name: str, tmp_path: Path) -> None:
    need_confinement()
    command, words = COMMANDS[name]
    skill_task(tmp_path, agent=command.replace("{prompt}", "x"), test=JUDGED.format("false"))
    write(tmp_path, {"agent.sh": "true\n"})
    stopped = stop_of(tmp_path)
    assert stopped.exit_code in (1, 2) and words in str(stopped), stopped


@pytest.mark.jail
@pytest.mark.parametrize("name", TESTS)
def test_tests_that_cannot_start_end_the_run(name: str, tmp_path: Path) -> None:
    need_confinement()
    script, words = TESTS[name]
    more = {"tests/test_answer.py": f"import no_such_package\n{PYTEST}"}
    skill_task(tmp_path, WORKS, test=script, more=more)
    stopped = stop_of(tmp_path)
    assert stopped.exit_code == 1 and words in str(stopped), stopped


@pytest.mark.jail
def test_a_failing_agent_that_works_is_judged_by_the_tests(tmp_path: Path) -> None:
    """A crash after a first rollout that ended well, and a crash with a reward, count."""
    need_confinement()
    task = skill_task(
        tmp_path, "exit 0\n", test=JUDGED.format("cmp /app/answer.txt /tests/expected.txt")
    )
    (idle,) = rolled_out(task)
    assert idle.score == 0.0 and "the agent finished" in idle.feedback
    crashing = (
        f"import subprocess\nopen('answer.txt', 'w').write('{ANSWER}')\nraise SystemExit(1)\n"
    )
    write(tmp_path, {"puppet.py": crashing})
    (passed,) = rolled_out(task)
    assert passed.score == 1.0 and "the agent crashed" in passed.feedback


def trial(printed: str) -> RolloutTrial:
    return RolloutTrial(
        {"reward": 0.0}, "finished", "", "", printed, {}, 1.0, None, 1, "/usr/bin:/bin"
    )


def test_what_the_agent_was_to_write_is_not_missing(tmp_path: Path) -> None:
    """A name that the instruction or a file of the task mentions is the agent's to make."""
    folder = write(tmp_path / "one", harbor_task({"instruction.md": "Write the program solve.\n"}))
    task = read_task(folder)
    said = "/tests/test.sh: line 3: {}: command not found\n"
    assert missing_of_tests(task, trial(said.format("solve"))) == ""
    assert missing_of_tests(task, trial(said.format("hint.txt"))) == ""
    assert missing_of_tests(task, trial(said.format("judge"))) == "program judge"
    assert missing_of_tests(task, trial("/tests/run: 7: judge: not found\n")) == "program judge"
    assert missing_of_tests(task, trial(said.format("sh"))) == "", "it is on PATH"
    assert missing_of_tests(task, trial(said.format("judge") + "1 failed in 0.1s\n")) == ""
    theirs = "/app/work.sh: line 3: judge: command not found\n"
    assert missing_of_tests(task, trial(theirs)) == ""
    raised = "File \"{}/x.py\", line 1, in <module>\n    import a.b\nModuleNotFoundError: No module named 'a'\n"
    assert missing_of_tests(task, trial(raised.format("/app"))) == ""
    assert missing_of_tests(task, trial(raised.format("/tests"))) == "Python module a"


def test_what_a_dockerfile_would_install_is_said_and_offered(tmp_path: Path) -> None:
    recipe = "FROM debian\nWORKDIR /app\nCOPY hint.txt .\nRUN pip install --no-cache-dir 'no-such-kit>=2' pytest\n"
    write(tmp_path / "tasks" / "one", harbor_task({"environment/Dockerfile": recipe}))
    (task,) = read_tasks(tmp_path / "tasks")
    told = missing_note([task], tmp_path / "tasks")
    assert "lacks what one would install: pip no-such-kit>=2;" in told
    assert f"{tmp_path}/tasks/.venv/bin/pip install 'no-such-kit>=2' gives them" in told
    script = "apt-get update && apt-get install -y no-such-tool\nuvx -p 3.13 -w pytest==8.4.1 pytest /tests\n"
    write(tmp_path / "tasks" / "one", harbor_task({"environment/Dockerfile": recipe}, test=script))
    (task,) = read_tasks(tmp_path / "tasks")
    told = missing_note([task], tmp_path / "tasks")
    assert "apt no-such-tool; a network for uvx" in told and "-m venv" not in told


@pytest.mark.jail
def test_tests_use_the_environment_of_the_tasks(tmp_path: Path) -> None:
    need_confinement()
    task = skill_task(tmp_path, WORKS, test="checker && echo 1 > /logs/verifier/reward.txt\n")
    place = tmp_path / "tasks" / ".venv"
    venv.create(place, with_pip=False)
    checker = place / "bin" / "checker"
    checker.write_text(f"#!{place}/bin/python\nimport sys\nassert sys.prefix == '{place}'\n")
    checker.chmod(0o755)
    (one,) = rolled_out(task)
    assert one.score == 1.0, one.feedback
