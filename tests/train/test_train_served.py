"""Sampling by a server that is given one adapter for each version: no reply of one version passes for another's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'train' is not installed")
pytest.importorskip("peft", reason="the extra 'train' is not installed")

from culmen.core.errors import Unavailable, UserError  # noqa: E402
from culmen.strategies.pacevolve.advisor import MENU  # noqa: E402
from culmen.train.advisors import policy_maker  # noqa: E402
from culmen.train.engine import Datum, Rules  # noqa: E402
from culmen.train.models import load_model, load_tokenizer  # noqa: E402
from tests.servers.lora_server import LoraServer  # noqa: E402
from tests.train.policies import write_chat_model  # noqa: E402

WORDS = ("system", "user", "assistant", "generate", "select", "failed", *MENU)
FAST = Rules(rate=0.02)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    torch.set_num_threads(1)
    return write_chat_model(tmp_path_factory.mktemp("model"), WORDS, seed=5)


@pytest.fixture
def server(base):
    with LoraServer(lambda: load_model(str(base)), load_tokenizer(str(base))) as served:
        yield served


def opening(base, **engine):
    common = {"policy": str(base), "menu": MENU, "seed": 3, "rank": 4, "most": 6}
    return common | ({"engine": engine} if engine else {})


def made(payload, folder=None):
    return policy_maker(lambda role, slots: ("generate", "failed"), folder)(payload)[0]


def barrier(engine):
    prompt = engine.encode("user generate assistant")
    samples = [engine.sample(prompt, seed, 2 + seed) for seed in range(3)]
    told = engine.forward_backward([Datum(s, a) for s, a in zip(samples, (1.0, -1.0, 0.5), strict=True)], FAST)
    told |= engine.optim_step(FAST)
    engine.publish()
    return samples, told


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_hot_swap_never_mixes_versions(base, server, tmp_path, kind):
    here, there = made(opening(base, batch=1)), made(opening(base, kind=kind, url=server.url), tmp_path)
    for version in range(3):
        (ours, told), (theirs, said) = barrier(here), barrier(there)
        assert [(s.response, s.text, s.ended) for s in theirs] == [(s.response, s.text, s.ended) for s in ours]
        assert {s.version for s in theirs} == {version}
        assert said["gap_max"] < 1e-5  # drawn by these weights and by no others
        assert said["grad_norm"] == pytest.approx(told["grad_norm"], rel=1e-3)
        with pytest.raises(ValueError, match="version"):
            there.forward_backward([Datum(theirs[0], 1.0)], FAST)
    assert server.loaded[:3] == list(dict.fromkeys(server.drawn)) and len(set(server.loaded)) == 4
    assert server.unloaded == server.loaded[:-1]  # a name is let go of once the next one is there
    assert [path.name for path in (tmp_path / "served").iterdir()] == server.loaded[-1:]


def test_the_same_weights_have_the_same_name_after_a_restart(base, server, tmp_path):
    engine = made(opening(base, kind="vllm", url=server.url), tmp_path)
    barrier(engine)
    engine.save(tmp_path / "kept")
    again = made(opening(base, kind="vllm", url=server.url), tmp_path)
    again.load(tmp_path / "kept")
    samples, _ = barrier(again)
    assert {s.version for s in samples} == {1} and server.drawn[-1] == server.loaded[1]


def test_replies_can_be_limited_by_vllm(base, server, tmp_path):
    engine = made(opening(base, kind="vllm", url=server.url), tmp_path)
    sample = engine.sample(engine.encode("user"), 1, 3, (5, 6))
    assert set(sample.response) <= {5, 6} and engine.logprobs(sample) == pytest.approx(sample.logprobs, abs=1e-5)
    assert not made(opening(base, kind="sglang", url=server.url), tmp_path).capabilities.grammar


def test_replies_that_cannot_be_trained_on_are_refused(base, server, tmp_path):
    engine = made(opening(base, kind="vllm", url=server.url), tmp_path)
    prompt = engine.encode("user")
    server.wrong = "the-base-model"
    with pytest.raises(UserError, match="answered as the-base-model"):
        engine.sample(prompt, 1, 3)
    server.wrong, server.ids = None, False
    with pytest.raises(UserError, match="no token ids"):
        engine.sample(prompt, 1, 3)
    with pytest.raises(UserError, match="takes adapters only"):
        made({**opening(base, kind="vllm", url=server.url), "rank": 0}, tmp_path)
    gone = made(opening(base, kind="sglang", url="http://127.0.0.1:9"), tmp_path)
    with pytest.raises(Unavailable, match="does not answer"):
        gone.sample(prompt, 1, 3)
