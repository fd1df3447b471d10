"""Replies drawn side by side: each is what it would be alone, but for rounding; the tiny policy draws one at a time."""

from __future__ import annotations

import asyncio
import json

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'train' is not installed")

from culmen.core.errors import UserError  # noqa: E402
from culmen.core.event import CustomRequest  # noqa: E402
from culmen.store.sidecar import SAMPLING, SamplingNote, sampling_line, sampling_time  # noqa: E402
from culmen.strategies.pacevolve.advisor import MENU  # noqa: E402
from culmen.train import batches  # noqa: E402
from culmen.train.advisors import policy_maker  # noqa: E402
from culmen.train.craft import TrainCraft, fitted_prompt  # noqa: E402
from culmen.train.engine import ReplyRequest  # noqa: E402
from culmen.train.models import WordTokenizer, tiny_model  # noqa: E402
from culmen.train.torch_engine import TorchEngine  # noqa: E402
from tests.train.policies import write_chat_model  # noqa: E402

TOKENIZER = WordTokenizer(list(MENU))
SHORT, LONG = (0, 5, 6), tuple(3 + n % 10 for n in range(40))


def engine(batch: int = 8, model=None) -> TorchEngine:
    return TorchEngine(model or tiny_model(len(TOKENIZER), 3), TOKENIZER, batch=batch)


def silent(done, tokens):
    pass


ASKED = {
    "padded": [
        ReplyRequest(SHORT, 1, 12),
        ReplyRequest(LONG, 2, 12),
        ReplyRequest(LONG[:7], 3, 5),
        ReplyRequest((0,), 4, 12),
    ],
    "begin alike": [ReplyRequest((*LONG, *tail), n, 12) for n, tail in enumerate([(4,), (5, 6, 7), (8, 8), (4,)])],
    "the same": [ReplyRequest(LONG, n, 9) for n in range(5)],
    "limited": [ReplyRequest(SHORT, 1, 12, (14, 15, 16)), ReplyRequest(LONG, 2, 12), ReplyRequest(SHORT, 3, 2, (15,))],
}


@pytest.mark.parametrize("name", ASKED)
def test_each_reply_is_what_it_would_be_alone(name):
    asked, one = ASKED[name], engine()
    together = one.sample_many(asked, silent)
    for ask, sample in zip(asked, together, strict=True):
        alone = one.sample(*ask)
        assert (sample.response, sample.ended, sample.text) == (alone.response, alone.ended, alone.text)
        assert sample.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
        assert one.logprobs(sample) == pytest.approx(sample.logprobs, abs=1e-5)
        assert len(sample.response) <= ask.max_tokens and (not ask.among or set(sample.response) <= set(ask.among))
        assert TOKENIZER.eos_token_id not in sample.response[:-1]
    assert len({len(sample.response) for sample in together}) > 1 or name == "the same"  # rows close by themselves


@pytest.mark.parametrize("words", [240, 245, 1000, 20_000])
def test_a_prompt_beyond_the_context_loses_its_middle_and_leaves_room_for_the_reply(words):
    one = engine()
    context, most = one.capabilities.context, 12
    assert context == 256
    text = " ".join(["begin", *("word" for _ in range(words)), "end"])
    tokens = fitted_prompt(one, text, most)
    whole = one.encode(text)
    assert len(tokens) + most <= context
    if len(whole) + most <= context:
        assert tokens == whole
    else:
        assert tokens[:20] == whole[:20] and tokens[-40:] == whole[-40:] and len(tokens) > 150
    (sample,) = one.sample_many([ReplyRequest(tokens, 1, most)], silent)
    assert one.logprobs(sample) == pytest.approx(sample.logprobs, abs=1e-5)
    with pytest.raises(UserError, match="leave no room"):
        fitted_prompt(one, text * 3, 250)


def test_what_is_drawn_follows_the_models_distribution():
    one = engine(512)
    drawn = [s.response[0] for s in one.sample_many([ReplyRequest(SHORT, n, 1) for n in range(4000)], silent)]
    with torch.no_grad():
        expected = one.model(torch.tensor([SHORT])).logits[0, -1].softmax(-1)
    counts = torch.bincount(torch.tensor(drawn), minlength=len(TOKENIZER))
    assert float(((counts - 4000 * expected) ** 2 / (4000 * expected)).sum()) < 2.5 * len(TOKENIZER)  # chi squared


def test_a_batch_of_one_is_one_at_a_time_bit_for_bit():
    asked = ASKED["padded"]
    assert engine(1).sample_many(asked, silent) == [engine(1).sample(*ask) for ask in asked]
    tiny = policy_maker(lambda role, slots: ("", ""))(
        {"policy": "tiny", "menu": MENU, "seed": 3, "rank": 0, "most": 8}
    )[0]
    assert tiny.sample_many(asked, silent) == [engine(1).sample(*ask) for ask in asked]


def test_more_requests_than_fit_are_drawn_in_parts_and_counted():
    told, asked = [], ASKED["padded"]
    replies = engine(3).sample_many(asked, lambda done, tokens: told.append((done, tokens)))
    assert [r.response for r in replies] == [r.response for r in engine().sample_many(asked, silent)]
    assert told == sorted(told) and told[-1] == (4, sum(len(r.response) for r in replies))


def small(kind: str, **more):
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(TOKENIZER), hidden_size=32, num_hidden_layers=2, bos_token_id=0, eos_token_id=1, **more
    )
    torch.manual_seed(0)
    return getattr(transformers, f"{kind}ForCausalLM")(config)


ATTENTION = {"intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}


@pytest.mark.parametrize("name", ["padded", "begin alike"])
def test_a_window_of_attention_is_not_shifted_by_padding(name):
    one = engine(model=small("Mistral", sliding_window=8, **ATTENTION))
    for ask, sample in zip(ASKED[name], one.sample_many(ASKED[name], silent), strict=True):
        assert one.logprobs(sample) == pytest.approx(sample.logprobs, abs=1e-5), ask


def test_a_model_with_a_running_state_draws_one_at_a_time():
    model = small("Mamba", state_size=4)
    assert not batches.can_batch(model) and batches.can_batch(tiny_model(len(TOKENIZER), 3))


def test_replies_asked_for_at_the_same_time_are_drawn_and_given_together(tmp_path):
    made, sizes = policy_maker(lambda role, slots: ("", "")), []

    def make(payload):
        engine, persona = made(payload)
        draw = engine.sample_many
        engine.sample_many = lambda asked, told: sizes.append(len(asked)) or draw(asked, told)
        return engine, persona

    craft, slots = TrainCraft(tmp_path, make), {"count": 2, "options": []}

    async def run():
        await craft.perform(
            CustomRequest("train.open", {"policy": "tiny", "menu": MENU, "seed": 3, "rank": 0, "most": 8}, 0)
        )
        asked = [CustomRequest("train.sample", {"step": "generate", "slots": slots, "version": 0}, n) for n in range(5)]
        together = await asyncio.gather(*(craft.perform(one) for one in asked))
        alone = [await craft.perform(one) for one in asked]
        await craft.close()
        return together, alone

    together, alone = asyncio.run(run())
    assert together == alone and sizes == [5, 1, 1, 1, 1, 1]
    assert not sampling_line(tmp_path.parent) and not (tmp_path / SAMPLING.name).exists()


def test_how_far_the_replies_are_is_told_while_they_are_drawn(tmp_path):
    (tmp_path / "policy").mkdir()
    with SamplingNote(tmp_path / "policy", 40):
        assert sampling_line(tmp_path) == "advisor: 0 of 40 replies, 0 tokens, 0/s" and sampling_time(tmp_path)
        (tmp_path / SAMPLING).write_text(json.dumps([14, 40, 3120, 210.2]))
        assert sampling_line(tmp_path) == "advisor: 14 of 40 replies, 3,120 tokens, 210/s"
    assert not sampling_line(tmp_path) and not sampling_time(tmp_path)


def test_a_reply_to_a_prompt_that_was_cut_says_so(tmp_path):
    """What a craft says of a reply to a prompt that was too long, and a reply to one that was not."""
    render = ("You are brief.", "word " * 400)

    async def reply(most):
        made = policy_maker(lambda role, slots: render)
        craft = TrainCraft(tmp_path / str(most), made)
        payload = {"policy": str(folder), "menu": {}, "seed": 3, "rank": 0, "most": most}
        opened = (await craft.perform(CustomRequest("train.open", payload, 0))).data
        asked = CustomRequest("train.sample", {"step": "generate", "slots": {}, "version": 0}, 1)
        return opened, (await craft.perform(asked)).data

    folder = write_chat_model(tmp_path / "model", ["word", "brief"])
    opened, drawn = asyncio.run(reply(8))
    assert opened["context"] == 256 and drawn["cut"] is True and len(drawn["sample"]["prompt"]) + 8 <= 256
    render = ("You are brief.", "word")
    assert "cut" not in asyncio.run(reply(9))[1]
