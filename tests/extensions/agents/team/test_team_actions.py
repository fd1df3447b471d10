"""The requests in a model's reply, and the parts that a long conversation keeps."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.extensions.agents.team.builtin import TOOLS, Action, ModelConversation, read_actions


def block(text, tag="json", marks="```"):
    return f"{marks}{tag}\n{text}\n{marks}\n"


def test_one_action_among_thoughts():
    actions, complaint = read_actions(
        "<think>{}</think>I look first.\n" + block('{"tool": "read", "path": "TASK.md"}')
    )
    assert actions == [Action("read", {"path": "TASK.md"})] and complaint == ""


def test_several_in_order_with_texts_in_the_blocks_after_them():
    reply = (
        "Two ideas.\n"
        + block('{"tool": "write", "path": "candidates/a00/one.py"}')
        + block("def run():\n    return '```'", "python", "~~~~")
        + block(
            '{"tool": "append", "path": "reflections.md", "text": "it helps\n"}'
        )  # a line break inside the text
        + block('{"tool": "evaluate", "files": "candidates/a00/one.py", "note": "x"}', "action")
    )
    actions, complaint = read_actions(reply)
    assert complaint == ""
    assert [action.tool for action in actions] == ["write", "append", "evaluate"]
    assert actions[0].arguments["text"] == "def run():\n    return '```'\n"
    assert actions[1].arguments["text"] == "it helps\n"
    assert actions[2].arguments["files"] == ["candidates/a00/one.py"]


def test_forms_that_models_use():
    assert read_actions('{"tool": "list", "path": "a"}')[0] == [Action("list", {"path": "a"})]
    assert read_actions(block('{"tool": "list", "arguments": {"path": "notes"}}', ""))[0] == [
        Action("list", {"path": "notes"})
    ]
    assert read_actions('```json\n{"tool": "finish", "word": "done"}')[0] == [
        Action("finish", {"word": "done"})
    ]


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ("", "no action"),
        ("I am done.", "no action"),
        (block('{"tool": "read", "path": }'), "not valid JSON"),
        (block('["tool"]', "action"), 'the key "tool"'),
        (block('{"tool": "browse", "url": "x"}'), "no tool 'browse'"),
        (block('{"tool": "edit", "path": "x", "old": "a"}'), "edit needs new"),
        (block('{"tool": "write", "path": "x"}'), "write needs text"),
        (block('{"tool": "evaluate", "files": [1]}'), "files cannot be"),
        (block('{"tool": "read", "path": "x", "limit": -1}'), "limit cannot be"),
        (block('{"tool": "read", "path": "x", "limit": true}'), "limit cannot be"),
        (block('{"tool": "read", "path": {}}'), "path cannot be"),
        (block("print('tools')", "python"), "no action"),
        (block('{"a": 1}'), "no action"),
    ],
)
def test_complaints(reply, complaint):
    actions, said = read_actions(reply)
    assert actions == [] and complaint in said


def test_what_stands_before_a_broken_action_is_done():
    actions, complaint = read_actions(
        block('{"tool": "list"}') + block('{"tool": "rm"}') + block('{"tool": "read"}')
    )
    assert [action.tool for action in actions] == ["list"] and "no tool 'rm'" in complaint


def test_no_more_than_a_few_at_once():
    assert len(read_actions(block('{"tool": "list"}') * 40)[0]) == 16


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
arguments = st.dictionaries(
    st.sampled_from(["path", "text", "files", "limit", "arguments"]), json_values
)
tools = st.sampled_from(sorted(TOOLS)) | st.text()


@given(
    st.text()
    | st.builds(lambda tool, given: block(json.dumps({"tool": tool, **given})), tools, arguments)
)
def test_no_reply_raises(reply):
    actions, complaint = read_actions(reply)
    assert actions or complaint
    assert all(action.tool in TOOLS for action in actions)


def filled(room, turns, size=1000):
    talk = ModelConversation("system", "task", room)
    for number in range(turns):
        talk.add_reply(f"reply {number} " + "r" * size)
        talk.add_results(f"answer {number} " + "a" * size)
    return talk


def length(talk):
    return sum(len(message["content"]) for message in talk.messages)


def test_a_short_conversation_is_kept_whole():
    talk = filled(100_000, 4)
    assert [message["role"] for message in talk.messages] == [
        "system",
        "user",
        *["assistant", "user"] * 4,
    ]
    assert not talk.is_full and length(talk) > 8000


def test_what_is_old_is_left_out_first():
    talk = filled(12_000, 10)
    messages = talk.messages
    assert length(talk) <= 12_000 and not talk.is_full
    assert messages[1]["content"] == "task" and messages[-1]["content"].startswith("answer 9")
    assert len(messages[-1]["content"]) > 1000 and len(messages[2]["content"]) < 300
    assert "characters left out" in messages[3]["content"]


def test_a_conversation_that_is_too_long_all_the_same_is_summed_up():
    talk = filled(8_000, 40, 900)
    assert talk.is_full
    asked = talk.messages_with_request("sum up")
    assert asked[-1]["role"] == "user" and asked[-1]["content"].endswith("sum up")
    talk.replace_by_summary("I tried spirals.")
    assert not talk.is_full and length(talk) < 6_000
    assert "spirals" in talk.messages[-1]["content"] and "answer 39" in talk.messages[-1]["content"]
    roles = [message["role"] for message in talk.messages]
    assert all(first != second for first, second in pairwise(roles[1:]))


def test_one_huge_answer_cannot_fill_it():
    talk = ModelConversation("system", "t" * 100_000, 8_000)
    talk.add_reply("x" * 100_000)
    talk.add_results("y" * 100_000)
    assert length(talk) < 9_000
    talk.replace_by_summary("s" * 100_000)
    assert not talk.is_full
