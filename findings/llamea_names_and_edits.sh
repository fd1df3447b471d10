#!/usr/bin/env bash
# llamea 1.4.2
# The name of a generated algorithm, by which users' evaluators look its class up, is what follows the
# first "def" or "class" of the text, also inside a comment or another word. Edits whose text is not
# found, and the second of two alike, are left out without a word: the candidate is its parent again.
. "$(dirname "$0")/environment.sh"
in_environment llamea==1.4.2 <<'PYTHON'
from llamea.diffmodemanager import DiffModeManager
from llamea.llm import Dummy_LLM


class Replies(Dummy_LLM):
    def __init__(self, code):
        super().__init__()
        self.code = code

    def query(self, session_messages):
        return f"# Description: a search\n```python\n{self.code}\n```"


def named(code):
    return Replies(code).sample_solution([{"role": "user", "content": "improve"}]).name


algorithm = "class Search:\n    pass"
names = {
    start: named(start + algorithm)
    for start in ("", "# default settings: none\n", "DEFAULTS = {1: 2}\n", "def helper(x): return x\n", "# the class of methods: local\n")
}
print("names:", names)
assert list(names.values()) == ["Search", "ault", "AULTS", "helper", "of"]


def edited(*pairs):
    blocks = (f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n" for old, new in pairs)
    return DiffModeManager("a = 1\nb = 2\na = 1", "".join(blocks))()


print("both lines:", repr(edited(("a = 1", "a = 5"), ("a = 1", "a = 5"))))
assert edited(("a = 1", "a = 5"), ("a = 1", "a = 5")) == "a = 5\nb = 2\na = 1"
print("text that is not there:", repr(edited(("c = 1", "c = 5"))))
assert edited(("c = 1", "c = 5")) == "a = 1\nb = 2\na = 1"
PYTHON
