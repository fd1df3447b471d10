"""Replies of a policy: prompts that fit its context, progress, requests returned together."""

from __future__ import annotations

import asyncio
import json

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'train' is not installed")

from culmen.core.errors import UserError  # noqa: E402
from culmen.core.event import CustomRequest  # noqa: E402
from culmen.extensions.train.advisors import policy_maker  # noqa: E402
from culmen.extensions.train.craft import SamplingNote, TrainCraft, fitted_prompt  # noqa: E402
from culmen.extensions.train.engine import ReplyRequest  # noqa: E402
from culmen.extensions.train.models import WordTokenizer, tiny_model  # noqa: E402
from culmen.extensions.train.torch_engine import TorchEngine  # noqa: E402
from culmen.store.sidecar import SAMPLING, sampling_line, sampling_time  # noqa: E402
from culmen.strategies.pacevolve.advisor import MENU  # noqa: E402
from tests.extensions.train.policies import write_chat_model  # noqa: E402

TOKENIZER = WordTokenizer(list(MENU))
SHORT, LONG = (0, 5, 6), tuple(3 + n % 10 for n in range(40))


def engine() -> TorchEngine:
    return TorchEngine(tiny_model(len(TOKENIZER), 3), TOKENIZER)


def silent(done, tokens):
    pass


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


def test_progress_counts_replies_and_tokens():
    told, asked = (
        [],
        [ReplyRequest(prompt, n, 12) for n, prompt in enumerate((SHORT, LONG, LONG[:7]))],
    )
    replies = engine().sample_many(asked, lambda done, tokens: told.append((done, tokens)))
    assert [done for done, _ in told] == [1, 2, 3]
    assert told[-1][1] == sum(len(reply.response) for reply in replies)


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
            CustomRequest(
                "train.open", {"policy": "tiny", "menu": MENU, "seed": 3, "rank": 0, "most": 8}, 0
            )
        )
        asked = [
            CustomRequest("train.sample", {"step": "generate", "slots": slots, "version": 0}, n)
            for n in range(5)
        ]
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
        assert sampling_line(
            tmp_path
        ) == "advisor: 0 of 40 replies, 0 tokens, 0/s" and sampling_time(tmp_path)
        (tmp_path / SAMPLING).write_text(json.dumps([14, 40, 3120, 210.2]))
        assert sampling_line(tmp_path) == "advisor: 14 of 40 replies, 3,120 tokens, 210/s"
    assert not sampling_line(tmp_path) and not sampling_time(tmp_path)


def test_a_reply_to_a_prompt_that_was_cut_says_so(tmp_path):
    """A craft's report on a reply to a prompt that was too long, and on one to a short one."""
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
    assert (
        opened["context"] == 256
        and drawn["cut"] is True
        and len(drawn["sample"]["prompt"]) + 8 <= 256
    )
    render = ("You are brief.", "word")
    assert "cut" not in asyncio.run(reply(9))[1]
