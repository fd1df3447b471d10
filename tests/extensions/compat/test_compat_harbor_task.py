"""Harbor's meaning of task.toml and of reward files, for both readers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from culmen.extensions.compat.harbor_task import (
    CLOSED,
    LONGEST_SECONDS,
    PUBLIC,
    HarborSettings,
    names_reward_json,
    parse_rewards,
    read_settings,
    score_of,
)


def settings(folder: Path, text: str) -> HarborSettings:
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test.sh").write_text("true\n")
    return read_settings(folder, tomllib.loads(text))


def test_an_empty_table_has_harbors_defaults(tmp_path: Path) -> None:
    found = settings(tmp_path, "")
    assert (found.agent_seconds, found.verifier_seconds) == (None, 600.0)
    assert found.agent_limit == LONGEST_SECONDS
    assert (found.cpus, found.memory_mb, found.storage_mb) == (None, None, None)
    assert (found.agent_network, found.verifier_network) == (PUBLIC, PUBLIC)
    assert (found.gaps, found.ignored, found.says_network) == ((), (), False)


@pytest.mark.parametrize(
    ("text", "agent", "verifier"),
    [
        ("[environment]\nallow_internet = false\n", CLOSED, CLOSED),
        ('[environment]\nallow_internet = false\nnetwork_mode = "public"\n', PUBLIC, PUBLIC),
        ('[environment]\nnetwork_mode = "no-network"\n', CLOSED, CLOSED),
        ('[agent]\nnetwork_mode = "no-network"\n', CLOSED, PUBLIC),
        (
            '[environment]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "public"\n',
            CLOSED,
            PUBLIC,
        ),
    ],
)
def test_network_of_agent_and_verifier(
    tmp_path: Path, text: str, agent: str, verifier: str
) -> None:
    found = settings(tmp_path, text)
    assert (found.agent_network, found.verifier_network) == (agent, verifier)
    assert found.says_network


def test_older_spellings_of_sizes(tmp_path: Path) -> None:
    found = settings(tmp_path, '[environment]\nmemory = "8G"\nstorage = "1.5g"\ncpus = 0.5\n')
    assert (found.memory_mb, found.storage_mb, found.cpus) == (8192, 1536, 0.5)
    for wrong in ('memory = "8"', 'memory = "1G"\nmemory_mb = 5', "cpus = nan"):
        with pytest.raises(ValueError):
            settings(tmp_path, f"[environment]\n{wrong}\n")


def test_variables_with_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH", raising=False)
    text = '[verifier.env]\nA = "${NO_SUCH:-y}"\nB = "${NO_SUCH}"\nC = "x${NO_SUCH}"\n'
    found = settings(tmp_path, text)
    assert found.verifier_variables == {"A": "y", "C": "x${NO_SUCH}"}
    assert found.gaps == ("the variable NO_SUCH of this machine",)
    monkeypatch.setenv("NO_SUCH", "secret")
    again = settings(tmp_path, text)
    assert again.verifier_variables == found.verifier_variables
    assert "NO_SUCH" in again.ignored[0]


def test_keys_without_effect_are_named(tmp_path: Path) -> None:
    text = '[task]\nname = "abc"\n[agent]\nuser = "me"\n[environment]\ntpu = { type = "v4" }\n'
    found = settings(tmp_path, text)
    assert "agent.user" in found.ignored and "organisation" in " ".join(found.ignored)
    assert found.gaps == ("a TPU",)


@pytest.mark.parametrize(
    ("text", "value"),
    [(".50\n", 0.5), ("01", 1.0), ("1.", 1.0), ("+1", 1.0), (" 1e-2 ", 0.01)],
)
def test_reward_txt_is_what_float_reads(text: str, value: float) -> None:
    assert parse_rewards(None, text.encode(), False) == {"reward": value}


@pytest.mark.parametrize("text", ["", "nan", "inf", "one", "1 2", "true", "1" * 5000])
def test_reward_txt_that_is_no_number(text: str) -> None:
    with pytest.raises(ValueError):
        parse_rewards(None, text.encode(), False)


def test_reward_json_is_an_object_of_numbers() -> None:
    assert parse_rewards(b'{"reward": true}', None, False) == {"reward": 1.0}
    rewards = parse_rewards(b'{"right": 1, "style": 0.5}', None, False)
    assert rewards == {"right": 1.0, "style": 0.5} and score_of(rewards) == 0.75
    huge = b'{"reward": 1' + b"0" * 400 + b"}"
    for text in (b"0.5", b"{}", b'{"reward": "1"}', b'{"reward": null}', b'{"a": NaN}', huge):
        with pytest.raises(ValueError):
            parse_rewards(text, None, False)


def test_reward_json_counts_where_the_tests_name_it(tmp_path: Path) -> None:
    """Both files: as in Harbor, unless somebody else than the tests may have written the second."""
    both = (b'{"reward": 0.9}', b"0.1")
    assert parse_rewards(*both, True) == {"reward": 0.9}
    with pytest.raises(ValueError, match=r"reward\.json beside reward\.txt"):
        parse_rewards(*both, False)
    (tmp_path / "test.sh").write_text("python3 /tests/judge.py\n")
    assert not names_reward_json(tmp_path)
    (tmp_path / "judge.py").write_text("open('/logs/verifier/reward.json', 'w')\n")
    assert names_reward_json(tmp_path)
