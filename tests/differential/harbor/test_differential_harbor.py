"""Tables of task.toml, reward files and trajectories, as Harbor and culmen read them.

Harbor 0.26 needs Python 3.12: `python3.12 -m tests.differential harbor`.
"""

from __future__ import annotations

import json
import os
import string
import tempfile
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import toml
from harbor.models.task.config import TaskConfig
from harbor.models.trajectories import Trajectory
from harbor.models.verifier.result import VerifierResult
from harbor.utils.env import resolve_env_vars
from harbor.verifier.verifier import Verifier
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.usage import Usage
from culmen.extensions.compat.harbor_task import parse_rewards, read_settings
from culmen.extensions.skills.rollouts.trajectory import ProgramRow, build_trajectory
from tests.differential.comparing import inputs, same

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]
MODES = st.sampled_from(["public", "no-network"])
SECONDS = st.one_of(st.integers(1, 10_000), st.floats(0.1, 1e5, allow_nan=False))
SIZES = st.one_of(
    st.builds("{}{}".format, st.integers(1, 64), st.sampled_from("GMKgmk")),
    st.builds("{:.1f}{}".format, st.floats(0.1, 64), st.sampled_from("GM")),
)
TEXTS = st.text(alphabet=string.ascii_letters + " ${}:-_", max_size=12)
VARIABLES = st.dictionaries(
    st.sampled_from(["A", "B", "KEY"]),
    st.one_of(
        TEXTS,
        st.builds(
            "${{NO_SUCH_{}:-{}}}".format, st.integers(1, 9), TEXTS.map(lambda t: t.strip("}"))
        ),
        st.builds("x${{NO_SUCH_{}}}".format, st.integers(1, 9)),
    ),
)


def table(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Tables with any of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


PHASE = {"timeout_sec": SECONDS, "network_mode": MODES}
WORLD = table(
    network_mode=MODES,
    allow_internet=st.booleans(),
    cpus=st.one_of(st.integers(1, 64), st.floats(0.1, 64)),
    memory_mb=st.integers(1, 1 << 20),
    storage_mb=st.integers(1, 1 << 20),
    docker_image=st.sampled_from(["python:3.12", "localhost/x"]),
    workdir=st.sampled_from(["/app", "/srv/work"]),
    build_timeout_sec=SECONDS,
    env=VARIABLES,
)
TASKS = st.fixed_dictionaries(
    {},
    optional={
        "version": st.just("1.0"),
        "task": st.fixed_dictionaries({"name": st.sampled_from(["org/one", "a.b/c-d"])}),
        "agent": table(**PHASE),
        "verifier": table(**PHASE, env=VARIABLES),
        "environment": WORLD,
    },
)
OLDER = table(memory=SIZES, storage=SIZES, memory_mb=st.integers(1, 9000))


def ours(text: str) -> dict[str, Any] | str:
    """The fields that culmen reads, "refused" if it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = read_settings(Path(folder), tomllib.loads(text))
        except ValueError:
            return "refused"
    return {
        "agent_seconds": found.agent_seconds,
        "verifier_seconds": found.verifier_seconds,
        "cpus": found.cpus,
        "memory_mb": found.memory_mb,
        "storage_mb": found.storage_mb,
        "agent_network": found.agent_network,
        "verifier_network": found.verifier_network,
        "docker_image": found.docker_image,
        "workdir": found.workdir,
        "variables": found.variables,
        "verifier_variables": found.verifier_variables,
    }


def theirs(text: str) -> dict[str, Any] | str:
    """The same fields of Harbor's model, with its own merging of phases."""
    try:
        found = TaskConfig.model_validate_toml(text)
    except ValueError:
        return "refused"
    world = found.environment
    base = world.resolve_baseline()
    agent = found.agent.explicit_phase_policy() or base
    verifier = found.verifier.explicit_phase_policy() or base
    return {
        "agent_seconds": found.agent.timeout_sec,
        "verifier_seconds": found.verifier.timeout_sec,
        "cpus": world.cpus,
        "memory_mb": world.memory_mb,
        "storage_mb": world.storage_mb,
        "agent_network": agent.network_mode.value,
        "verifier_network": verifier.network_mode.value,
        "docker_image": world.docker_image or "",
        "workdir": world.workdir or "",
        "variables": _resolved(world.env),
        "verifier_variables": _resolved(found.verifier.env),
    }


def _resolved(variables: dict[str, str]) -> dict[str, str]:
    """Values by Harbor's function; those that need this machine's variable are a gap in culmen."""
    values = {}
    for name, value in variables.items():
        try:
            values |= resolve_env_vars({name: value})
        except ValueError:
            continue
    return values


@inputs(2_000)
@given(TASKS)
def test_settings_of_a_task(found: dict[str, Any]) -> None:
    text = toml.dumps(found)
    same("harbor: task.toml, 11 fields", theirs(text), ours(text), text)


@inputs(500)
@given(OLDER)
def test_older_keys_of_sizes(found: dict[str, Any]) -> None:
    """Also refused alike where the two keys contradict each other."""
    text = toml.dumps({"environment": found})
    same("harbor: memory and storage", theirs(text), ours(text), text)


NUMBERS = st.one_of(st.integers(-(10**6), 10**6), st.floats(), st.booleans())
REWARD_TXT = st.one_of(
    NUMBERS.map(str),
    st.text(alphabet="0123456789.+-e_ \n", max_size=8),
    st.sampled_from(["", "nan", "inf", "-inf", "true", "0x1", "1,5", ".5", "1.", "01", "+1"]),
)
_VALUES = st.one_of(NUMBERS, st.text(max_size=3), st.none(), st.lists(NUMBERS, max_size=1))
REWARD_JSON = st.one_of(
    st.dictionaries(st.sampled_from(["reward", "style", "right"]), NUMBERS, min_size=1),
    st.dictionaries(st.sampled_from(["reward", "style"]), _VALUES, min_size=1),
    _VALUES,
)


@inputs(2_000)
@given(st.one_of(st.none(), REWARD_JSON.map(json.dumps)), REWARD_TXT)
def test_rewards_of_both_files(named: str | None, number: str) -> None:
    """reward.json if there is one; refused alike if it is no object of finite numbers."""
    with tempfile.TemporaryDirectory() as folder:
        paths = SimpleNamespace(
            reward_text_path=Path(folder, "reward.txt"),
            reward_json_path=Path(folder, "reward.json"),
        )
        paths.reward_text_path.write_text(number)
        if named is not None:
            paths.reward_json_path.write_text(named)
        reader = SimpleNamespace(trial_paths=paths)
        parse = Verifier._parse_reward_text if named is None else Verifier._parse_reward_json
        try:
            rewards: object = VerifierResult(rewards=parse(reader)).rewards
        except Exception:  # noqa: BLE001 - any refusal of the package
            rewards = "refused"
    try:
        found: object = parse_rewards(
            None if named is None else named.encode(), number.encode(), True
        )
    except ValueError:
        found = "refused"
    same("harbor: reward files", rewards, found, (named, number))


KINDS = ["text", "call", "result", "thought", "session", "life", "usage", "error"]
ROWS = st.lists(
    st.builds(ProgramRow, st.floats(0, 1e5), st.sampled_from(KINDS), st.text(max_size=20)),
    max_size=8,
)


@inputs(300)
@given(ROWS, st.text(min_size=1, max_size=40))
def test_trajectories_are_valid(rows: list[ProgramRow], instruction: str) -> None:
    """Harbor's model takes what culmen makes of a program's events."""
    about = {"name": "cmd", "version": "unknown"}
    made = build_trajectory(about, instruction, rows, 0.0, Usage())
    found = Trajectory.model_validate(made).model_dump(mode="json", exclude_none=True)
    messages = [step["message"] for step in made["steps"]]
    same("harbor: trajectories", [step["message"] for step in found["steps"]], messages, rows)


def test_variables_of_this_machine_are_the_difference_on_purpose() -> None:
    """Harbor hands in the machine's value; culmen takes the default and names the variable."""
    os.environ["CULMEN_COMPARED"] = "mine"
    text = '[environment.env]\nA = "${CULMEN_COMPARED:-default}"\n'
    world = TaskConfig.model_validate_toml(text).environment
    assert resolve_env_vars(world.env) == {"A": "mine"}
    with tempfile.TemporaryDirectory() as folder:
        found = read_settings(Path(folder), tomllib.loads(text))
    assert found.variables == {"A": "default"} and "CULMEN_COMPARED" in found.ignored[0]


HOSTS = table(
    network_mode=st.sampled_from(["public", "allowlist"]), allowed_hosts=st.just(["a.org"])
)


@inputs(100)
@given(HOSTS, HOSTS)
def test_listed_hosts_need_their_mode(world: dict[str, Any], agent: dict[str, Any]) -> None:
    """A task that means to name hosts and forgets the mode is refused, not given a network."""
    text = toml.dumps({"environment": world, "agent": agent})
    same("harbor: listed hosts", theirs(text), ours(text), text)
