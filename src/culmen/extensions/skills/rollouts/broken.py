"""Rollouts that tell nothing of a skill: an agent that crashes, tests that cannot start.

Such a rollout has a reward of 0 like any failure, and a search would go on with it to its end. So
the first rollouts are looked at: while the agent has never ended well, a crash of it on an initial
candidate is tried again and then ends the run; so do tests that lack a program or a module of this
machine, unless the tests of that task have once been seen to work.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from culmen.core.errors import Unavailable
from culmen.core.inside import files_inside
from culmen.extensions.skills.rollouts.harbor import HarborTask
from culmen.extensions.skills.rollouts.trial import RolloutTrial

LOOKS = 3  # crashes of the agent, from the first rollout on, that end a run
_ENDS = ("crashed", "memory", "processes", "disk")  # ends of an agent that are errors

# programs that run tests or install what tests need; agents are not asked to write one
_RUNNERS = frozenset(
    (
        *("pytest", "py.test", "unittest", "nose2", "coverage", "hypothesis", "tox", "nox"),
        *("python", "python3", "pip", "pip3", "pipx", "uv", "uvx", "conda"),
        *("node", "npm", "npx", "yarn", "pnpm", "jest", "vitest", "mocha", "ruby", "rspec"),
        *("go", "cargo", "mvn", "gradle", "java", "javac", "dotnet", "php", "phpunit", "perl"),
        *("gcc", "g++", "cc", "c++", "make", "cmake", "ctest", "bats", "git", "jq", "bc"),
    )
)

# the shell's own words: `/tests/test.sh: line 3: pytest: command not found`, dash's without `line`
_COMMAND = re.compile(r"^/tests/\S+: (?:line )?\d+: ([\w.+-]+): (?:command )?not found$", re.M)
_RUN_MODULE = re.compile(r"^\S*python[\d.]*: No module named '?([\w.]+)'?", re.M)
# of a traceback, Python's own or pytest's: the line of the tests that imports the module
_IMPORT = re.compile(
    r"^(?:\s*File \"/tests/[^\"]+\", line \d+.*|(?:\.\./|/)+tests/\S+:\d+: in <module>)\n"
    r"(?:.*\n){1,2}?(?:E\s+)?ModuleNotFoundError: No module named '([\w.]+)'",
    re.M,
)
_RAN = re.compile(r"\b\d+ (?:passed|failed)\b")  # pytest's summary: the tests did start


class BrokenRollouts(Unavailable):
    """Rollouts whose agent or tests do not work at all; fixed, the run can be resumed."""

    exit_code = 1


class FirstRollouts:
    """Watches rollouts until they show that the agent and the tests work.

    `agent` is the command or name for messages, `floor` the lowest reward.
    """

    def __init__(self, agent: str, floor: float) -> None:
        self._agent, self._floor = agent, floor
        self._is_agent_proven = False
        self._proven_tests: set[str] = set()
        self._crashes: list[str] = []

    def must_repeat(self, task: HarborTask, trial: RolloutTrial, is_initial: bool) -> bool:
        """True if a rollout shows nothing and is to be made again.

        `is_initial`: of a candidate that no search has changed. Raises `BrokenRollouts` if the
        agent or the tests do not work.
        """
        earned = max(trial.rewards.values(), default=self._floor) > self._floor
        is_open = not earned and task.name not in self._proven_tests
        if is_open and (missing := missing_of_tests(task, trial)):
            raise self._tests_error(task, missing)
        if trial.rewards:
            self._proven_tests.add(task.name)
        crash = "" if earned or trial.ended not in _ENDS else trial.why or trial.ended
        if not crash:
            self._is_agent_proven = True
        if self._is_agent_proven or not is_initial:
            return False
        self._crashes.append(crash)
        if len(self._crashes) >= LOOKS:
            raise self._agent_error(task, trial)
        return True

    def _agent_error(self, task: HarborTask, trial: RolloutTrial) -> BrokenRollouts:
        printed = [str(step.get("message", "")) for step in trial.trajectory["steps"][1:]]
        words = [*dict.fromkeys(self._crashes), *(["it printed:", *printed] if printed else [])]
        quoted = "\n".join(f"    {line}" for each in words for line in each.splitlines()[-12:])
        return BrokenRollouts(
            f"the agent ended with an error in all of the first {LOOKS} rollouts; none counts\n\n"
            f"{quoted}\n",
            where=f"the agent {self._agent}, on task {task.name}",
            fix="correct the agent",
        )

    def _tests_error(self, task: HarborTask, missing: str) -> BrokenRollouts:
        venv = Path(task.folder).parent / ".venv"
        place = "its image" if task.image is not None else "this machine"
        return BrokenRollouts(
            f"the tests of task {task.name} cannot start: {place} has no {missing}; the rollout "
            "does not count",
            where=f"{task.folder}/tests",
            fix=f"install {missing} {'in' if task.image is not None else 'on'} {place}"
            + ("" if task.image is not None else f", or in {venv} if pip has it"),
        )


def missing_of_tests(task: HarborTask, trial: RolloutTrial) -> str:
    """The program or module for lack of which a task's tests did not start, "" if they did.

    A name counts if it runs tests, or if nothing that the agent sees of the task mentions it: what
    an agent was to write itself is not missing.
    """
    if _RAN.search(trial.tests):
        return ""
    for name in _COMMAND.findall(trial.tests):
        is_absent = task.image is not None or shutil.which(name, path=trial.path) is None
        if is_absent and _is_of_tests(task, name):
            return f"program {name}"
    for pattern in (_RUN_MODULE, _IMPORT):
        for name in pattern.findall(trial.tests):
            if _is_of_tests(task, name.partition(".")[0]):
                return f"Python module {name.partition('.')[0]}"
    return ""


def _is_of_tests(task: HarborTask, name: str) -> bool:
    if name in _RUNNERS:
        return True
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    return not any(word.search(text) for text in _shown_texts(task))


def _shown_texts(task: HarborTask) -> Iterator[str]:
    """Texts that the agent sees of a task: its instruction, and names and texts of its files."""
    yield task.instruction
    folder = Path(task.folder, "environment")
    # an image may have links that lead anywhere
    for file in files_inside(folder) if task.image is None and folder.is_dir() else ():
        if file.name != "Dockerfile":
            yield file.name
            # the part that is searched for a name
            yield file.read_bytes()[:100_000].decode("utf-8", "replace")
