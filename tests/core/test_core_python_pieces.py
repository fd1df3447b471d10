"""Programs in pieces: a text is Python if and only if Python parses the whole of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from culmen.core.foreign import parses, split_pieces

TEXTS = {
    "definitions": "x = 1\n\ndef f():\n    return x\n\n@cache\nclass A:\n    y = 2\n",
    "a line in a string": 'TEXT = """\ndef f():\n    broken(\n"""\n',
    "an else after a definition": "if x:\n    pass\nelse:\n    pass\ndef f(): pass\nelse: pass\n",
    "an open bracket": "x = (\ndef f():\n    pass\n",
    "a continued line": "x = \\\ndef f():\n    pass\n",
    "other line ends": "x = 1\r\ndef f():\r\n    return x\r\n",
    "a try around a definition": "try:\n    import a\nexcept ImportError:\n    pass\ndef f(): pass\n",
    "nothing": "",
    "no Python": "def f(:\n    pass\n",
    "async": "async def f():\n    await g()\n",
}


def is_parsed_whole(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_in_pieces_is_python_where_the_whole_is(name: str) -> None:
    text = TEXTS[name]
    assert parses(text) is is_parsed_whole(text)
    assert "".join(split_pieces(text)) == (text if parses(text) else "")


def test_every_cut_of_a_real_module() -> None:
    text = Path(ast.__file__).read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)[:400]
    for end in range(0, len(lines), 7):
        part = "".join(lines[:end])
        assert parses(part) is is_parsed_whole(part), end


def test_a_definition_is_a_piece() -> None:
    assert split_pieces(TEXTS["definitions"]) == (
        "x = 1\n\n",
        "def f():\n    return x\n\n",
        "@cache\nclass A:\n    y = 2\n",
    )
