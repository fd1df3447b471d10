"""Verifies one method with Dafny: the head and its specification come from here, the body from the candidate.

A body is one balanced block, so that it can neither add clauses to the head nor declare anything. Dafny proves what the
block says, unless it is told to believe: what tells it so is refused.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

BELIEVED = {  # pattern -> what it would make Dafny believe or skip
    r"\bassume\b": "assume takes a claim for granted",
    r"\baxiom\b": "axiom takes a claim for granted",
    r"\bextern\b": "extern promises code that is not here",
    r"\{\s*:": "attributes can switch the verifier off",
    r"\.\.\.": "... stands for code that is not here",
    r"['\"#]": "these methods need neither texts nor characters nor #, which could hide something",
}
SECONDS = 20  # for the prover, a method

if not shutil.which("dafny"):
    raise RuntimeError("python_to_dafny needs Dafny's verifier, which is not installed: apt install dafny")


def score(parts, case):
    body = parts[f"methods/{case.id}.dfy"]
    fault = refused(body)
    worth, said = (0.0, f"refused: {fault}") if fault else verified(f"{case.info}\n{body}\n")
    feedback = f"{case.id}: {said}\nIn Python:\n{case.input}\nHead that the body is for:\n{case.info}"
    return {"score": worth, "feedback": feedback[:4000], "metrics": {"verified": float(worth == 1.0)}}


def refused(body):
    """Why this is no body to be verified, "" if it is one."""
    code = bare(body)
    if code is None:
        return "a comment that does not end"
    for pattern, reason in BELIEVED.items():
        if re.search(pattern, code):
            return reason
    depth, code = 0, code.strip()
    for place, letter in enumerate(code):
        depth += (letter == "{") - (letter == "}")
        if depth <= 0 and place < len(code) - 1:
            return "the body is one block, { ... }, with nothing before or after it"
    return "" if code and depth == 0 else "the braces do not pair"


def bare(text):
    """The code without comments; None if one does not end."""
    found, place = [], 0
    for mark in re.compile(r"//[^\n]*|/\*").finditer(text):
        if mark.start() < place:
            continue
        found.append(text[place : mark.start()])
        place = mark.end() if mark[0] != "/*" else after_comment(text, mark.end())
        if place is None:
            return None
    return " ".join([*found, text[place:]])


def after_comment(text, place):
    """Where a comment ends that began before `place`; comments nest. None if it does not."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(text, place):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return None


def verified(program):
    """1.0, 0.25 or 0.0, and what the verifier says."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.dfy"
        file.write_text(program, encoding="utf-8")
        command = ["dafny", "/compile:0", "/nologo", f"/timeLimit:{SECONDS}", "/vcsCores:1", file.name]
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            said, _ = process.communicate(timeout=2 * SECONDS)
        except subprocess.TimeoutExpired:
            return 0.25, f"the verifier was stopped after {2 * SECONDS} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return judged(said)


def judged(said):
    """The verdict in Dafny's words. A Z3 that does not know one of its options complains, and proves all the same."""
    lines = [line for line in said.splitlines() if line.startswith(("program.dfy", "Dafny program", "Execution"))]
    text = "\n".join(lines) or said[-2000:]
    if "has no body" in said:
        return 0.0, f"refused: a loop or forall statement without a body is taken for granted\n{text}"
    total = re.search(r"^Dafny program verifier finished with (\d+) verified, (\d+) errors?(.*)$", said, re.M)
    if not total:
        return 0.0, text
    good = total[1] != "0" and total[2] == "0" and not total[3].strip()
    return (1.0, "verified") if good else (0.25, text)
