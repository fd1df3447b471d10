"""Harbor's meaning of a task: the table of task.toml, and the reward files.

Keys, defaults and deprecated spellings are those of harbor 0.26 (`TaskConfig`, `Verifier`);
`tests/differential/harbor` compares both. What a task asks for and cannot have here is named in
`gaps`, what has no effect or another one in `ignored`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import TaskError
from culmen.core.json import JsonObject
from culmen.core.task import checked_seconds

PUBLIC, CLOSED, LISTED = "public", "no-network", "allowlist"
VERIFIER_SECONDS = 600.0  # the verifier's limit where the task has none
LONGEST_SECONDS = 86_400.0  # culmen's limit of an agent that has none by its task: one day
STORAGE_MB = 10_240  # culmen's limit of files where the task has none
_MODES = (PUBLIC, CLOSED, LISTED)
_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")  # a whole value ${NAME} or ${NAME:-default}
_ORGANISED = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_SIZES = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
_KEYS = {
    "": "version schema_version task metadata verifier agent solution environment source steps",
    "verifier": "timeout_sec env environment_mode network_mode allowed_hosts environment collect",
    "agent": "timeout_sec network_mode allowed_hosts",
    "environment": (
        "build_timeout_sec docker_image cpus memory_mb storage_mb memory storage gpus gpu_types "
        "tpu allow_internet network_mode allowed_hosts os env workdir mcp_servers healthcheck "
        "skills_dir"
    ),
}


class HarborSettings(msgspec.Struct, frozen=True):
    """The table of one task.

    agent_seconds     None: no limit
    cpus, memory_mb, storage_mb   None: no limit
    agent_network, verifier_network   public | no-network | allowlist
    says_network      the task itself names a network, it is not Harbor's default
    variables, verifier_variables     with defaults filled in
    gaps              what the task asks for and cannot have here
    ignored           keys that have no effect here, or another one
    """

    name: str
    agent_seconds: float | None
    verifier_seconds: float
    cpus: float | None
    memory_mb: int | None
    storage_mb: int | None
    agent_network: str
    verifier_network: str
    says_network: bool
    docker_image: str
    workdir: str
    variables: dict[str, str]
    verifier_variables: dict[str, str]
    gaps: tuple[str, ...]
    ignored: tuple[str, ...]

    @property
    def agent_limit(self) -> float:
        """Seconds after which the agent is ended."""
        return LONGEST_SECONDS if self.agent_seconds is None else self.agent_seconds


def read_settings(folder: Path, table: JsonObject) -> HarborSettings:
    """The settings of a task's folder and its parsed task.toml.

    Raises ValueError, TypeError or AttributeError for a value that Harbor refuses, too, and
    `TaskError` for a limit that no clock or machine can hold.
    """
    names = ("environment", "agent", "verifier", "task")
    world, agent, verifier, task = tables = [_inner_table(table, name, folder) for name in names]
    if any(part.get("allowed_hosts") and part.get("network_mode") != LISTED for part in tables):
        raise ValueError('allowed_hosts needs network_mode = "allowlist"')
    network, says = _base_network(world)
    name = str(task.get("name", folder.name))
    ours, theirs = (
        _filled_variables(world.get("env", {})),
        _filled_variables(verifier.get("env", {})),
    )
    limit, file = agent.get("timeout_sec"), folder / "task.toml"
    return HarborSettings(
        name=name.rpartition("/")[2],
        agent_seconds=None
        if limit is None
        else checked_seconds(limit, f"{file} (agent.timeout_sec)"),
        verifier_seconds=checked_seconds(
            verifier.get("timeout_sec", VERIFIER_SECONDS), f"{file} (verifier.timeout_sec)"
        ),
        cpus=_checked_cpus(world.get("cpus")),
        memory_mb=_megabytes(world, "memory"),
        storage_mb=_megabytes(world, "storage"),
        agent_network=_checked_mode(agent.get("network_mode")) or network,
        verifier_network=_checked_mode(verifier.get("network_mode")) or network,
        says_network=says or any("network_mode" in phase for phase in (agent, verifier)),
        docker_image=str(world.get("docker_image") or ""),
        workdir=str(world.get("workdir") or ""),
        variables=ours.values,
        verifier_variables=theirs.values,
        gaps=(*_unmet_needs(folder, table), *ours.missing, *theirs.missing),
        ignored=(*_without_effect(table), *ours.defaulted, *theirs.defaulted),
    )


def _inner_table(table: JsonObject, name: str, folder: Path) -> JsonObject:
    """A table of a task.toml, empty if it is not there; raise `TaskError` if it is none."""
    inner = table.get(name, {})
    if not isinstance(inner, dict):
        raise TaskError(f"[{name}] is no table", where=str(folder / "task.toml"), fix="correct it")
    return inner


def _base_network(world: JsonObject) -> tuple[str, bool]:
    """The network of the environment, and whether the task itself names one."""
    if "network_mode" in world or world.get("allowed_hosts") is not None:
        return _checked_mode(world.get("network_mode", PUBLIC)), True
    legacy = world.get("allow_internet")
    if legacy is None:
        return PUBLIC, False
    return PUBLIC if _checked_flag(legacy) else CLOSED, True


def _checked_mode(value: object) -> str:
    """A network mode, "" for none; raise ValueError for any other."""
    if value is None:
        return ""
    if value not in _MODES:
        raise ValueError(f"network_mode = {value!r} is none of {', '.join(_MODES)}")
    return str(value)


def _checked_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"allow_internet = {value!r} is neither true nor false")
    return value


def _checked_cpus(value: object) -> float | None:
    if value is None:
        return None
    number = float(str(value))
    if not math.isfinite(number):
        raise ValueError(f"cpus = {value!r} is not finite")
    return number


def _megabytes(world: JsonObject, key: str) -> int | None:
    """The limit memory_mb or storage_mb, also by the older keys "8G", "512M", "64K"."""
    given, older = world.get(f"{key}_mb"), world.get(key)
    number = None if given is None else float(str(given))
    if number is not None and not number.is_integer():
        raise ValueError(f"{key}_mb = {given!r} is not a whole number")
    if not isinstance(older, str):
        return None if number is None else int(number)
    text = older.strip().upper()
    factor = _SIZES.get(text[-1:])
    if factor is None:
        raise ValueError(f"{key} = {older!r} is not a size such as 1G or 512M")
    size = int(float(text[:-1]) * factor)
    if number is not None and number != size:
        raise ValueError(f"{key} = {older!r} and {key}_mb = {given!r} contradict each other")
    return size


class _Variables(msgspec.Struct):
    values: dict[str, str] = {}
    missing: list[str] = []
    defaulted: list[str] = []


def _filled_variables(wanted: Mapping[str, object]) -> _Variables:
    """Variables with their values; those of this machine never enter a task's world."""
    found = _Variables()
    for name, value in wanted.items():
        if not isinstance(value, str):
            raise ValueError(f"the variable {name} = {value!r} is not a text")
        template = _TEMPLATE.fullmatch(value)
        if template is None:
            found.values[name] = value
        elif template[2] is None:
            found.missing.append(f"the variable {template[1]} of this machine")
        else:
            found.values[name] = template[2]
            if template[1] in os.environ:
                found.defaulted.append(
                    f"the variable {template[1]} of this machine (its default counts)"
                )
    return found


def _unmet_needs(folder: Path, table: JsonObject) -> Iterator[str]:
    world: JsonObject = table.get("environment", {})
    verifier: JsonObject = table.get("verifier", {})
    if not (folder / "tests" / "test.sh").is_file():
        yield "a verifier without tests/test.sh"
    if "steps" in table:
        yield "several steps"
    if any((folder / "environment").glob("docker-compose.y*ml")):
        yield "several containers (docker-compose)"
    for key, what in (("gpus", "a GPU"), ("tpu", "a TPU")):
        if world.get(key):
            yield what
    if str(world.get("os", "linux")).lower() != "linux":
        yield f"the system {world['os']}"
    for key in ("mcp_servers", "healthcheck", "skills_dir"):
        if world.get(key):
            yield f"environment.{key}"
    is_apart = verifier.get("environment_mode") == "separate"
    if is_apart or any(verifier.get(key) for key in ("collect", "environment")):
        yield "a verifier's own image or hooks"


def _without_effect(table: Mapping[str, Any]) -> Iterator[str]:
    """Keys that have no effect here."""
    for section, known in _KEYS.items():
        for key in table.get(section, {}) if section else table:
            if key not in known.split():
                yield f"{section}.{key}".lstrip(".")
    name = table.get("task", {}).get("name")
    if name is not None and (not _ORGANISED.fullmatch(str(name)) or ".." in str(name)):
        yield f"task.name {name!r} without an organisation, which Harbor refuses"


# -- rewards


def parse_rewards(
    named: bytes | None, number: bytes | None, expects_named: bool
) -> dict[str, float]:
    """Rewards by name, of the bytes of reward.json and reward.txt (None: there is no such file).

    As in Harbor, reward.json counts if both are there: an object of numbers. reward.txt is one
    number as Python's float reads it, here under the name `reward`. Unlike Harbor, both together
    are no reward unless the tests name reward.json (`expects_named`): whoever else can write during
    the tests could add it. Raises ValueError.
    """
    if named is not None and number is not None and not expects_named:
        raise ValueError("there is a reward.json beside reward.txt, which no file of tests/ names")
    try:
        if named is not None:
            return _named_rewards(json.loads(named.decode()))
        rewards = {"reward": float((number or b"").decode())}
    except (OverflowError, RecursionError) as error:
        raise ValueError(f"the reward is no number: {error}") from None
    if not math.isfinite(rewards["reward"]):
        raise ValueError("the reward is not finite")
    return rewards


def _named_rewards(value: object) -> dict[str, float]:
    if not isinstance(value, dict) or not value:
        raise ValueError("reward.json is not an object of numbers")
    if not all(isinstance(each, int | float) for each in value.values()):
        raise ValueError("reward.json has a value that is no number")
    rewards = {str(name): float(each) for name, each in value.items()}
    if not all(map(math.isfinite, rewards.values())):
        raise ValueError("reward.json has a number that is not finite")
    return rewards


def score_of(rewards: Mapping[str, float]) -> float:
    """The score of rewards: the one called `reward`, else their mean."""
    return rewards.get("reward", sum(rewards.values()) / len(rewards))


def names_reward_json(tests: Path) -> bool:
    """True if a file of tests/ names reward.json."""
    files = (path for path in tests.rglob("*") if path.is_file() and not path.is_symlink())
    return any(b"reward.json" in path.read_bytes() for path in files)
