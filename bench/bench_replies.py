"""Texts wrapped as models do, read back by culmen and by the readers of other tools.

    pip download --no-deps --no-binary :all: gepa==0.1.4 ...; unpack into FOLDER
    python bench/bench_replies.py FOLDER --peer openevolve=PYTHON --peer shinka=PYTHON --peer gepa=PYTHON

Each text file of FOLDER (at most 200,000 bytes of UTF-8) is the text that is meant; the parent is
that file with another line in its middle. PYTHON is an interpreter that has the tool. Printed are,
for each wrapping and reader, the shares of texts read, of faults, and of third things: texts that
are neither the one that was meant nor the parent. White space at the ends of lines and of the text
does not count, since other readers remove it. The wrappings:

    named     the fence that culmen's prompt asks for, with the file's name
    plain     a fence of three with the language, between two sentences
    long      the same, with a fence longer than any in the text
    listed    the same, indented in a list
    thoughts  a draft in a fence, </think>, and the plain reply
    edit      a SEARCH/REPLACE edit of the line, with as many lines around it as make it unique

OpenEvolve is asked by `parse_full_rewrite` and `extract_diffs` with `apply_diff`, ShinkaEvolve by
`extract_between` as `apply_full_patch` calls it and by `apply_diff_patch`, GEPA by the
`output_extractor` of its reflection, which knows no edits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

MOST = 200_000  # bytes of a file
LANGUAGES = {".py": "python", ".js": "javascript", ".sh": "sh", ".css": "css", ".html": "html"}
LANGUAGES |= {".md": "markdown", ".json": "json", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml"}
WRAPPINGS = ("named", "plain", "long", "listed", "thoughts", "edit")
UNASKED = {"gepa": ("named", "edit")}  # forms that a tool does not ask its models for
OLD_LINE = "# a line that was there before"

PEERS = {
    "openevolve": """
from openevolve.utils.code_utils import apply_diff, extract_diffs, parse_full_rewrite
def read(reply, parent, language, is_edit):
    if not is_edit:
        return parse_full_rewrite(reply, language)
    return apply_diff(parent, reply) if extract_diffs(reply) else None
""",
    "shinka": """
from shinka.edit.apply_diff import apply_diff_patch
from shinka.llm import extract_between
START, END = "# EVOLVE-BLOCK-START\\n", "# EVOLVE-BLOCK-END\\n"
def read(reply, parent, language, is_edit):
    if not is_edit:
        text = extract_between(reply, f"```{language}", "```", False)
        return None if text == "none" else text
    marked = START + parent + ("" if parent.endswith("\\n") else "\\n") + END
    text, count, _, error, *_ = apply_diff_patch(reply, original_str=marked, verbose=False)
    return None if error or not count else text.removeprefix(START).rstrip("\\n").removesuffix(END.rstrip())
""",
    "gepa": """
from gepa.strategies.instruction_proposal import InstructionProposalSignature
def read(reply, parent, language, is_edit):
    return None if is_edit else InstructionProposalSignature.output_extractor(reply)["new_instruction"]
""",
}
LOOP = """
import json, logging, sys
logging.disable(logging.CRITICAL)
out = sys.stdout
sys.stdout = sys.stderr
for line in sys.stdin:
    asked = json.loads(line)
    try:
        text = read(asked["reply"], asked["parent"], asked["language"], asked["wrapping"] == "edit")
    except Exception:
        text = None
    print(json.dumps(text), file=out, flush=True)
"""


def fence(text: str, info: str, marks: str = "```") -> str:
    return f"{marks}{info}\n{text if text.endswith(chr(10)) else text + chr(10)}{marks}\n"


def longest(text: str) -> str:
    marks = "```"
    while marks in text:
        marks += "`"
    return marks


def wrap(wrapping: str, text: str, parent: str, name: str, language: str) -> str:
    """A reply whose meant text is `text`."""
    plain = fence(text, language)
    between = "I change one line.\n\n{}\nThis should score higher.\n"
    if wrapping == "edit":
        return between.format(edit(parent.split("\n"), text.split("\n")))
    blocks = {
        "named": fence(text, f"{language} {name}", longest(text)),
        "plain": plain,
        "long": fence(text, language, longest(text)),
        "listed": "1. The new text:\n\n" + textwrap.indent(plain, "   "),
        "thoughts": f"First:\n{fence('x = 0', language)}Too simple.\n</think>\n\n{plain}",
    }
    return between.replace("{}", "%s") % blocks[wrapping]


def edit(old: Sequence[str], new: Sequence[str]) -> str:
    """An edit of the line in which two texts differ."""
    place = next(n for n, line in enumerate(old) if line == OLD_LINE)
    low, high = place, place + 1
    while sum(list(old[n : n + high - low]) == list(old[low:high]) for n in range(len(old))) > 1:
        low, high = max(0, low - 1), min(len(old), high + 1)
    search, replace = "\n".join(old[low:high]), "\n".join(new[low:high])
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def requests(folder: Path) -> Iterator[dict[str, str]]:
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.stat().st_size > MOST:
            continue
        try:
            text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue
        lines = text.split("\n")
        if "\0" in text or "\r" in text or not text.strip():
            continue
        place = len(lines) // 2
        parent = "\n".join([*lines[:place], OLD_LINE, *lines[place + 1 :]])
        language = LANGUAGES.get(path.suffix, "text")
        for wrapping in WRAPPINGS:
            reply = wrap(wrapping, text, parent, path.name, language)
            about = {"name": path.name, "language": language, "wrapping": wrapping}
            yield {**about, "reply": reply, "text": text, "parent": parent}


def read_by_culmen(asked: dict[str, str]) -> str | None:
    from culmen.core.candidate import Candidate
    from culmen.core.task import Evaluator, Surface, Task
    from culmen.models.prompts.formats import FORMATS, Completion, parse_completion

    surface = Surface(language=asked["language"], max_chars=10 * MOST)
    parts = {asked["name"]: asked["parent"]}
    task = Task("replies", seeds=(parts,), evaluator=Evaluator(form="legacy"), surface=surface)
    sample = Completion(asked["reply"])
    parsed = parse_completion(sample, FORMATS["rewrite"], task, Candidate.of(parts))
    return parsed.drafts[0].parts[asked["name"]] if parsed.drafts else None


def plain_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().split("\n")]


def outcome(asked: dict[str, str], text: str | None) -> str:
    if text is None:
        return "fault"
    found = plain_lines(text)
    if found == plain_lines(asked["text"]):
        return "read"
    return "fault" if found == plain_lines(asked["parent"]) else "third"


def ask_peer(name: str, python: str, all_asked: Sequence[dict[str, str]]) -> list[str | None]:
    lines = "".join(json.dumps(asked) + "\n" for asked in all_asked)
    command = [python, "-c", PEERS[name] + LOOP]
    done = subprocess.run(command, input=lines, text=True, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def show(name: str, outcomes: Sequence[tuple[str, str]]) -> None:
    for wrapping in WRAPPINGS:
        counts = Counter(result for each, result in outcomes if each == wrapping)
        total = counts.total()
        if not total:
            continue
        shares = (f"{100 * counts[kind] / total:.2f} %" for kind in ("read", "fault", "third"))
        print(f"| {name} | {wrapping} | {' | '.join(shares)} | {counts['third']} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    arguments = parser.parse_args()
    all_asked = list(requests(arguments.folder))
    files = len(all_asked) // len(WRAPPINGS)
    print(f"{files} files\n\n| reader | wrapping | read | faults | third things | number |")
    print("|---|---|---|---|---|---|")
    show("culmen", [(a["wrapping"], outcome(a, read_by_culmen(a))) for a in all_asked])
    for peer in arguments.peer:
        name, _, python = peer.partition("=")
        known = [a for a in all_asked if a["wrapping"] not in UNASKED.get(name, ("named",))]
        pairs = zip(known, ask_peer(name, python, known), strict=True)
        show(name, [(a["wrapping"], outcome(a, text)) for a, text in pairs])


if __name__ == "__main__":
    main()
