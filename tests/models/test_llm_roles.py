"""`--model` texts and models files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from culmen.core.errors import UserError
from culmen.models.roles import ModelBook
from culmen.testing.scripted import ScriptedModel


def names(text: str) -> dict[str, list[str]]:
    return {
        role: [m.model.name for m in members]
        for role, members in ModelBook().parse_roles(text).table.items()
    }


def test_texts() -> None:
    assert names("gpt-5-mini") == {"default": ["openai/gpt-5-mini"]}
    assert names("proposer=openai/gpt-5, summarizer=ollama/llama3:8b") == {
        "proposer": ["openai/gpt-5"],
        "summarizer": ["ollama/llama3:8b"],
    }
    assert names("gpt-5,summarizer=none") == {"default": ["openai/gpt-5"], "summarizer": []}
    assert names("litellm/bedrock/x/y") == {"default": ["litellm/bedrock/x/y"]}
    assert names("3*gpt-5-mini|gpt-5") == {"default": ["openai/gpt-5-mini", "openai/gpt-5"]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no model"),
        ("=gpt-5", "cannot read"),
        ("proposer=", "cannot read"),
        ("a=gpt-5,a=gpt-5", "cannot read"),
        ("opnai/gpt-5", "did you mean 'openai'"),
        ("x*gpt-5", "weight"),
        ("0*gpt-5", "weight"),
        ("gpt-5|", "missing"),
        ("openai/", "unknown provider"),
        ("gpt-5,summarizer=offline", "summarizer|ROLE=none"),
    ],
)
def test_mistakes_in_texts(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        ModelBook().parse_roles(text)


def test_defaults_and_ensembles() -> None:
    roles = ModelBook().parse_roles("gpt-5,proposer=3*gpt-5-mini|1*gpt-5-nano,judge=none")
    assert roles.pick_model("anything", 1).model == "gpt-5"
    assert roles.pick_model("judge", 1) is None
    assert ModelBook().parse_roles("proposer=gpt-5").pick_model("summarizer", 1) is None
    drawn = Counter(roles.pick_model("proposer", seed).model for seed in range(400))
    assert 250 < drawn["gpt-5-mini"] < 350
    assert all(roles.pick_model("proposer", 7) is not None for _ in range(3))
    assert roles.pick_model("proposer", 7) == roles.pick_model("proposer", 7)


TOML = """
[providers.mine]
base_url = "http://127.0.0.1:9/v1"
key_env = "TEST_KEY"
rpm = 60
concurrency = 3
[models.fast]
provider = "mine"
model = "small-1"
temperature = 0.7
max_tokens = 1000
json = true
price = { input = 1.0, output = 2.0 }
extra = { top_p = 0.9 }
[roles]
default = "fast"
proposer = [{ model = "fast", weight = 3 }, "openai/gpt-5"]
"""


def test_models_file(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(TOML)
    book = ModelBook(file)
    roles = book.parse_roles()
    fast = roles.pick_model("summarizer", 0)
    assert fast is not None
    assert (fast.name, fast.temperature, fast.json, fast.extra) == (
        "mine/small-1",
        0.7,
        True,
        {"top_p": 0.9},
    )
    assert (fast.provider.rpm, fast.provider.concurrency, fast.max_tokens_name) == (
        60,
        3,
        "max_tokens",
    )
    assert [m.weight for m in roles.table["proposer"]] == [3.0, 1.0]
    assert (
        book.parse_roles("gpt-5").pick_model("summarizer", 0).model == "gpt-5"
    )  # the command line wins
    assert book.model("mine/other").provider.rpm == 60
    yaml = tmp_path / "models.yaml"
    yaml.write_text("models: {a: {model: gpt-5, samples: 2}}\nroles: {default: a}\n")
    assert ModelBook(yaml).parse_roles().pick_model("x", 0).samples == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[models.a]\nmodle = 'x'", "modle"),
        ("[models.a]\nmax_tokens = 0\n[roles]\ndefault='a'", "above 0"),
        ("[providers.p]\napi_key = 'sk-x'", "must not contain API keys"),
        ("[providers.p]\nrpm = 'many'", "rpm"),
        ("[providers.p]\nconcurrency = 0", "above 0"),
        ("[models.a]\nprovider='nope'\n[roles]\ndefault='a'", "unknown provider"),
        ("not toml", "not valid"),
    ],
)
def test_mistakes_in_files(content: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(content)
    with pytest.raises(UserError, match=says) as caught:
        ModelBook(file).parse_roles()
    assert "sk-x" not in str(caught.value)


def test_missing_file_and_broken_yaml(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        ModelBook(tmp_path / "none.toml")
    (tmp_path / "m.yaml").write_text("a: [")
    with pytest.raises(UserError, match="not valid"):
        ModelBook(tmp_path / "m.yaml")


def test_objects() -> None:
    model = ScriptedModel(["x"])
    roles = ModelBook().parse_roles({"default": model, "judge": "gpt-5"})
    assert roles.pick_model("proposer", 0).backend is model
    assert roles.pick_model("proposer", 0).name == "custom/scripted"
    assert roles.pick_model("judge", 0).name == "openai/gpt-5"
    with pytest.raises(UserError, match="is not a model"):
        ModelBook().parse_roles({"default": 3})
    with pytest.raises(UserError, match="is not a model"):
        ModelBook().parse_roles({"default": ScriptedModel})


def test_openai_itself_and_look_alikes(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ModelBook().model("gpt-5")
    assert (own.samples, own.max_tokens_name) == (8, "max_completion_tokens")
    assert own.price_list.usage_for(own_tokens()).unpriced == 0
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    other = ModelBook().model("gpt-5")
    assert (other.samples, other.max_tokens_name) == (1, "max_tokens")
    assert (
        other.price_list.usage_for(own_tokens()).unpriced == 1
    )  # somebody else's prices are not known


def own_tokens():
    from culmen.models.call import Tokens

    return Tokens(1000, 1000)
