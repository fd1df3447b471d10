"""A tiny policy in training: it learns its lessons and nothing else.

A skipped group leaves no trace in it.
"""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'train' is not installed")

from culmen.cli import pages  # noqa: E402
from culmen.core.evaluation import Observation, Status  # noqa: E402
from culmen.core.event import Custom, CustomRequest, Effect  # noqa: E402
from culmen.core.usage import Budget  # noqa: E402
from culmen.extensions.bench.analyze import analyze_runs  # noqa: E402
from culmen.extensions.train import OBJECTIVES  # noqa: E402
from culmen.extensions.train.advisors import policy_maker  # noqa: E402
from culmen.extensions.train.craft import TrainCraft  # noqa: E402
from culmen.extensions.train.engine import Datum, Rules  # noqa: E402
from culmen.extensions.train.models import WordTokenizer, tiny_model  # noqa: E402
from culmen.extensions.train.objectives import AdvantageRule  # noqa: E402
from culmen.extensions.train.plus_plus import PacevolvePlusPlus  # noqa: E402
from culmen.extensions.train.torch_engine import TorchEngine  # noqa: E402
from culmen.store import views  # noqa: E402
from culmen.strategies.pacevolve.advisor import MENU  # noqa: E402
from culmen.strategies.pacevolve.implementing import Implementing  # noqa: E402
from culmen.strategies.pacevolve.pacevolve import Pacevolve  # noqa: E402
from tests.extensions.train.equation6 import clipped_loss  # noqa: E402
from tests.extensions.train.toy_advisor import Toy, examined, policy, rehearse  # noqa: E402
from tests.gallery import Gallery, record, task  # noqa: E402

FAST = Rules(rate=0.01)
QUICK = Toy(words=1, group=8, barriers=32)
SEEDS = (1, 2, 3)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def learned(objective: Any, seed: int, flip: bool = False) -> float:
    """Mean quality of 64 fresh replies after training."""
    engine = policy(seed)
    for _ in rehearse(engine, QUICK, AdvantageRule(objective, k=4), FAST, seed, flip=flip):
        pass
    return examined(engine, QUICK, 64)["quality"]


def untrained() -> float:
    return sum(examined(policy(seed), QUICK, 64)["quality"] for seed in SEEDS) / len(SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [o for o in OBJECTIVES if o != "none"])
def test_every_objective_reaches_three_times_the_untrained_control(objective: str):
    assert min(learned(objective, seed) for seed in SEEDS) >= 3 * untrained()


@pytest.mark.slow
def test_advantages_of_random_sign_teach_nothing():
    assert (
        sum(learned("phase_adaptive", seed, flip=True) for seed in SEEDS) / len(SEEDS)
        < 3 * untrained()
    )


def adapted(seed: int = 3) -> tuple[TorchEngine, Any]:
    """A policy with a LoRA adapter, one update away from its base."""
    peft = pytest.importorskip("peft", reason="the extra 'train' is not installed")
    tokenizer = WordTokenizer(list(MENU))
    settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "lm_head"])
    model = peft.get_peft_model(tiny_model(len(tokenizer), seed), settings)
    engine = TorchEngine(model, tokenizer)
    samples = [engine.sample(engine.encode("generate"), n, 4) for n in range(4)]
    for _ in range(3):
        engine.forward_backward(
            [Datum(s, a) for s, a in zip(samples, (1, -1, 2, -2), strict=True)], Rules(rate=0.05)
        )
        engine.optim_step(Rules(rate=0.05))
    return engine, model


def test_what_was_sampled_is_recomputed_with_an_adapter_without_it_and_merged():
    engine, model = adapted()
    prompts = ["generate", "failed numbers cma lines among generate", "select"]
    samples = [engine.sample(engine.encode(prompt), n, 6) for n, prompt in enumerate(prompts * 4)]
    assert max(len(s.response) for s in samples) == 6
    for sample in samples:
        assert engine.logprobs(sample) == pytest.approx(sample.logprobs, abs=1e-5)
    with model.disable_adapter():
        base = [engine.logprobs(sample) for sample in samples]
        off = [engine.sample(sample.prompt, 99, 6) for sample in samples]
        assert all(engine.logprobs(s) == pytest.approx(s.logprobs, abs=1e-5) for s in off)
    moved = max(
        abs(a - b)
        for sample, old in zip(samples, base, strict=True)
        for a, b in zip(sample.logprobs, old)
    )
    assert moved > 1e-3  # the adapter does something
    merged = TorchEngine(model.merge_and_unload(), engine.tokenizer)
    for sample in samples:
        assert merged.logprobs(sample) == pytest.approx(sample.logprobs, abs=1e-5)


def test_the_closing_token_is_part_of_what_is_trained():
    engine = policy(3)
    ended = [s for n in range(60) if (s := engine.sample(engine.encode("generate"), n, 8)).ended]
    assert ended and all(s.response[-1] == engine.tokenizer.eos_token_id for s in ended)  # pyright: ignore[reportAttributeAccessIssue]
    for sample in ended:
        assert engine.logprobs(sample) == pytest.approx(sample.logprobs, abs=1e-5)
        assert len(sample.text.split()) == len(sample.response) - 1


@pytest.mark.parametrize("gap", [-1.0, -0.1, 0.0, 0.1, 1.0])
@pytest.mark.parametrize("advantage", [2.0, -1.5])
def test_the_gradient_of_the_clipped_loss_is_its_finite_difference(gap: float, advantage: float):
    """Two tokens of a two-way choice: torch against the numpy formula.

    Also where the clip holds the gradient back.
    """
    logits = torch.tensor([0.3, -0.4], dtype=torch.float64, requires_grad=True)
    drawn = [0, 1]

    def level(values: Any) -> Any:
        return torch.log_softmax(values, -1)[drawn]

    old = (level(logits) - gap).detach()
    ratio = torch.exp(level(logits) - old)
    loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage).mean()
    loss.backward()

    def formula(values: Any) -> float:
        return clipped_loss(
            level(values).detach().numpy()[None], old.numpy()[None], [advantage], np.ones((1, 2))
        )

    assert float(loss.detach()) == pytest.approx(formula(logits), abs=1e-12)
    for place in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[place] = 1e-6
        slope = (formula(logits + step) - formula(logits - step)) / 2e-6
        assert float(logits.grad[place]) == pytest.approx(slope, abs=1e-6)


def state(engine: Any) -> bytes:
    """Parameters and the optimiser's state, byte for byte."""
    buffer = io.BytesIO()
    torch.save(
        {
            "weights": engine.model.state_dict(),
            "optimiser": engine._configured_adam(FAST).state_dict(),
        },
        buffer,
    )
    tensors = [t.numpy().tobytes() for t in engine.model.state_dict().values()]
    kept = engine._configured_adam(FAST).state_dict()["state"]
    return b"".join(tensors + [t.numpy().tobytes() for n in sorted(kept) for t in kept[n].values()])


class Trained(Gallery):
    """A simulated search whose advisor is a real policy.

    From `flat` evaluations on, every score is the same.
    """

    def __init__(self, folder: Path, flat: int) -> None:
        super().__init__()
        craft = TrainCraft(folder, policy_maker(lambda role, slots: ("", "")))
        for name, value in {"craft": craft, "flat": flat, "seen": [], "states": []}.items():
            object.__setattr__(self, name, value)

    def perform(self, effect: Effect, rng: Random) -> Any:
        request: Any = effect.request
        if isinstance(request, CustomRequest) and request.kind.startswith("train."):
            told: Custom = asyncio.run(self.craft.perform(request))  # pyright: ignore[reportAttributeAccessIssue]
            if request.kind == "train.update":
                self.states.append(state(self.engine))  # pyright: ignore[reportAttributeAccessIssue]
            return 1.0, told
        seconds, result = super().perform(effect, rng)
        if isinstance(result, Observation):
            self.seen.append(result.candidate)  # pyright: ignore[reportAttributeAccessIssue]
            if len(self.seen) > self.flat:  # pyright: ignore[reportAttributeAccessIssue]
                result = msgspec.structs.replace(result, status=Status.OK, score=0.5)
        return seconds, result

    @property
    def engine(self) -> Any:
        return self.craft._policy[0]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trained]:
    """A recorded search: a few barriers with an update, then only groups without differences."""
    folder = tmp_path_factory.mktemp("trained")
    world = Trained(folder / "policy", flat=41)
    scaffold = Pacevolve(islands=4, implementing=Implementing(repairs=0))
    strategy = PacevolvePlusPlus(scaffold=scaffold, k=2, barriers=10, worst=0.0, best=1.0)
    record(
        folder / "run",
        strategy,
        budget=Budget(evaluations=150),
        about=task(),
        world=world,
        workers=4,
    )
    return folder / "run", world


def barriers(path: Path) -> list[dict[str, Any]]:
    return [note.entry.body for note in views.note_events(path, "barrier")]


def test_a_skipped_group_leaves_every_byte_as_it_was(run: tuple[Path, Trained]):
    path, world = run
    told = barriers(path)
    steps = [n for n, note in enumerate(told) if not note["skip"]]
    flat = told[steps[-1] + 1 :]
    assert (
        len(steps) > 3
        and len(flat) >= 10
        and all(note["skip"].endswith("_collapsed") for note in flat)
    )
    states: list[bytes] = world.states  # pyright: ignore[reportAttributeAccessIssue]
    assert len(states) == len(steps) and state(world.engine) == states[-1] != states[-2]
    # what would have happened otherwise: momentum moves the weights on advantages of nothing but
    # zeros
    engine = world.engine
    sample = engine.sample(engine.encode("generate"), 1, 3)
    engine.forward_backward([Datum(sample, 0.0)], FAST)
    engine.optim_step(FAST)
    assert state(engine) != states[-1]


DIAGNOSTICS = {
    "entropy",
    "grad_norm",
    "kl",
    "clip_low",
    "clip_high",
    "ratio_max",
    "gap_mean",
    "gap_max",
    "tokens",
    "tokens_per_second",
}
ALWAYS = {
    "version",
    "alpha",
    "skip",
    "rewards",
    "advantages",
    "spreads",
    "failures",
    "clamped",
    "alarms",
}


def test_the_journal_has_every_diagnostic_of_every_barrier(run: tuple[Path, Trained]):
    told = barriers(run[0])
    assert all(set(note) >= ALWAYS for note in told)
    stepped = [note for note in told if not note["skip"]]
    assert all(set(note) >= DIAGNOSTICS for note in stepped) and not DIAGNOSTICS & set(told[-1])
    assert all(
        note["gap_max"] <= 1e-5 and note["entropy"] > 0 and note["grad_norm"] > 0
        for note in stepped
    )
    assert {"rewards", "group"} <= set(stepped[0]["spreads"]) and stepped[-1]["spreads"][
        "frontier"
    ] >= 0
    assert [note["alpha"] for note in stepped] == pytest.approx(
        [n / 9 for n in range(len(stepped))]
    )


def test_status_and_analyses_tell_of_the_training(run: tuple[Path, Trained]):
    path, told = run[0], barriers(run[0])
    now = views.run_status(path)
    found = now.training
    assert found is not None and now.agents is None
    assert (found.barriers, found.version) == (len(told), sum(not note["skip"] for note in told))
    assert (
        found.skip == told[-1]["skip"] and "skips" in found.standing and found.alarms["skips"] >= 1
    )
    assert f"no step: {told[-1]['skip'].replace('_', ' ')}" in pages._advisor_text(
        now
    ) and "the last one too" in pages._alarms_text(now)
    tables = {table.name: table for table in analyze_runs([path])[0].tables}
    rows = tables["training"].rows
    assert [row["barrier"] for row in rows] == list(range(1, len(told) + 1))
    for row, note in zip(rows, told, strict=True):
        assert row["reward"] == pytest.approx(sum(note["rewards"]) / 4) and row["skipped"] == bool(
            note["skip"]
        )
        assert row["entropy"] == note.get("entropy") and row["alarmed"] == bool(note["alarms"])
    counts = {(row["what"], row["reason"]): row["times"] for row in tables["training_events"].rows}
    assert counts["skip", told[-1]["skip"]] == sum(
        note["skip"] == told[-1]["skip"] for note in told
    )
