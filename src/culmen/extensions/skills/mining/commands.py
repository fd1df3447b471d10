"""Shell commands as words, and the check of a mined task: which commands are written down.

The file is copied into the tests of every mined task, where it is a program of its own:

    python3 commands.py COMMANDS_FILE RULE_FILE REWARD_FILE
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ENDS = ("&&", "||", ";", "|", "&", "\n")
_BEFORE = ("sudo", "time", "exec", "command", "nohup")  # words in front of a program


def split_segments(line: str) -> list[list[str]]:
    """The words of each simple command of a command line, without redirections.

    Variables and folders that are set for a command come before its words, as `NAME=value` and
    `cd=folder`.
    """
    found: list[list[str]] = []
    folder = ""
    for words in _split_words(line):
        while words and words[0] in _BEFORE:
            words = words[1:]
        if words[:1] == ["cd"] and len(words) == 2:
            folder = words[1]
        elif words:
            here = [f"cd={folder}"] if folder else []
            found.append([*here, *words])
    return found


def _split_words(line: str) -> list[list[str]]:
    reader = shlex.shlex(line.replace("\n", " ; "), posix=True, punctuation_chars="();<>|&")
    reader.whitespace_split = True
    reader.commenters = ""
    found: list[list[str]] = [[]]
    skip = False
    try:
        for word in reader:
            if skip:
                skip = False
            elif word in _ENDS or set(word) <= set("();|&"):
                found.append([])
            elif word[:1] in "<>" and set(word) <= set("<>&|"):
                skip = True
                if found[-1] and found[-1][-1].isdigit():
                    found[-1].pop()
            else:
                found[-1].append(word)
    except ValueError:  # an unclosed quotation mark
        return [part.split() for part in re.split(r"&&|\|\||[;|\n]", line)]
    return found


def program_of_words(words: list[str]) -> str:
    """The program that a simple command calls, without its folder."""
    for word in words:
        if not ASSIGNMENT.match(word):
            return word.rpartition("/")[2] or word
    return ""


def matches(words: list[str], pattern: list[str]) -> bool:
    """True if a simple command calls the pattern's program with the pattern's words in order.

    The first argument that is no option is a subcommand for many programs: it must be the same.
    """
    if not pattern or program_of_words(words) != program_of_words(pattern):
        return False
    wanted_first = _first_argument(pattern)
    if wanted_first and _first_argument(words) != wanted_first:
        return False
    left = iter([_bare(word) for word in words])
    return all(any(_bare(wanted) == word for word in left) for wanted in pattern)


def _first_argument(words: list[str]) -> str:
    called = [word for word in words if not ASSIGNMENT.match(word)]
    return next((word for word in called[1:] if not word.startswith("-")), "")


def _bare(word: str) -> str:
    return word if ASSIGNMENT.match(word) else word.rpartition("/")[2] or word


def judge_segment(words: list[str], avoid: list[str], use: list[str]) -> str:
    """ "avoid", "use" or "": the pattern that a command follows; of two, the longer one."""
    bad, good = matches(words, avoid), matches(words, use)
    if bad and good:
        return "avoid" if len(avoid) > len(use) else "use"
    return "avoid" if bad else "use" if good else ""


def judge_commands(text: str, avoid: list[str], use: list[str]) -> str:
    """ "" if the commands use the right one and not the wrong one, else the fault in words."""
    verdicts: list[str] = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            verdicts += [judge_segment(words, avoid, use) for words in split_segments(line)]
    if "avoid" in verdicts:
        return f"`{' '.join(avoid)}` is used"
    return "" if "use" in verdicts else f"`{' '.join(use)}` is not used"


def main(commands: str, rule_file: str, reward: str) -> None:
    """Write the reward, and print the fault."""
    rule = json.loads(Path(rule_file).read_text(encoding="utf-8"))
    try:
        text = Path(commands).read_text(encoding="utf-8", errors="replace")
        wrong = judge_commands(text, rule["avoid"], rule["use"])
    except OSError:
        wrong = "there is no commands.sh"
    sys.stdout.write(f"{wrong}: {rule['why']}\n" if wrong else "right\n")
    Path(reward).write_text("0\n" if wrong else "1\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:4])
