"""The first hour of a new user, from a built wheel in an environment of its own.

A function, a prompt over cases, a foreign folder, a notebook, a coding agent. The packages that
culmen needs besides itself are those of these tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.jail, pytest.mark.timeout(300)]
BARE = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTHON", "VIRTUAL_ENV", "CULMEN"))
}

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_LINES = [*_PROJECT["dependencies"], _PROJECT["optional-dependencies"]["mcp"][0]]
REQUIRED = [
    *(re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in _LINES),
    "nbclient",
    "ipykernel",
    "pandas",
    "cryptography",
]

FUNCTION = """
import culmen

def score(program):
    space = {}
    exec(program, space)
    return -abs(space["area"](2.0) - 12.566)

print(culmen.check("def area(r):\\n    return 2.5 * r * r\\n", score))
study = culmen.optimize("def area(r):\\n    return 2.5 * r * r\\n", score, budget=60)
print(study)
assert study.best.score > -1.0 and study.best.initial.score < -2.0
"""
PROMPT = """
import culmen

texts = [("great film", "good"), ("a bore", "bad"), ("great fun", "good"), ("not my taste", "bad")]
cases = [culmen.Case(f"{split}{n}", text, label, split=split)
         for split in ("train", "val", "test") for n, (text, label) in enumerate(texts)]

def right(prompt, case):
    given = "good" if "great" in prompt and "great" in case.input else "bad"
    return float(given == case.info), f"{case.input} is {case.info}, the answer was {given}"

def model(prompt):
    return "```\\nGood if it says great, else bad.\\n```"

study = culmen.optimize("Say good or bad.", right, cases=cases, model=model, budget=80, deterministic=True)
print(study)
assert study.best.score == 1.0 and "great" in study.best.text
"""
NOTEBOOK = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(book, timeout=200, kernel_name="python3").execute()
print(book.cells[6].outputs)
"""
AGENT = """
import asyncio, sys
from mcp import Client
from mcp.client.stdio import StdioServerParameters

async def main():
    async with Client(StdioServerParameters(command=sys.argv[1], args=["mcp", "."], cwd=".")) as client:
        async def call(tool, **arguments):
            answer = await client.call_tool(tool, arguments)
            assert not answer.is_error, answer.content
            return answer.structured_content
        await call("new", folder="mine")
        assert (await call("check", task="mine"))["fit"]
        run = (await call("run", task="mine", evaluations=20))["run"]
        while (await call("status", run=run))["state"] == "running":
            await asyncio.sleep(0.2)
        assert "search.py" in (await call("best", run=run))["parts"]

asyncio.run(main())
"""
FOREIGN = """
import importlib.util
def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return {"combined_score": -abs(program.area(2.0) - 12.566)}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel.

    It sees the packages of this one but not the checkout.
    """
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    own = next((folder / "env").glob("lib/python3*/site-packages"))
    for name in needed(*REQUIRED):
        for file in distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.is_file() and not (own / file).exists():
                (own / file).parent.mkdir(parents=True, exist_ok=True)
                link(source, own / file)
    wheel = next(folder.glob("*.whl"))
    pip = [
        folder / "env/bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--ignore-installed",
    ]
    subprocess.run([*pip, wheel], check=True, env=BARE, capture_output=True)
    return folder / "env/bin"


def needed(*names: str) -> set[str]:
    """These distributions and all that they need, as far as installed here."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:  # of another platform
            continue
        if name not in found:
            found.add(name)
            waiting += [
                re.split(r"[^\w.-]", each, maxsplit=1)[0].lower()
                for each in requires
                if "extra ==" not in each
            ]
    return found


def link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def walk(installed: Path, place: Path, *words: str) -> str:
    """The output of a command of the environment; it must succeed."""
    ran = subprocess.run(
        words,
        cwd=place,
        env={**BARE, "PATH": f"{installed}:{BARE['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, f"{words}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def test_it_is_the_wheel_that_walks(installed: Path, tmp_path: Path):
    said = walk(
        installed,
        tmp_path,
        str(installed / "python"),
        "-c",
        "import culmen; print(culmen.__file__)",
    )
    assert Path(said.strip()).is_relative_to(installed.parent)


@pytest.mark.parametrize("script", [FUNCTION, PROMPT], ids=["function", "prompt over cases"])
def test_in_python(installed: Path, tmp_path: Path, script: str):
    (tmp_path / "walk.py").write_text(script)
    assert "initial" in walk(installed, tmp_path, "python", "walk.py")


def test_a_foreign_folder(installed: Path, tmp_path: Path):
    (tmp_path / "initial_program.py").write_text(
        "# EVOLVE-BLOCK-START\ndef area(r):\n    return 2.5 * r * r\n# EVOLVE-BLOCK-END\n"
    )
    (tmp_path / "evaluator.py").write_text(FOREIGN)
    walk(installed, tmp_path, "culmen", "check", ".")
    walk(installed, tmp_path, "culmen", "run", ".", "--budget", "evaluations=20", "--quiet")
    assert "initial" in walk(installed, tmp_path, "culmen", "status")
    walk(installed, tmp_path, "culmen", "best", "--out", "best")
    assert "def area" in (tmp_path / "best/initial_program.py").read_text()


def test_a_notebook(installed: Path, tmp_path: Path):
    (tmp_path / "walk.py").write_text(NOTEBOOK)
    book = ROOT / "docs/notebooks/program_from_a_cell.ipynb"
    assert "<svg" in walk(installed, tmp_path, "python", "walk.py", str(book))


def test_a_coding_agent(installed: Path, tmp_path: Path):
    (tmp_path / "walk.py").write_text(AGENT)
    walk(installed, tmp_path, "python", "walk.py", str(installed / "culmen"))
