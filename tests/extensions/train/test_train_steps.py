"""Updates of several steps, where clip and importance ratio act.

Also updates that hold on to the first weights.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'train' is not installed")

import msgspec  # noqa: E402

from culmen.extensions.train.advisors import policy_maker  # noqa: E402
from culmen.extensions.train.craft import run_update_steps  # noqa: E402
from culmen.extensions.train.engine import Datum, PolicySample, Rules  # noqa: E402
from culmen.extensions.train.torch_engine import TorchEngine  # noqa: E402
from culmen.strategies.pacevolve.advisor import MENU  # noqa: E402
from tests.extensions.train.equation6 import clipped_loss  # noqa: E402

OPENING = {"policy": "tiny", "menu": MENU, "seed": 3, "rank": 0, "most": 8}
FAST = Rules(rate=0.05)
ADVANTAGES = (1.0, -0.5, 2.0, -1.0)


def made(**more) -> TorchEngine:
    return policy_maker(lambda role, slots: ("", ""))({**OPENING, **more})[0]


def group(engine: TorchEngine) -> list[Datum]:
    prompt = engine.encode("failed generate")
    return [Datum(engine.sample(prompt, seed, 3), a) for seed, a in enumerate(ADVANTAGES)]


def table(rows: list[list[float]]) -> np.ndarray:
    """Rows of several lengths side by side, NaN where a row has ended."""
    found = np.full((len(rows), max(map(len, rows))), np.nan)
    for place, row in enumerate(rows):
        found[place, : len(row)] = row
    return found


def equation_6(
    engine: TorchEngine, data: list[Datum], held: list[list[float]], rules: Rules
) -> float:
    """The loss by the formulas' own code, from log-probabilities alone."""
    new = table([engine.logprobs(one.sample) for one in data])
    bounds = {"low": rules.low, "high": rules.high}
    return clipped_loss(new, table(held), [one.advantage for one in data], ~np.isnan(new), **bounds)


def test_from_the_second_step_on_ratio_and_clip_act():
    engine = made()
    data = group(engine)
    held = [engine.logprobs(one.sample) for one in data]
    engine.hold_logprobs([one.sample for one in data])
    engine.forward_backward(data, FAST)
    engine.optim_step(FAST)
    told = engine.forward_backward(data, FAST)
    new = table([engine.logprobs(one.sample) for one in data])
    advantages = np.broadcast_to(np.array([[one.advantage] for one in data]), new.shape)
    ratios = np.exp(new - table(held))
    tokens = np.isfinite(ratios).sum()
    low = ((ratios < 0.8) & (advantages < 0)).sum() / tokens
    high = ((ratios > 1.28) & (advantages > 0)).sum() / tokens
    assert told["ratio_max"] > 1.28 and told["loss"] == pytest.approx(
        equation_6(engine, data, held, FAST), abs=1e-5
    )
    assert (
        low > 0 and high > 0 and (told["clip_low"], told["clip_high"]) == pytest.approx((low, high))
    )
    assert told["gap_max"] < 1e-5  # between sampler and trainer, not between the steps
    _same_as_finite_differences(engine, data, held)


def _same_as_finite_differences(
    engine: TorchEngine, data: list[Datum], held: list[list[float]]
) -> None:
    weight = engine.model.lm_head.weight
    row, column = divmod(int(weight.grad.abs().argmax()), weight.shape[1])
    found, step = float(weight.grad[row, column]), 2e-3
    levels = []
    for way in (step, -2 * step):
        with torch.no_grad():
            weight[row, column] += way
        levels.append(equation_6(engine, data, held, FAST))
    assert found == pytest.approx((levels[0] - levels[1]) / (2 * step), rel=0.03)


def test_a_clipped_token_has_no_gradient():
    engine = made()
    good = group(engine)[0]
    engine.hold_logprobs([good.sample])
    for _ in range(20):
        engine.forward_backward([good], FAST)
        engine.optim_step(FAST)
        if all(
            new - old > 0.3
            for new, old in zip(engine.logprobs(good.sample), good.sample.logprobs, strict=True)
        ):
            break
    told = engine.forward_backward([good], FAST)
    assert told["clip_high"] == 1.0
    assert all(not p.grad.any() for p in engine.model.parameters() if p.grad is not None)


def gradient(engine: TorchEngine, data: list[Datum], rules: Rules) -> float:
    """The norm of the gradient of one pass, which is taken back."""
    engine.forward_backward(data, rules)
    norm = (
        float(sum((p.grad**2).sum() for p in engine.model.parameters() if p.grad is not None))
        ** 0.5
    )
    engine.model.zero_grad(set_to_none=True)
    return norm


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [
        (1.25, 1.0, True),
        (1.32, 1.0, False),
        (0.77, -1.0, False),
        (0.85, -1.0, True),
        (1.32, -1.0, True),
    ],
)
def test_the_clip_is_wider_above_than_below_and_ratios_of_the_sampler_count(
    ratio, advantage, moves
):
    """The first step after sampling: the ratio is what trainer and sampler differ by."""
    engine = made()
    one = group(engine)[0].sample
    other = msgspec.structs.replace(
        one, logprobs=tuple(level - np.log(ratio) for level in engine.logprobs(one))
    )
    plain, found = (gradient(engine, [Datum(each, advantage)], FAST) for each in (one, other))
    assert found == pytest.approx(ratio * plain if moves else 0.0, rel=1e-3) and plain > 1e-4


def test_a_sample_of_another_engine_is_corrected_for_up_to_the_cap_and_that_is_no_ratio_of_steps():
    engine = made()
    good = group(engine)[0]
    held = engine.logprobs(good.sample)
    strange = msgspec.structs.replace(good.sample, logprobs=tuple(level - 3.0 for level in held))
    wide = msgspec.structs.replace(FAST, high=100.0)
    engine.hold_logprobs([strange])
    engine.forward_backward([Datum(strange, 1.0)], wide)
    engine.optim_step(wide)
    told = engine.forward_backward([Datum(strange, 1.0)], wide)
    moved = np.exp(np.array(engine.logprobs(strange)) - np.array(held))
    assert (
        told["loss"] == pytest.approx(-float(np.mean(2.0 * moved)), rel=1e-4)
        and told["gap_max"] > 2.9
    )


def test_passes_and_minibatches_are_optimiser_steps_on_all_samples():
    rules = msgspec.structs.replace(FAST, epochs=3, minibatches=2)
    engine, one = made(), made()
    told = run_update_steps(engine, group(engine), rules)
    taken = {int(state["step"]) for state in engine._optimiser.state_dict()["state"].values()}
    assert taken == {6} and told["ratio_max"] > 1.0 + 1e-3
    assert told["tokens"] == 3 * sum(len(datum.sample.response) for datum in group(made()))
    run_update_steps(one, group(one), FAST)
    assert {int(state["step"]) for state in one._optimiser.state_dict()["state"].values()} == {1}
    many = msgspec.structs.replace(FAST, minibatches=9)  # more than samples: one each
    run_update_steps(one, group(one), many)
    assert {int(state["step"]) for state in one._optimiser.state_dict()["state"].values()} == {5}


def away(engine: TorchEngine) -> float:
    """The divergence from the first weights, nats per token, estimated from present samples."""
    first, prompt = made(), engine.encode("failed generate")
    samples = [engine.sample(prompt, 10_000 + seed, 3) for seed in range(64)]
    return float(np.mean([np.mean(s.logprobs) - np.mean(first.logprobs(s)) for s in samples]))


@pytest.mark.parametrize("more", [{}, {"rank": 4, "head": True}], ids=["all weights", "adapter"])
def test_an_anchor_pulls_back_to_the_first_weights_also_after_a_checkpoint(more, tmp_path):
    if more:
        pytest.importorskip("peft", reason="the extra 'train' is not installed")
    engine = made(anchored=True, **more)
    for _ in range(6):
        run_update_steps(engine, group(engine), FAST)
        engine.publish()
    engine.save(tmp_path / "kept")
    engine = made(anchored=True, **more)
    engine.load(tmp_path / "kept")
    pull = Rules(rate=0.02, anchor=1.0)
    start = away(engine)
    for n in range(60):
        prompt = engine.encode("failed generate")
        samples = [engine.sample(prompt, 100 + 8 * n + i, 3) for i in range(8)]
        run_update_steps(
            engine, [Datum(sample, 0.0) for sample in samples], pull
        )  # no reward at all
        engine.publish()
    assert away(engine) < 0.6 * start


def test_the_anchor_is_the_penalty_as_printed():
    engine, first = made(anchored=True), made()
    run_update_steps(engine, group(engine), FAST)
    engine.publish()
    data = group(engine)
    told = engine.forward_backward(data, msgspec.structs.replace(FAST, anchor=0.1))
    gaps = [np.array(d.sample.logprobs) - np.array(first.logprobs(d.sample)) for d in data]
    mean = float(np.concatenate(gaps).mean())
    each = [d.advantage + 0.1 * (mean - gap) for d, gap in zip(data, gaps, strict=True)]
    assert told["loss"] == pytest.approx(-float(np.concatenate(each).mean()), abs=1e-4)
    with pytest.raises(ValueError, match="first weights"):
        first.forward_backward(group(first), Rules(anchor=0.1))


def test_a_held_sample_is_forgotten_with_its_version():
    engine = made()
    sample: PolicySample = group(engine)[0].sample
    engine.hold_logprobs([sample])
    engine.publish()
    assert not engine._held


def test_a_stale_sample_is_corrected_by_its_ratio_to_the_version_that_drew_it():
    engine, rules = made(), msgspec.structs.replace(FAST, stale=1)
    data, later = group(engine), group(engine)
    with pytest.raises(ValueError, match="another version"):
        engine.forward_backward(
            [msgspec.structs.replace(each, sample=ahead(each.sample)) for each in data], rules
        )
    run_update_steps(engine, data, rules)
    engine.publish()
    with pytest.raises(ValueError, match="another version"):
        engine.forward_backward(later, FAST)
    drawn = [list(each.sample.logprobs) for each in later]
    told = engine.forward_backward(later, rules)
    assert told["ratio_max"] > 1.0 and told["loss"] == pytest.approx(
        equation_6(engine, later, drawn, rules), abs=1e-5
    )
    engine.optim_step(rules)
    engine.publish()
    with pytest.raises(ValueError, match="up to 1 before it"):
        engine.forward_backward(later, rules)


def ahead(sample: PolicySample) -> PolicySample:
    return msgspec.structs.replace(sample, version=sample.version + 1)
