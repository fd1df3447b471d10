"""The torch engine and its craft: samples are trained as drawn, checkpoints are exact.

Every objective learns.
"""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'train' is not installed")

from culmen.core.event import CustomRequest  # noqa: E402
from culmen.extensions.train.advisors import policy_maker  # noqa: E402
from culmen.extensions.train.craft import TrainCraft  # noqa: E402
from culmen.extensions.train.engine import Datum, ReplyRequest, Rules  # noqa: E402
from culmen.extensions.train.models import WordTokenizer, tiny_model  # noqa: E402
from culmen.extensions.train.objectives import AdvantageRule  # noqa: E402
from culmen.extensions.train.torch_engine import TorchEngine  # noqa: E402
from culmen.strategies.pacevolve.advisor import MENU  # noqa: E402

OPENING = {"policy": "tiny", "menu": MENU, "seed": 3, "rank": 0, "most": 8}
FAST = Rules(rate=0.01)
ADAPTER = Rules(rate=0.02)


def tiny(seed: int = 3) -> TorchEngine:
    return policy_maker(lambda role, slots: ("", ""))({**OPENING, "seed": seed})[0]


def weights(engine):
    return {name: value.clone() for name, value in engine.model.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def drawn(engine, count=8, among=()):
    prompt = engine.encode("failed generate")
    return [engine.sample(prompt, seed, 3, among) for seed in range(count)]


@pytest.mark.parametrize("among", [(), (14, 15, 16, 17)])
def test_log_probabilities_of_sampling_and_of_training_agree(among):
    engine = tiny()
    for sample in drawn(engine, among=among):
        assert engine.logprobs(sample) == pytest.approx(sample.logprobs, abs=1e-5)
        assert not among or set(sample.response) <= set(among)


def test_replies_are_drawn_at_temperature_one_from_the_models_own_distribution():
    engine = policy_maker(lambda role, slots: ("", ""))(OPENING)[0]
    with torch.no_grad():
        engine.model.lm_head.weight *= (
            40  # nearly uniform chances would look alike at any temperature
        )
        prompt = engine.encode("failed generate")
        levels = engine.model(torch.tensor([list(prompt)])).logits[0, -1].log_softmax(-1)
    drawn = engine.sample_many(
        [ReplyRequest(prompt, seed, 1) for seed in range(600)], lambda done, tokens: None
    )
    tokens = [sample.response[0] for sample in drawn]
    assert [sample.logprobs[0] for sample in drawn] == pytest.approx(
        levels[tokens].tolist(), abs=1e-4
    )
    mean, chances = float(levels[tokens].mean()), levels.exp()
    spread = float((chances * levels**2).sum() - (chances * levels).sum() ** 2) ** 0.5 / 600**0.5
    assert spread > 0.01 and mean == pytest.approx(float((chances * levels).sum()), abs=4 * spread)
    cold = (levels / 0.7).softmax(-1)
    assert (
        abs(float((cold * levels).sum()) - mean) > 4 * spread
    )  # a temperature of 0.7 would be told apart


def test_what_is_sampled_depends_on_version_prompt_and_seed_alone():
    one, other = tiny(), tiny()
    assert drawn(one) == drawn(other) == drawn(one)
    assert drawn(tiny(seed=4)) != drawn(one)


def test_the_gradient_is_that_of_the_loss():
    """Against finite differences of the policy's own log-probabilities.

    They are taken at the point where the ratio is 1.
    """
    engine = tiny()
    data = [
        Datum(sample, advantage)
        for sample, advantage in zip(drawn(engine, 3), (1.0, -0.5, 2.0), strict=True)
    ]
    engine.forward_backward(data, FAST)
    weight = engine.model.lm_head.weight
    tokens = sum(len(datum.sample.response) for datum in data)

    def objective():
        return -sum(datum.advantage * sum(engine.logprobs(datum.sample)) for datum in data) / tokens

    row, column = divmod(int(weight.grad.abs().argmax()), weight.shape[1])
    found, step = float(weight.grad[row, column]), 1e-2
    with torch.no_grad():
        weight[row, column] += step
        above = objective()
        weight[row, column] -= 2 * step
        below = objective()
    assert found == pytest.approx((above - below) / (2 * step), rel=0.02)


def test_activations_computed_again_change_nothing():
    engine, other = tiny(), tiny()
    other.model.gradient_checkpointing_enable(
        gradient_checkpointing_kwargs={"use_reentrant": False}
    )
    data = [
        Datum(sample, advantage)
        for sample, advantage in zip(drawn(engine, 3), (1.0, -0.5, 2.0), strict=True)
    ]
    assert engine.forward_backward(data, FAST) == pytest.approx(
        other.forward_backward(data, FAST), abs=1e-6
    )
    for one, again in zip(engine.model.parameters(), other.model.parameters(), strict=True):
        assert torch.allclose(one.grad, again.grad, atol=1e-6)
    assert not other.model.training and drawn(engine, 3) == drawn(other, 3)


def test_an_update_moves_towards_the_better_and_away_from_the_worse():
    engine = tiny()
    good, bad = drawn(engine, 2)
    before = sum(engine.logprobs(good)), sum(engine.logprobs(bad))
    told = engine.forward_backward([Datum(good, 1.0), Datum(bad, -1.0)], FAST) | engine.optim_step(
        FAST
    )
    assert sum(engine.logprobs(good)) > before[0] and sum(engine.logprobs(bad)) < before[1]
    assert (
        told["grad_norm"] > 0 and told["kl"] > 0 and told["entropy"] > 0 and told["gap_max"] < 1e-5
    )
    assert told["tokens"] == len(good.response) + len(bad.response)


def test_samples_of_another_version_are_never_trained_on():
    engine = tiny()
    sample = drawn(engine, 1)[0]
    engine.publish()
    with pytest.raises(ValueError, match="version"):
        engine.forward_backward([Datum(sample, 1.0)], FAST)


def test_a_checkpoint_is_exact_with_its_optimiser(tmp_path):
    engine = tiny()

    def step(one):
        one.forward_backward(
            [Datum(s, a) for s, a in zip(drawn(one, 4), (1, -1, 2, 0), strict=True)], FAST
        )
        one.optim_step(FAST)
        one.publish()

    step(engine)
    engine.save(tmp_path / "here")
    other = tiny(seed=99)
    other.load(tmp_path / "here")
    assert other.version == 1 and same(weights(engine), weights(other))
    step(engine)
    step(other)
    assert same(weights(engine), weights(other)) and drawn(engine) == drawn(other)


def test_an_adapter_is_saved_in_the_layout_that_others_read(tmp_path):
    peft = pytest.importorskip("peft")
    tokenizer = WordTokenizer(list(MENU))

    def adapted():
        settings = peft.LoraConfig(
            r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "lm_head"]
        )
        return TorchEngine(peft.get_peft_model(tiny_model(len(tokenizer), 3), settings), tokenizer)

    engine, other = adapted(), adapted()
    assert engine.capabilities.adapter
    engine.forward_backward(
        [Datum(s, a) for s, a in zip(drawn(engine, 2), (1, -1), strict=True)], FAST
    )
    engine.optim_step(FAST)
    engine.save(tmp_path)
    other.load(tmp_path)
    assert drawn(engine) == drawn(other)
    loaded = peft.PeftModel.from_pretrained(tiny_model(len(tokenizer), 3), tmp_path / "adapter")
    there = [sample.prompt + sample.response for sample in drawn(TorchEngine(loaded, tokenizer))]
    assert there == [sample.prompt + sample.response for sample in drawn(engine)]
    levels = [
        engine.logprobs(sample) for sample in drawn(engine)
    ]  # mapped weights may be summed in another order
    same_levels = [TorchEngine(loaded, tokenizer).logprobs(sample) for sample in drawn(engine)]
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(levels, same_levels, strict=True))


def perform(craft, kind, nth=0, **payload):
    async def once():
        return await craft.perform(CustomRequest(kind, payload, nth))

    return asyncio.run(once())


def opened(folder):
    craft = TrainCraft(folder, policy_maker(lambda role, slots: ("", "")))
    perform(craft, "train.open", **OPENING)
    return craft


def batch(craft, version):
    slots = {"count": 2, "failures": []}
    samples = [
        perform(craft, "train.sample", n, step="generate", slots=slots, version=version)
        for n in range(4)
    ]
    return [
        {"sample": s.data["sample"], "advantage": a}
        for s, a in zip(samples, (1.0, -1.0, 0.5, 0.0), strict=True)
    ]


def update(craft, version):
    return perform(
        craft, "train.update", version=version, batch=batch(craft, version), rules={"rate": 0.01}
    ).data


def test_an_update_torn_from_the_journal_is_found_again_or_made_again_the_same(tmp_path):
    craft = opened(tmp_path / "a")
    first = update(craft, 0)
    after = weights(craft._policy_at(1)[0])
    again = opened(tmp_path / "a")  # the process died after the checkpoint, before the journal
    assert update(again, 0) == first
    assert same(weights(again._policy_at(1)[0]), after)
    torn = opened(tmp_path / "b")  # it died before the checkpoint
    batch(torn, 0)
    (tmp_path / "b" / "00001.partial").mkdir()
    (tmp_path / "b" / "00001.partial" / "weights.pt").write_text("half")
    reopened = opened(tmp_path / "b")
    second = update(reopened, 0)
    clock = ("seconds", "tokens_per_second")
    assert {k: v for k, v in second.items() if k not in clock} == {
        k: v for k, v in first.items() if k not in clock
    }
    assert same(weights(reopened._policy_at(1)[0]), after)


def test_only_the_checkpoints_that_may_be_asked_for_are_kept(tmp_path):
    craft = opened(tmp_path)
    for version in range(9):
        assert update(craft, version)["version"] == version + 1
    kept = sorted(int(path.name) for path in tmp_path.iterdir() if path.name.isdigit())
    assert kept == [0, 7, 8, 9]


def test_replies_are_what_a_larger_model_would_write(tmp_path):
    craft = opened(tmp_path)
    slots = {"count": 3, "failures": [{"experiment": "numbers: change"}]}
    said = json.loads(
        perform(craft, "train.sample", 5, step="generate", slots=slots, version=0).data["text"]
    )
    names = [one["hypothesis"].partition(":")[0] for one in said["hypotheses"]]
    assert 1 <= len(names) <= 3 and set(names) <= set(MENU)
    options = [
        {"idea": n, "hypothesis": one["hypothesis"]} for n, one in enumerate(said["hypotheses"])
    ]
    chosen = json.loads(
        perform(
            craft, "train.sample", 6, step="select", slots={**slots, "options": options}, version=0
        ).data["text"]
    )
    assert any(
        chosen["idea"] == o["idea"] and chosen["experiment"].startswith(o["hypothesis"])
        for o in options
    )


@pytest.mark.slow
def test_an_adapter_learns_where_it_reaches_the_output_layer():
    """On random weights an adapter needs the output layer; with it, it learns.

    The weights below stay as they are.
    """
    pytest.importorskip("peft", reason="the extra 'train' is not installed")
    engine, credit = (
        policy_maker(lambda role, slots: ("", ""))({**OPENING, "rank": 4, "head": True})[0],
        AdvantageRule("dr_grpo"),
    )
    assert engine.capabilities.adapter
    frozen = {
        name: value.clone()
        for name, value in engine.model.named_parameters()
        if not value.requires_grad
    }
    prompt, among = engine.encode("generate"), engine.encode(" ".join(MENU))[1:]

    worth = {name: n / (len(MENU) - 1) for n, name in enumerate(MENU)}

    def quality(first):
        return sum(worth[engine.sample(prompt, first + n, 1, among).text] for n in range(48)) / 48

    before = quality(10**6)
    for barrier in range(20):
        samples = [engine.sample(prompt, 1000 * barrier + n, 1, among) for n in range(8)]
        signal = credit.training_signal([5.0 * worth[sample.text] for sample in samples], 0.0)
        if not signal.skip:
            engine.forward_backward(
                [Datum(s, a) for s, a in zip(samples, signal.advantages, strict=True)], ADAPTER
            )
            engine.optim_step(ADAPTER)
            engine.publish()
    assert quality(10**6) > before + 0.2
    assert all(
        torch.equal(value, frozen[name])
        for name, value in engine.model.named_parameters()
        if name in frozen
    )
