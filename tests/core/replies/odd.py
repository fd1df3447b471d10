"""Odd replies of models, what each is read as, and why: the table of docs/replies.md.

`python -m tests.core.replies.odd --write` writes the table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

from culmen.core.task import Evaluator, Surface, Task

PAGE = Path(__file__).parents[3] / "docs" / "replies.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"

OLD = "def run(n):\n    return [1 / n] * n\n"
NEW = "def run(n):\n    return [2 / n] * n\n"
DRAFT = "def run(n):\n    total = 3\n    return [total / n] * n\n"
CLERK = "You are a clerk.\n\nAnswer in one word.\n"
ASKED = "You are a clerk.\n\nAnswer in one word, in capitals.\n"
WORD, CAPITALS = "Answer in one word.", "Answer in one word, in capitals."
FENCED = "You are a clerk.\n\n```\nDEBIT\n```\n\nAnswer like that.\n"
A, UTIL = "def f(b):\n    return x\n", "def g(b):\n    return x\n\n\ndef h():\n    return 1\n"
UTIL2 = UTIL.replace("    return x", "    return 2 * x")
MARKED = (
    '"""Only the text between EVOLVE-BLOCK-START and EVOLVE-BLOCK-END may change."""\n'
    "# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\nprint(x)\n"
)
DIFFED = "Edits look so:\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\nQuote exactly.\n"
HELPED = "def half(n):\n    return n / 2\n\n\ndef run(n):\n    return [half(n)] * 2\n"
INNER = "def run(n):\n    # EVOLVE-BLOCK-START\n    x = n\n    # EVOLVE-BLOCK-END\n    return x\n"
TWO = "def run(n):\n    a = 1\n    b = 1\n    return [a / n] * n\n"
HEADED = "Rules\n=====\n\nBe kind.\n"


def _task(parts: dict[str, str], language: str = "python", **surface: object) -> Task:
    evaluator = Evaluator(form="call", entry="run" if "main.py" in parts else "f")
    made = Surface(language=language, **surface)  # pyright: ignore[reportArgumentType]
    return Task("odd", seeds=(parts,), evaluator=evaluator, surface=made)


TASKS = {
    "program": _task({"main.py": OLD}),
    "prompt": _task({"prompt.md": CLERK}, "text"),
    "files": _task(
        {"src/a.py": A, "src/util.py": UTIL, "fixed.py": "F = 0\n"}, frozen=("fixed.py",)
    ),
    "crlf": _task({"main.py": OLD.replace("\n", "\r\n")}),
    "marked": _task({"main.py": MARKED}, markers="enforced"),
    "edits": _task({"prompt.md": DIFFED}, "text"),
    "two": _task({"main.py": TWO}),
    "headed": _task({"prompt.md": HEADED}, "text"),
    "empty": _task({"prompt.md": ""}, "text"),
    "cpp": _task({"main.cpp": "int run(int n) {\n    return n;\n}\n"}, "cpp"),
    "helped": _task({"main.py": HELPED}),
    "skill": _task({"SKILL.md": "---\nname: pdf\n---\n\n# PDF\n\nRead it.\n"}, "text"),
    "inner": _task({"main.py": INNER}, markers="enforced"),
}


class Odd(NamedTuple):
    """One reply: `read` is the changed parts' texts, or the name of a fault."""

    kind: str
    what: str
    reply: str
    read: dict[str, str] | str
    why: str
    task: str = "program"
    form: str = "rewrite"
    finish: str = "stop"

    @property
    def done(self) -> str:
        """The outcome in words."""
        return f"`{self.read}`" if isinstance(self.read, str) else "read"


def fence(text: str, info: str = "", marks: str = "```") -> str:
    return f"{marks}{info}\n{text}{marks}\n"


def edit(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def indent(text: str, by: str = "   ") -> str:
    return "".join(f"{by}{line}\n" if line else "\n" for line in text.rstrip("\n").split("\n"))


GOOD = {"main.py": NEW}
LINE, BETTER = "    return [1 / n] * n", "    return [2 / n] * n"
FIT = edit(LINE, BETTER)
P = {"prompt.md": ASKED}
USE = "\nTry it:\n\n```bash\npython main.py\n```\n"
DIFF = "--- a/main.py\n+++ b/main.py\n@@ -1,2 +1,2 @@\n def run(n):\n-    return [1 / n] * n\n+    return [2 / n] * n\n"

THOUGHTS = "Thoughts"
WHOLE = "Whole texts"
NESTED = "Fences inside texts"
CUT = "Answers that broke off"
EDITS = "Edits"
FILES = "Files of edits"
DIFFS = "Unified diffs"
NAMES = "Names of parts"
JSON = "JSON"
MARKERS = "EVOLVE-BLOCK markers"

_THOUGHTS = [
    (
        "a pair of tags before the answer",
        f"<think>{fence(DRAFT)}</think>\n{fence(NEW)}",
        GOOD,
        "thoughts are left out",
    ),
    (
        "a closing tag alone, after a draft",
        f"Draft:\n{fence(DRAFT)}Too slow.\n</think>\n{fence(NEW)}",
        GOOD,
        "the chat's template opened the thought",
    ),
    (
        "a closing tag alone, after a rejected edit",
        f"{edit(LINE, '    return []')}No.\n</think>\n{FIT}",
        GOOD,
        "an edit in a thought is none",
    ),
    (
        "a draft whose fence is open when the thought ends",
        f"Let me see\n```python\nx = 3\n</think>\n{fence(NEW, 'python')}",
        GOOD,
        "the tag stands alone on its line",
    ),
    (
        "two thoughts, one after the other",
        f"<think>a</think>\n<think>b</think>\n{fence(NEW)}",
        GOOD,
        "the last closing tag counts",
    ),
    (
        "an answer on the line of the closing tag",
        f"so be it</think>{fence(NEW, 'python')}",
        GOOD,
        "the answer begins behind the tag",
    ),
    (
        "`[THINK]` and `[/THINK]`",
        f"[THINK]{fence(DRAFT)}[/THINK]\n{fence(NEW)}",
        GOOD,
        "another family's tags",
    ),
    ("`◁think▷`", f"◁think▷{fence(DRAFT)}◁/think▷\n{fence(NEW)}", GOOD, "another family's tags"),
    (
        "`<|channel|>final<|message|>`",
        f"<|channel|>analysis<|message|>{fence(DRAFT)}<|channel|>final<|message|>{fence(NEW)}",
        GOOD,
        "another family's tags",
    ),
    (
        "`</reasoning>` alone",
        f"{fence(DRAFT)}</reasoning>\n{fence(NEW)}",
        GOOD,
        "another word for it",
    ),
    (
        "a thought that never ends",
        f"<think>I would\n{fence(DRAFT)}and then",
        "unparsable",
        "all of it is thought",
    ),
    (
        "a text, a thought, and another text",
        f"{fence(DRAFT)}<think>better:</think>\n{fence(NEW)}",
        "ambiguous",
        "either may be meant",
    ),
    (
        "a thought after the answer that is cut",
        f"{fence(NEW, 'python main.py')}<think>Is it",
        GOOD,
        "the answer stands before it",
    ),
    (
        'a program with `"</think>"` in it',
        fence(NEW + "END = '</think>'\n", "python main.py"),
        {"main.py": NEW + "END = '</think>'\n"},
        "a tag inside a text is text",
    ),
    (
        "JSON with `</think>` in a text",
        json.dumps({"parts": {"main.py": NEW + "# use </think> here\n"}}),
        {"main.py": NEW + "# use </think> here\n"},
        "a tag inside a JSON object is text",
    ),
]
_THOUGHTS_PROMPT = [
    (
        "a prompt that shows a pair of tags",
        fence("Think first:\n<think>\nyour thoughts\n</think>\nThen answer.\n", "prompt.md"),
        {"prompt.md": "Think first:\n<think>\nyour thoughts\n</think>\nThen answer.\n"},
        "the pair stands inside the fence",
    ),
    (
        "a prompt with `<think>` in a sentence",
        fence("Put thoughts in <think> and </think>.\n", "prompt.md"),
        {"prompt.md": "Put thoughts in <think> and </think>.\n"},
        "the pair stands inside the fence",
    ),
]
_WHOLE = [
    (
        "one block with its language",
        f"Twice.\n\n{fence(NEW, 'python')}",
        GOOD,
        "only one block can be the lone part",
    ),
    ("one block without language", fence(NEW), GOOD, "it is a whole program"),
    ("tildes", fence(NEW, "python", "~~~"), GOOD, "a fence of CommonMark"),
    ("no fence, the program alone", NEW, GOOD, "the reply is a whole program"),
    (
        "commands before and use after",
        "First:\n```bash\npip install x\n```\n"
        + fence(NEW, "python")
        + "Use:\n```python\nrun(1)\n```\n",
        GOOD,
        "one block defines what is called",
    ),
    (
        "a rejected, longer draft before the final text",
        f"First:\n{fence(DRAFT, 'python')}Too slow. Better:\n{fence(NEW, 'python')}",
        "ambiguous",
        "no block says which is meant",
    ),
    (
        "the old program beside the new one",
        f"Old:\n{fence(OLD, 'python')}New:\n{fence(NEW, 'python')}",
        GOOD,
        "one of them is the parent",
    ),
    ("the same block twice", fence(NEW, "python") * 2, GOOD, "both say the same"),
    (
        "two named blocks that differ",
        fence(DRAFT, "python main.py") + fence(NEW, "python main.py"),
        "ambiguous",
        "no block says which is meant",
    ),
    (
        "a draft without a name, the final text with it",
        f"{fence(DRAFT, 'python')}Now:\n{fence(NEW, 'python main.py')}",
        GOOD,
        "the name says which is meant",
    ),
    (
        "only a command",
        fence("pip install numpy\n", "bash"),
        "unparsable",
        "it is not the part's language",
    ),
    (
        "the output of a run in a bare fence",
        fence("score 3 of 4\nall good\n"),
        "unparsable",
        "it is no Python",
    ),
    (
        "a fragment of the program",
        fence("    for i in range(n):\n        pass\n", "python"),
        "unparsable",
        "it is no whole program",
    ),
    (
        "another function than the one that is called",
        fence("def help(n):\n    return n\n", "python"),
        "unparsable",
        "`run` would be gone",
    ),
    (
        "`# ... rest unchanged ...` in a named block",
        fence("# ... existing code ...\n" + NEW, "python main.py"),
        "elided",
        "a part of the text is missing",
    ),
    (
        "`# rest of the code remains the same`",
        fence(NEW + "# rest of the code remains the same\n", "python main.py"),
        "elided",
        "a part of the text is missing",
    ),
    (
        "CRLF in the reply",
        fence(NEW, "python").replace("\n", "\r\n"),
        GOOD,
        "line ends are the parent's",
    ),
    (
        "a block indented in a list",
        f"1. Change it:\n\n{indent(fence(NEW, 'python'))}",
        GOOD,
        "the list's indentation is not the text's",
    ),
    (
        "a block that opens on the line of the bullet",
        f"- ```python\n{indent(NEW, '  ')}  ```\n",
        GOOD,
        "the list's indentation is not the text's",
    ),
    (
        "fences indented, the text not",
        f"1. So:\n   ```python\n{NEW}   ```\n",
        GOOD,
        "no line has the fence's indentation",
    ),
    (
        "a deeper list",
        f"- a\n  - b\n\n{indent(fence(NEW, 'python'), '      ')}",
        GOOD,
        "the list's indentation is not the text's",
    ),
    (
        "`=== main.py ===` and no fence",
        f"=== main.py ===\n{NEW}",
        GOOD,
        "the reply is a name and a whole program",
    ),
    (
        "`# filename: main.py` as first line",
        fence(f"# filename: main.py\n{NEW}", "python"),
        GOOD,
        "the line is a name, not text",
    ),
    (
        "numbers before the lines",
        fence("1 | def run(n):\n2 |     return [2 / n] * n\n", "python main.py"),
        "ambiguous",
        "the numbers would become text",
    ),
    (
        "HTML entities in code",
        fence(NEW.replace("n):", "n):\n    if n &lt; 3: return [0]"), "python main.py"),
        "ambiguous",
        "the entities would become text",
    ),
    (
        "a comment `(unchanged)` for the lines",
        fence("def run(n):\n    # (unchanged)\n    return [2]\n", "python main.py"),
        "elided",
        "a part of the text is missing",
    ),
    (
        "a body of `...`",
        fence("def run(n):\n    ...\n", "python main.py"),
        "elided",
        "a part of the text is missing",
    ),
    ("`...` alone", fence("...\n", "python main.py"), "elided", "it stands for another text"),
    (
        "JSON with `parts` that was not asked for",
        fence(json.dumps({"parts": {"main.py": NEW}}) + "\n", "json"),
        GOOD,
        "it is plain what is meant",
    ),
    ("prose alone", "The best packing is hexagonal.", "unparsable", "there is no text"),
    ("an apology", "I'm sorry, but I can't help with that.", "refused", "it is a refusal"),
    ("an empty block", fence("\n", "python main.py"), "empty", "there is no text"),
    (
        "`<answer>` around the block",
        f"<answer>\n{fence(NEW, 'python')}</answer>",
        GOOD,
        "tags around a fence are prose",
    ),
    (
        "a token of the template at the end",
        f"{fence(NEW, 'python')}<|im_end|>",
        GOOD,
        "it is no text",
    ),
]
_NESTED = [
    (
        "a bare fence inside a named text",
        fence(FENCED, "prompt.md"),
        {"prompt.md": FENCED},
        "a lone named part ends at the last bare fence",
    ),
    (
        "the same, and words after it",
        f"{fence(FENCED, 'prompt.md')}\nIt is clearer.",
        {"prompt.md": FENCED},
        "a lone named part ends at the last bare fence",
    ),
    (
        "a fence with a language inside",
        fence(FENCED.replace("```\nD", "```json\nD"), "prompt.md"),
        {"prompt.md": FENCED.replace("```\nD", "```json\nD")},
        "a bare fence closes the inner one first",
    ),
    (
        "a fence of four around",
        fence(FENCED, "prompt.md", "````"),
        {"prompt.md": FENCED},
        "as it is asked for",
    ),
    (
        "tildes around",
        fence(FENCED, "prompt.md", "~~~"),
        {"prompt.md": FENCED},
        "another sign does not close it",
    ),
    (
        "a `markdown` block without a name",
        fence(FENCED, "markdown"),
        {"prompt.md": FENCED},
        "a document may hold fences",
    ),
    ("no name, a bare fence inside", fence(FENCED), "ambiguous", "it may be two blocks"),
    (
        "a named draft, then a bare final block",
        fence(CLERK, "prompt.md") + "Too long. Better:\n" + fence(ASKED),
        "ambiguous",
        "prose would become part of the text",
    ),
    (
        "a named block, then an example",
        fence(ASKED, "prompt.md") + "\nExample:\n\n" + fence("DEBIT\n"),
        "ambiguous",
        "prose would become part of the text",
    ),
    (
        "a named block, then an example with a language",
        fence(ASKED, "prompt.md") + "\nExample:\n\n" + fence("1\n", "json"),
        P,
        "a bare fence must close before it",
    ),
    (
        "a fence inside that is not closed",
        fence(FENCED.replace("\n```\n\nA", "\n\nA"), "prompt.md"),
        "unclosed",
        "one fence has no partner",
    ),
    (
        "a list inside with an indented fence",
        fence("1. So:\n\n    ```\n    x\n    ```\n", "prompt.md"),
        {"prompt.md": "1. So:\n\n    ```\n    x\n    ```\n"},
        "four columns deeper it closes nothing",
    ),
]
_NESTED_CODE = [
    (
        "fences in a docstring",
        fence('"""Use:\n\n```\nrun(1)\n```\n"""\n' + NEW, "python main.py"),
        {"main.py": '"""Use:\n\n```\nrun(1)\n```\n"""\n' + NEW},
        "only this end gives Python",
    ),
    (
        "a program, then a command in a bare fence",
        fence(NEW, "python main.py") + "\nRun it:\n\n" + fence("python main.py\n"),
        GOOD,
        "only this end gives Python",
    ),
    (
        "a program, then a command",
        fence(NEW, "python main.py") + USE,
        GOOD,
        "a bare fence must close before it",
    ),
]
_CUT = [
    ("a fence that is not closed", f"```python\n{NEW}", "unclosed", "the end may be missing"),
    ("the same with a name", f"```python main.py\n{NEW}", "unclosed", "the end may be missing"),
    (
        "closing words instead of a fence",
        f"```python\n{NEW}\nI hope this helps!",
        "unclosed",
        "the words would become text",
    ),
    (
        "cut by the limit of tokens",
        f"```python\n{NEW[:20]}",
        "truncated",
        "the provider says so",
        "length",
    ),
    (
        "the same, as `MAX_TOKENS`",
        f"```python\n{NEW[:20]}",
        "truncated",
        "another provider's word",
        "MAX_TOKENS",
    ),
    (
        "the same, as `max_output_tokens`",
        f"```python\n{NEW[:20]}",
        "truncated",
        "another provider's word",
        "max_output_tokens",
    ),
    (
        "ended by an error of the server",
        f"```python\n{NEW[:20]}",
        "truncated",
        "a reason that is not known",
        "error",
    ),
    (
        "cut after the closing fence",
        f"{fence(NEW, 'python')}This works bec",
        GOOD,
        "the text is whole",
        "length",
    ),
    ("stopped by a filter", fence(NEW, "python"), "refused", "another provider's word", "SAFETY"),
    ("`end_turn`", fence(NEW, "python"), GOOD, "another provider's word for stop", "end_turn"),
    ("nothing at all", "", "empty", "there is no text"),
    (
        "edits, cut between two",
        f"{FIT}Next I",
        "truncated",
        "another edit may be missing",
        "length",
    ),
]
_CUT_PROMPT = [
    (
        "closing words inside the fence",
        fence(ASKED + "\nI hope this helps!\n", "prompt.md"),
        "ambiguous",
        "the words may be for the reader",
    ),
    (
        "an open fence and closing words",
        f"```\n{ASKED}\nLet me know how it goes",
        "unclosed",
        "the end is missing",
    ),
]
_DRESSED = [
    (
        "the old prompt in a fence, then the new one",
        f"Before:\n{fence(CLERK)}After:\n{fence(ASKED)}",
        P,
        "one of them is the parent",
    ),
    (
        "`Here is the improved prompt:` inside the fence",
        fence(f"Here is the improved prompt:\n\n{ASKED}", "prompt.md"),
        "ambiguous",
        "the words may be for the reader",
    ),
    (
        "`<prompt>` around the text inside the fence",
        fence(f"<prompt>\n{ASKED}</prompt>\n", "prompt.md"),
        "ambiguous",
        "the tags may be for the reader",
    ),
    (
        "`This version should score better.` as last line",
        fence(f"{ASKED}\nThis version should score better.\n", "prompt.md"),
        "ambiguous",
        "the words may be for the reader",
    ),
    (
        "`[END OF PROMPT]` as last line",
        fence(f"{ASKED}[END OF PROMPT]\n", "prompt.md"),
        "ambiguous",
        "the line may be for the reader",
    ),
    (
        "`Changes made:` and a list inside the fence",
        fence(f"{ASKED}\nChanges made:\n- shorter\n", "prompt.md"),
        "ambiguous",
        "the words may be for the reader",
    ),
    (
        "the text in quotes inside the fence",
        fence(f'"{ASKED.strip()}"\n', "prompt.md"),
        "ambiguous",
        "the quotes may be for the reader",
    ),
    (
        "the text as a string of Python",
        fence(f'PROMPT = """{ASKED}"""\n', "prompt.md"),
        "ambiguous",
        "the quotes may be for the reader",
    ),
    (
        "`>` before each line inside the fence",
        fence(indent(ASKED, "> "), "prompt.md"),
        "ambiguous",
        "the signs may be for the reader",
    ),
    (
        "`...` as last line",
        fence("You are a clerk.\n\n...\n", "prompt.md"),
        "elided",
        "a part of the text is missing",
    ),
    *(
        (what, fence(text, "prompt.md"), {"prompt.md": text}, "nothing speaks of the text")
        for what, text in (
            ("a prompt that begins `Here is the text:`", "Here is the text:\n{x}\n\nAnswer.\n"),
            ("a prompt between tags", "<instructions>\nBe kind.\n</instructions>\n"),
            ("a prompt with `SEARCH:`", "Reply with one of\nSEARCH: query\nANSWER: text\n"),
            ("a prompt under `=== Rules ===`", "=== Rules ===\n\nBe kind.\n"),
        )
    ),
    (
        "`=== new.md ===` as first line",
        fence(f"=== new.md ===\n{ASKED}", "text"),
        "ambiguous",
        "the line may be for the reader",
    ),
    (
        "the text outside a fence, an example inside",
        ASKED.replace("Answer", "```\nyes\n```\n\nAnswer") + CLERK,
        "ambiguous",
        "more of the parent stands outside the fence",
    ),
    (
        "`-` and `+` before lines in its fence",
        fence(f"- {WORD}\n+ {CAPITALS}\n", "prompt.md"),
        P,
        "it is a diff",
    ),
]
_OTHERS = [
    Odd(
        WHOLE,
        "a fragment in another language",
        fence("return n + 2;\n", "cpp"),
        "unparsable",
        "no function of the program is in it",
        "cpp",
    ),
    Odd(
        WHOLE,
        "one of two functions, which calls the other",
        fence(HELPED.split("\n\n\n")[1].replace("2", "3"), "python main.py"),
        "elided",
        "the other one would be gone",
        "helped",
    ),
    Odd(
        WHOLE,
        "a skill without its front matter",
        fence("# PDF\n\nRead it twice.\n", "markdown"),
        "elided",
        "the name of the skill would be gone",
        "skill",
    ),
]
_EDITS = [
    ("an edit", f"Twice.\n\n{FIT}", GOOD, "it fits once"),
    ("an edit in a fence", fence(FIT, "diff"), GOOD, "fences around an edit mean nothing"),
    (
        "markers in small letters",
        FIT.replace("SEARCH", "search").replace("REPLACE", "replace"),
        GOOD,
        "the signs are clear",
    ),
    ("`>>>>>>>` without the word", FIT.replace(" REPLACE", ""), GOOD, "the signs are clear"),
    (
        "`<<<<<<< ORIGINAL` and `>>>>>>> UPDATED`",
        FIT.replace("SEARCH", "ORIGINAL").replace("REPLACE", "UPDATED"),
        GOOD,
        "the signs are clear",
    ),
    (
        "`<<<SEARCH` and `>>>REPLACE`",
        FIT.replace("<<<<<<< ", "<<<").replace(">>>>>>> ", ">>>"),
        GOOD,
        "the words are clear",
    ),
    (
        "`------- SEARCH` and `+++++++ REPLACE`",
        FIT.replace("<<<<<<<", "-------").replace(">>>>>>>", "+++++++"),
        GOOD,
        "the words are clear",
    ),
    (
        "indented in a list",
        f"- So:\n\n{indent(FIT)}",
        GOOD,
        "the list's indentation is not the text's",
    ),
    (
        "indented, with the marker as bullet",
        f"- {indent(FIT, '  ')[2:]}",
        GOOD,
        "the list's indentation is not the text's",
    ),
    (
        "two lines `=======`",
        FIT.replace("=======", "=======\n======="),
        "diff_mismatch",
        "a marker would become text",
    ),
    (
        "two lines `=======`, the second under a short line",
        edit(LINE, f"    a\n=======\n{BETTER}"),
        "diff_mismatch",
        "a marker would become text",
    ),
    ("no line `=======`", FIT.replace("=======\n", ""), "diff_mismatch", "there is no replacement"),
    (
        "cut before its end",
        FIT.replace(">>>>>>> REPLACE\n", ""),
        "diff_mismatch",
        "the replacement may be cut",
    ),
    (
        "cut inside a fence",
        fence(FIT.replace(">>>>>>> REPLACE\n", ""), "diff"),
        "diff_mismatch",
        "the replacement may be cut",
    ),
    (
        "the first whole, the second cut",
        FIT + "<<<<<<< SEARCH\ndef run(n):\n",
        "diff_mismatch",
        "all edits or none",
    ),
    (
        "a second beginning inside",
        "<<<<<<< SEARCH\n" + FIT,
        "diff_mismatch",
        "the first has no end",
    ),
    (
        "an end without a beginning",
        FIT.replace("<<<<<<< SEARCH\n", ""),
        "diff_mismatch",
        "it is unclear what goes",
    ),
    (
        "words instead of signs, in a fence",
        fence(f"SEARCH\n{LINE}\n=======\n{BETTER}\nREPLACE\n", "python main.py"),
        "diff_mismatch",
        "a marker would become text",
    ),
    (
        "a whole program with conflict markers",
        fence("<<<<<<< HEAD\n" + OLD + ">>>>>>> theirs\n", "python main.py"),
        "diff_mismatch",
        "an end that is no marker",
    ),
    (
        "lines that are not there",
        edit("    return 7", "    return 8"),
        "diff_mismatch",
        "they do not fit",
    ),
    (
        "space at the end of a line",
        edit(LINE + "  ", BETTER),
        GOOD,
        "white space at ends may differ",
    ),
    (
        "lines without their indentation",
        edit(LINE.strip(), BETTER.strip()),
        GOOD,
        "one shift fits all lines",
    ),
    (
        "an indentation that fits no line",
        edit("def run(n):\nreturn [1 / n] * n", "def run(n):\nreturn 2"),
        "diff_mismatch",
        "no one shift fits",
    ),
    ("nothing under SEARCH", edit("", "x = 1"), "diff_mismatch", "it names no place"),
    (
        "the replacement is empty",
        f"<<<<<<< SEARCH\n{LINE}\n=======\n>>>>>>> REPLACE\n",
        {"main.py": "def run(n):\n"},
        "the lines go",
    ),
    (
        "an edit of another edit's result",
        FIT + edit(BETTER, "    return []"),
        "diff_mismatch",
        "edits are matched against the text as it was",
    ),
    ("the same edit twice", FIT + FIT, "diff_mismatch", "they change the same line"),
    (
        "an edit and the whole program",
        FIT + fence(NEW, "python main.py"),
        GOOD,
        "both say the same",
    ),
    (
        "an edit and another whole program",
        FIT + fence(DRAFT, "python"),
        "diff_mismatch",
        "one of them is too many",
    ),
    (
        "markers in comments, in a named fence",
        fence(FIT.replace("<<<", "# <<<").replace(">>>>>>>", "# >>>>>>>"), "python main.py"),
        "diff_mismatch",
        "a marker would become text",
    ),
    (
        "`<old_str>` and `<new_str>`",
        fence(
            f"<old_str>\n{LINE}\n</old_str>\n<new_str>\n{BETTER}\n</new_str>\n", "python main.py"
        ),
        "diff_mismatch",
        "the tags would become text",
    ),
    (
        "an edit, and a block that shows its use",
        FIT + "\n" + fence("run(3)\n", "python"),
        GOOD,
        "a block without a name is no part",
    ),
]
_EDITS_OTHER = [
    Odd(
        EDITS,
        "lines that occur twice",
        edit("    return 1", "    return 2"),
        {"src/util.py": UTIL.replace("return 1", "return 2")},
        "in one file alone they occur once",
        "files",
    ),
    Odd(
        EDITS,
        "two edits of lines that differ",
        edit("    a = 1", "    a = 2") + edit("    b = 1", "    b = 2"),
        {"main.py": TWO.replace("= 1", "= 2")},
        "each fits once",
        "two",
    ),
    Odd(
        EDITS,
        "two edits that share a line",
        edit("    a = 1\n    b = 1", "    a = 2\n    b = 1") + edit("    b = 1", "    b = 2"),
        "diff_mismatch",
        "they change the same line",
        "two",
    ),
    Odd(
        EDITS,
        "a text in CRLF",
        FIT,
        {"main.py": NEW.replace("\n", "\r\n")},
        "line ends are the parent's",
        "crlf",
    ),
    Odd(
        EDITS,
        "a whole text for one in CRLF",
        fence(NEW, "python"),
        {"main.py": NEW.replace("\n", "\r\n")},
        "line ends are the parent's",
        "crlf",
    ),
    Odd(
        EDITS,
        "a title underlined by `=====`",
        edit("Rules\n=====\n\nBe kind.", "Rules\n=====\n\nBe brief."),
        {"prompt.md": HEADED.replace("kind", "brief")},
        "one way to divide it fits",
        "headed",
    ),
    Odd(
        EDITS,
        "nothing under SEARCH, an empty text",
        edit("", "Be kind."),
        {"prompt.md": "Be kind.\n"},
        "an empty text is filled",
        "empty",
    ),
    Odd(
        EDITS,
        "a text about edits, given whole",
        fence(DIFFED.replace("exactly", "well"), "prompt.md"),
        {"prompt.md": DIFFED.replace("exactly", "well")},
        "the parent has these markers",
        "edits",
    ),
    Odd(
        EDITS,
        "a text about edits, edited",
        edit("Quote exactly.", "Quote well."),
        {"prompt.md": DIFFED.replace("exactly", "well")},
        "the block begins with a marker",
        "edits",
    ),
    *(
        Odd(EDITS, what, fence(reply, "prompt.md"), "diff_mismatch", why, "prompt")
        for what, reply, why in (
            (
                "`SEARCH:` and `REPLACE:` in a prompt's fence",
                f"SEARCH: {WORD}\nREPLACE: {CAPITALS}\n",
                "the words would become text",
            ),
            (
                "markers in bold in a prompt's fence",
                f"**<<<<<<< SEARCH**\n{WORD}\n**=======**\n{CAPITALS}\n**>>>>>>> REPLACE**\n",
                "a marker would become text",
            ),
            (
                "a quoted edit in a prompt's fence",
                indent(edit(WORD, CAPITALS), "> "),
                "a marker would become text",
            ),
        )
    ),
]
SCALE = edit("    return x", "    return 2 * x")
U = {"src/util.py": UTIL2}
_FILES = [
    (
        "named in prose",
        f"In `src/util.py` I scale it:\n\n{SCALE}",
        U,
        "the paragraph names one file",
    ),
    (
        "named in prose by its base name",
        f"util.py scales wrongly.\n\n{SCALE}",
        U,
        "no other file has this base name",
    ),
    ("named in the fence", fence(SCALE, "python src/util.py"), U, "the fence names it"),
    ("named in a heading", f"### `src/util.py`\n\n{SCALE}", U, "the heading names it"),
    ("named by `=== util.py ===`", f"=== util.py ===\n{SCALE}", U, "the heading names it"),
    (
        "named in the marker",
        SCALE.replace("SEARCH", "SEARCH src/util.py"),
        U,
        "the marker names it",
    ),
    (
        "named as the first line in the fence",
        fence(f"# src/util.py\n{SCALE}", "python"),
        U,
        "the line names it",
    ),
    (
        "named after the edit",
        f"{SCALE}\nNow util.py scales.",
        U,
        "the reply names one of those that fit",
    ),
    ("named nowhere, and two fit", SCALE, "diff_mismatch", "either may be meant"),
    (
        "two named, and both fit",
        f"Unlike a.py, util.py must scale:\n\n{SCALE}",
        "diff_mismatch",
        "either may be meant",
    ),
    (
        "two named, and one fits",
        f"As a.py does, util.py must count:\n\n{edit('    return 1', '    return 2')}",
        {"src/util.py": UTIL.replace("return 1", "return 2")},
        "it fits in one of them",
    ),
    (
        "named, but the lines are elsewhere",
        f"In src/a.py:\n\n{edit('    return 1', '    return 2')}",
        "diff_mismatch",
        "the name and the lines disagree",
    ),
    (
        "a frozen file",
        f"=== fixed.py ===\n{edit('F = 0', 'F = 1')}",
        "diff_mismatch",
        "it must not change",
    ),
    (
        "a file that is no part",
        f"=== other.py ===\n{edit('    return 1', '    return 2')}",
        "diff_mismatch",
        "there is none",
    ),
    (
        "named by a path of Windows",
        f"src\\util.py\n{fence(SCALE)}",
        U,
        "the line names it",
    ),
    (
        "a name that holds for two edits",
        f"In src/util.py:\n\n{SCALE}{edit('    return 1', '    return 2')}",
        {"src/util.py": UTIL2.replace("return 1", "return 2")},
        "a name holds until the next",
    ),
    (
        "one edit fits, one does not",
        f"In src/util.py:\n\n{SCALE}{edit('gone', 'x')}",
        "diff_mismatch",
        "all edits or none",
    ),
]
_DIFFS = [
    ("a unified diff", fence(DIFF, "diff"), GOOD, "its lines fit once"),
    ("the same in a bare fence", fence(DIFF), GOOD, "headers and hunks say what it is"),
    ("without headers", fence(DIFF.split("\n", 2)[2], "diff"), GOOD, "there is one file"),
    (
        "without line numbers",
        fence(DIFF.replace("@@ -1,2 +1,2 @@", "@@"), "diff"),
        GOOD,
        "the lines say where",
    ),
    (
        "with wrong counts",
        fence(DIFF.replace("-1,2", "-1,9"), "diff"),
        "diff_mismatch",
        "lines may be missing",
    ),
    (
        "with a line without its sign",
        fence(DIFF.replace(" def", "def"), "diff"),
        "diff_mismatch",
        "it is no diff",
    ),
    ("outside a fence", DIFF, "diff_mismatch", "its end is not marked"),
    (
        "of lines that are not there",
        fence(DIFF.replace("1 / n", "7 / n"), "diff"),
        "diff_mismatch",
        "they do not fit",
    ),
    (
        "that adds a file",
        fence("--- /dev/null\n+++ b/new.py\nnew file mode 100644\n@@ -0,0 +1 @@\n+x = 1\n", "diff"),
        "diff_mismatch",
        "parts cannot be added",
    ),
    (
        "with the program that it gives",
        fence(DIFF, "diff") + fence(NEW, "python"),
        GOOD,
        "the same",
    ),
    (
        "with another program",
        fence(DIFF, "diff") + fence(DRAFT, "python"),
        "diff_mismatch",
        "one of them is too many",
    ),
    ("that is cut", "```diff\n" + DIFF[:-12], "diff_mismatch", "its fence is not closed"),
]
BOTH = {"src/a.py": A.replace("x", "y"), "src/util.py": UTIL2}
_NAMES = [
    (
        "headings before blocks",
        f"**src/a.py**\n\n{fence(BOTH['src/a.py'], 'python')}\n**src/util.py**\n\n{fence(UTIL2, 'python')}",
        BOTH,
        "headings name the parts",
    ),
    (
        "base names",
        fence(BOTH["src/a.py"], "python a.py") + fence(UTIL2, "python:util.py"),
        BOTH,
        "no other part has them",
    ),
    (
        "a comment as first line names it",
        fence("# src/util.py\n" + UTIL2, "python"),
        U,
        "the line is a name, not text",
    ),
    ("no name, two parts", fence(UTIL2, "python"), "unparsable", "either may be meant"),
    (
        "one named, one not",
        fence(UTIL2, "python util.py") + fence(A, "python"),
        "ambiguous",
        "a block may be lost",
    ),
    (
        "a file that is no part",
        fence(UTIL2, "python util.py") + fence("x = 1\n", "python new.py"),
        "unknown_part",
        "it would be lost",
    ),
    (
        "a frozen file, repeated",
        fence(UTIL2, "python util.py") + fence("F = 0\n", "python fixed.py"),
        U,
        "nothing of it changes",
    ),
    (
        "a frozen file, changed",
        fence(UTIL2, "python util.py") + fence("F = 1\n", "python fixed.py"),
        "outside_blocks",
        "it must not change",
    ),
    (
        "a block begins before the last one ends",
        f"```python a.py\n{A}```python util.py\n{UTIL2}```\n",
        "unclosed",
        "a line may be lost",
    ),
]
_NAMES_PROMPT = [
    (
        "`=== prompt.md ===` inside the block",
        fence("=== prompt.md ===\n" + ASKED),
        P,
        "the line is a name, not text",
    ),
    (
        "the bare name inside the block",
        fence("prompt.md\n\n" + ASKED, "text"),
        P,
        "the line is a name, not text",
    ),
    (
        "`File: prompt.md` inside a named block",
        fence("File: prompt.md\n" + ASKED, "prompt.md"),
        P,
        "the line is a name, not text",
    ),
    (
        "`# prompt.md` inside a named block",
        fence("# prompt.md\n" + ASKED, "prompt.md"),
        "ambiguous",
        "it may be a title",
    ),
    (
        "another name on the only block",
        fence(ASKED, "system_prompt.md"),
        P,
        "only one block can be the lone part",
    ),
]
_JSON = [
    (
        "one object",
        json.dumps({"hypothesis": "h", "parts": {"main.py": NEW}}),
        GOOD,
        "as it is asked for",
    ),
    (
        "in a fence",
        fence(json.dumps({"parts": {"main.py": NEW}}) + "\n", "json"),
        GOOD,
        "fences around it mean nothing",
    ),
    (
        '`{"a": 1}` in a sentence before it',
        'Unlike {"a": 1}: ' + json.dumps({"parts": {"main.py": NEW}}),
        GOOD,
        "the object with the parts counts",
    ),
    (
        "a sentence with braces before it",
        "I use {n} here. " + json.dumps({"parts": {"main.py": NEW}}),
        GOOD,
        "the object with the parts counts",
    ),
    (
        "a comma too many",
        '{"parts": {"main.py": ' + json.dumps(NEW) + ",},}",
        GOOD,
        "no text depends on it",
    ),
    (
        "line breaks in strings",
        json.dumps({"parts": {"main.py": NEW}}).replace("\\n", "\n"),
        GOOD,
        "no text depends on it",
    ),
    ("no `parts` around the texts", json.dumps({"main.py": NEW}), GOOD, "the key is a part's name"),
    (
        "cut inside a text",
        json.dumps({"parts": {"main.py": NEW}})[:-12],
        "unparsable",
        "the text may be cut",
    ),
    (
        "quotes that are not escaped",
        '{"parts": {"main.py": "def run(n):\\n    return "a""}}',
        "unparsable",
        "no text is guessed",
    ),
    (
        "two objects that differ",
        json.dumps({"main.py": DRAFT}) + "\nor\n" + json.dumps({"main.py": NEW}),
        "ambiguous",
        "either may be meant",
    ),
    (
        "a fenced program inside the text",
        json.dumps({"main.py": fence(NEW, "python")}),
        GOOD,
        "the fence is around all of it",
    ),
    (
        "a fence inside the text that is not closed",
        json.dumps({"main.py": "```python\n" + NEW}),
        "ambiguous",
        "the fence would become text",
    ),
    ("a fenced program instead", fence(NEW, "python"), GOOD, "it is plain what is meant"),
    ("`code` for the one part", json.dumps({"code": NEW}), GOOD, "there is one part"),
    (
        "the form repeated, then filled in",
        '{"parts": {"main.py": "..."}}\n' + json.dumps({"parts": {"main.py": NEW}}),
        GOOD,
        "`...` is no text",
    ),
    ("only the form", '{"parts": {"main.py": "..."}}', "unparsable", "`...` is no text"),
    (
        "a diff in a text",
        json.dumps({"parts": {"main.py": DIFF}}),
        "diff_mismatch",
        "it would become text",
    ),
    ("no object at all", "I cannot improve this.", "unparsable", "there is no text"),
]
BLOCK = "# EVOLVE-BLOCK-START\nx = 2\n# EVOLVE-BLOCK-END\n"
MARKED2 = MARKED.replace("x = 1", "x = 2")
M = {"main.py": MARKED2}
_MARKERS = [
    (
        "a docstring names the markers",
        fence(MARKED2, "python main.py"),
        M,
        "a marker is a comment of its own",
    ),
    (
        "only the block, with its markers",
        fence(BLOCK, "python main.py"),
        M,
        "the text around it is the parent's",
    ),
    (
        "no markers, the text around unchanged",
        fence(
            MARKED2.replace("# EVOLVE-BLOCK-START\n", "").replace("# EVOLVE-BLOCK-END\n", ""),
            "python main.py",
        ),
        M,
        "there is one block",
    ),
    (
        "a comment in the block names a marker",
        fence(MARKED2.replace("x = 2", "# stay before EVOLVE-BLOCK-END\nx = 2"), "python main.py"),
        {"main.py": MARKED2.replace("x = 2", "# stay before EVOLVE-BLOCK-END\nx = 2")},
        "a marker begins its comment",
    ),
    (
        "a comment names both markers",
        fence(
            MARKED2.replace("x = 2", "# EVOLVE-BLOCK-START to EVOLVE-BLOCK-END\nx = 2"),
            "python main.py",
        ),
        {"main.py": MARKED2.replace("x = 2", "# EVOLVE-BLOCK-START to EVOLVE-BLOCK-END\nx = 2")},
        "a marker names itself alone",
    ),
    (
        "the text outside was changed",
        fence(MARKED2.replace("print(x)", "print(9)"), "python main.py"),
        "outside_blocks",
        "it would be lost",
    ),
    (
        "an import was added outside",
        fence("import os\n" + MARKED2, "python main.py"),
        "outside_blocks",
        "it would be lost",
    ),
    (
        "a marker with more words",
        fence(MARKED2.replace("BLOCK-START\n", "BLOCK-START: here\n"), "python main.py"),
        M,
        "it is the same marker",
    ),
    (
        "markers in small letters",
        fence(MARKED2.replace("# EVOLVE-BLOCK", "# evolve-block"), "python main.py"),
        "outside_blocks",
        "they would become text",
    ),
    (
        "a marker is missing",
        fence(MARKED2.replace("# EVOLVE-BLOCK-END\n", ""), "python main.py"),
        "outside_blocks",
        "the block has no end",
    ),
    ("an edit inside the block", edit("x = 1", "x = 2"), M, "the text around it stays"),
    (
        "an edit outside the block",
        edit("print(x)", "print(9)"),
        "outside_blocks",
        "it must not change",
    ),
]


def _rows(kind: str, rows: list, task: str = "program", form: str = "rewrite") -> list[Odd]:  # type: ignore[type-arg]
    return [
        Odd(kind, what, reply, read, why, task, form, *rest)
        for what, reply, read, why, *rest in rows
    ]


ALL: list[Odd] = [
    *_rows(THOUGHTS, _THOUGHTS[:-1]),
    *_rows(THOUGHTS, _THOUGHTS[-1:], form="json"),
    *_rows(THOUGHTS, _THOUGHTS_PROMPT, "prompt"),
    *_rows(WHOLE, _WHOLE),
    *_rows(WHOLE, _DRESSED, "prompt"),
    *_OTHERS,
    *_rows(NESTED, _NESTED, "prompt"),
    *_rows(NESTED, _NESTED_CODE),
    *_rows(CUT, _CUT),
    *_rows(CUT, _CUT_PROMPT, "prompt"),
    *_rows(EDITS, _EDITS),
    *_EDITS_OTHER,
    *_rows(FILES, _FILES, "files"),
    *_rows(DIFFS, _DIFFS),
    *_rows(NAMES, _NAMES, "files"),
    *_rows(NAMES, _NAMES_PROMPT, "prompt"),
    *_rows(JSON, _JSON, form="json"),
    *_rows(MARKERS, _MARKERS, "marked"),
    Odd(
        MARKERS,
        "the block alone, without its indentation",
        fence(BLOCK.replace("2", "2 * n"), "python main.py"),
        "outside_blocks",
        "it would not be Python",
        "inner",
    ),
]


def table() -> str:
    """The lists of the page: replies of a kind with one outcome for one reason share a line."""
    lines: list[str] = []
    for kind in dict.fromkeys(odd.kind for odd in ALL):
        rows: dict[tuple[str, str], list[str]] = {}
        for odd in ALL:
            if odd.kind == kind:
                rows.setdefault((odd.done, odd.why), []).append(odd.what)
        lines += ["", f"### {kind}", ""]
        for (done, why), each in rows.items():
            fault = "" if done == "read" else f"{done}, "
            lines.append(f"- {fault}{why}: {'; '.join(each)}")
    return "\n".join([*lines, ""]).lstrip("\n") + "\n"


def page_with_table(page: str) -> str:
    """The page with the present table."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__" and "--write" in sys.argv:
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
