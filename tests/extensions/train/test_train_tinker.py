"""The Tinker client against a server that really trains.

It agrees with the engine in this process.
"""

from __future__ import annotations

import asyncio
import json

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'train' is not installed")
pytest.importorskip("peft", reason="the extra 'train' is not installed")
pytest.importorskip("tinker", reason="the extra 'train-tinker' is not installed")

from culmen.core.errors import Unavailable, UserError  # noqa: E402
from culmen.core.event import CustomRequest  # noqa: E402
from culmen.extensions.train.advisors import policy_maker  # noqa: E402
from culmen.extensions.train.craft import TrainCraft  # noqa: E402
from culmen.extensions.train.engine import Datum, Rules  # noqa: E402
from culmen.extensions.train.models import load_model  # noqa: E402
from culmen.strategies.pacevolve.advisor import MENU  # noqa: E402
from tests.extensions.train.policies import write_chat_model  # noqa: E402
from tests.servers.tinker_server import TinkerServer  # noqa: E402

WORDS = ("system", "user", "assistant", "generate", "select", "failed", *MENU)
FAST = Rules(rate=0.02)
ADVANTAGES = (1.0, -1.0, 0.5, 2.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    return write_chat_model(tmp_path_factory.mktemp("model"), WORDS, seed=5)


def opening(folder, **engine):
    spec = (
        {"engine": {"kind": "tinker", "tokenizer": "", "aggregate": "token_sum", **engine}}
        if engine
        else {}
    )
    return {
        "policy": str(folder),
        "menu": MENU,
        "seed": 3,
        "rank": 4,
        "most": 6,
        "head": True,
        **spec,
    }


def made(payload):
    return policy_maker(lambda role, slots: ("generate", "failed"))(payload)[0]


def replies(engine, count=4):
    """Replies of different lengths, so that a mean over tokens is not one over replies."""
    prompt = engine.encode("user generate assistant")
    return [engine.sample(prompt, seed, 2 + seed) for seed in range(count)]


def barrier(engine, rules=FAST):
    samples = replies(engine)
    data = [Datum(sample, advantage) for sample, advantage in zip(samples, ADVANTAGES, strict=True)]
    told = engine.forward_backward(data, rules)
    told |= engine.optim_step(rules)
    engine.publish()
    return samples, told


def weights(model):
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}


@pytest.mark.parametrize("aggregate", ["token_sum", "sequence_mean"])
def test_client_and_server_do_what_the_engine_in_this_process_does(folder, aggregate):
    here = made({**opening(folder), "engine": {"batch": 1}})
    rules = (
        FAST if aggregate == "token_sum" else Rules(rate=0.02, norm=1000.0)
    )  # SkyRL does not cut gradients
    with TinkerServer(load_model, aggregate) as server:
        there = made(opening(folder, url=server.url, aggregate=aggregate))
        for _ in range(3):
            (ours, told), (theirs, said) = barrier(here, rules), barrier(there, rules)
            assert [s.response for s in theirs] == [s.response for s in ours]
            assert len({len(s.response) for s in ours}) > 1
            for mine, other in zip(ours, theirs, strict=True):
                assert other.logprobs == pytest.approx(mine.logprobs, abs=1e-5)
                assert (other.text, other.ended, other.version) == (
                    mine.text,
                    mine.ended,
                    mine.version,
                )
            for name in ("loss", "grad_norm", "kl", "clip_low", "clip_high", "tokens"):
                assert said[name] == pytest.approx(told[name], abs=1e-4), name
            assert said["gap_max"] < 1e-5 and told["gap_max"] < 1e-5
            mine, other = weights(here.model), weights(server.trained()[0].model)
            assert mine.keys() == other.keys()
            assert max(float((mine[name] - other[name]).abs().max()) for name in mine) < 5e-5
        assert (
            there.capabilities.clip
            and there.capabilities.adapter
            and not there.capabilities.grammar
        )


def test_every_version_is_sampled_from_its_own_path_and_never_trained_as_another(folder):
    with TinkerServer(load_model) as server:
        engine = made(opening(folder, url=server.url))
        before = replies(engine, 2)
        barrier(engine)
        replies(engine, 2)
        assert len(dict.fromkeys(server.drawn)) == 2 and server.drawn == sorted(
            server.drawn, key=server.drawn.index
        )
        with pytest.raises(ValueError, match="version"):
            engine.forward_backward([Datum(before[0], 1.0)], FAST)


def test_a_checkpoint_continues_on_the_server_after_a_torn_update(folder, tmp_path):
    with TinkerServer(load_model) as server:
        engine = made(opening(folder, url=server.url))
        barrier(engine)
        engine.save(tmp_path / "one")
        expected = barrier(engine)
        other = made(opening(folder, url=server.url))  # another process
        other.load(tmp_path / "one")
        other.forward_backward(
            [Datum(sample, 1.0) for sample in replies(other)], FAST
        )  # then it breaks off
        other.load(tmp_path / "one")
        samples, told = barrier(other)
        assert (other.version, samples) == (2, expected[0])
        assert told == pytest.approx(expected[1], abs=1e-6)
        kept = json.loads((tmp_path / "one" / "remote.json").read_text())
        other.discard(tmp_path / "one")
        assert (
            server.deleted == [kept["state"], kept["sampler"]] and not (tmp_path / "one").exists()
        )


def test_an_adapter_comes_back_in_the_layout_of_peft(folder, tmp_path):
    import peft

    from culmen.extensions.train.models import load_tokenizer
    from culmen.extensions.train.torch_engine import TorchEngine

    with TinkerServer(load_model) as server:
        engine = made(opening(folder, url=server.url))
        barrier(engine)
        engine.export(tmp_path)
        loaded = peft.PeftModel.from_pretrained(load_model(str(folder)), tmp_path)
        fresh = TorchEngine(loaded, load_tokenizer(str(tmp_path)))
        assert [s.response for s in replies(fresh)] == [s.response for s in replies(engine)]


def test_a_server_with_bounds_of_its_own_is_found_out(folder):
    with TinkerServer(load_model, bounds=False) as server:
        assert not made(opening(folder, url=server.url)).capabilities.clip


def test_what_cannot_be_is_said_at_once(folder):
    with TinkerServer(load_model) as server:
        gone = server.url
        with pytest.raises(UserError, match="adapters only"):
            made({**opening(folder, url=server.url), "rank": 0})
        engine = made(opening(folder, url=server.url))
        with pytest.raises(ValueError, match="limited"):
            engine.sample((0,), 1, 1, (3, 4))
    with pytest.raises(Unavailable, match="the server does not answer"):
        made(opening(folder, url=gone))


def perform(craft, kind, nth=0, **payload):
    return asyncio.run(craft.perform(CustomRequest(kind, payload, nth))).data


def update(craft, version):
    asked = {"step": "generate", "slots": {}, "version": version}
    drawn = [perform(craft, "train.sample", n, **asked)["sample"] for n in range(4)]
    batch = [{"sample": s, "advantage": a} for s, a in zip(drawn, ADVANTAGES, strict=True)]
    return perform(
        craft,
        "train.update",
        version=version,
        batch=batch,
        rules={"rate": 0.02},
        plan={"step": version},
    )


def test_a_run_goes_on_in_another_process_and_cleans_up_after_itself(folder, tmp_path):
    make = policy_maker(lambda role, slots: ("generate", "failed"))
    with TinkerServer(load_model) as server:
        craft = TrainCraft(tmp_path, make)
        opened = perform(craft, "train.open", **opening(folder, url=server.url))
        assert opened == {"version": 0, "grammar": False, "entropy": False, "adapter": True}
        first = update(craft, 0)
        server.fail.append("optim_step")  # the gradient is there, the step is not
        with pytest.raises(Unavailable):
            update(craft, 1)
        second = update(TrainCraft(tmp_path, make), 1)
        assert second["version"] == 2 and second["gap_max"] < 1e-5
        assert update(TrainCraft(tmp_path, make), 1) == second  # found, not made again
        assert first["version"] == 1
        last = TrainCraft(tmp_path, make)
        for version in range(2, 6):
            update(last, version)
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
            "00000",
            "00004",
            "00005",
            "00006",
        ]
        assert len(server.deleted) == 6  # states and samplers of versions 1 to 3
