"""Extensions are found through installed metadata: real folders of metadata on the path."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from culmen.core import extensions
from culmen.core.errors import UserError

ADDS = (
    "from culmen.core.extensions import Extension\nEXTENSION = Extension(name={name!r}, {parts})\n"
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages, in front of those that are installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield tmp_path
    forget()
    for name, module in [*sys.modules.items()]:  # packages of the next test may have the same names
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def forget() -> None:
    extensions.installed_extensions.cache_clear()
    extensions.part_addresses.cache_clear()


def install(site: Path, name: str, text: str, value: str = "") -> None:
    """A package of one module, with its metadata."""
    (site / f"{name}.py").write_text(text)
    metadata = site / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[{extensions.GROUP}]\n{name} = {value or f'{name}:EXTENSION'}\n"
    )


def test_a_part_is_found_by_its_slot_and_imported_when_it_is_used(site: Path):
    install(
        site, "lends", ADDS.format(name="lends", parts="strategies={'late': 'lends_late:Late'}")
    )
    (site / "lends_late.py").write_text("class Late: ...\n")
    assert (
        extensions.part_addresses("strategies")["late"] == "lends_late:Late"
        and "lends_late" not in sys.modules
    )
    assert extensions.find_part("strategies", "late").__name__ == "Late"
    assert extensions.find_part("strategies", "nothing") is None
    assert extensions.all_parts("strategies")["late"].__module__ == "lends_late"


def test_culmens_own_parts_come_first(site: Path):
    install(site, "aaa", ADDS.format(name="aaa", parts="strategies={'z': 'aaa'}"))
    assert list(extensions.part_addresses("strategies"))[-1] == "z"


def test_two_parts_of_one_name_are_refused_with_both_owners(site: Path):
    for name in ("one", "two"):
        install(site, name, ADDS.format(name=name, parts="backends={'moon': 'x'}"))
    with pytest.raises(UserError, match="two extensions add backends 'moon': one and two"):
        extensions.part_addresses("backends")


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("raise RuntimeError('half written')", "", "RuntimeError: half written"),
        ("import a_package_that_is_not_there", "", "a_package_that_is_not_there"),
        ("EXTENSION = 3", "", "is not an Extension"),
        ("", "broken:MISSING", "MISSING"),
        ("", "broken_elsewhere:EXTENSION", "broken_elsewhere"),
    ],
    ids=["raises", "lacks a package", "another object", "no attribute", "no module"],
)
def test_an_extension_that_cannot_be_used_is_named_with_its_package(
    site: Path, text: str, value: str, words: str
):
    install(site, "broken", text, value)
    with pytest.raises(UserError) as caught:
        extensions.installed_extensions()
    assert (
        words in caught.value.what
        and "package broken" in caught.value.where
        and "pip uninstall broken" in caught.value.fix
    )


@pytest.mark.parametrize("address", ["late", "late:Gone", "no_such_package:Part"])
def test_a_part_that_leads_nowhere_is_named_with_its_address(site: Path, address: str):
    (site / "late.py").write_text("import a_package_that_is_not_there" if address == "late" else "")
    install(site, "lends", ADDS.format(name="lends", parts=f"verbs={{'late': {address!r}}}"))
    with pytest.raises(UserError, match="cannot be used") as caught:
        extensions.all_parts("verbs")
    assert caught.value.where == address and address.partition(":")[0] in caught.value.fix


def test_a_wing_of_culmen_that_is_not_there_is_passed_over(site: Path):
    install(site, "beside", "", "culmen.a_wing_that_is_not_there.extension:EXTENSION")
    assert "beside" not in [extension.name for extension in extensions.installed_extensions()]


def test_a_wing_of_culmen_that_lacks_something_is_named(site: Path):
    install(site, "beside", "", "culmen.core.json:EXTENSION")
    with pytest.raises(UserError, match="'beside' cannot be used"):
        extensions.installed_extensions()


def test_every_address_of_culmens_own_parts_leads_somewhere():
    forget()
    for slot in extensions.SLOTS:
        for name, address in extensions.part_addresses(slot).items():
            assert extensions.import_part(address) is not None, (slot, name)


def test_to_find_the_extensions_imports_none_of_what_they_add():
    heavy = (
        "numpy",
        "sqlite3",
        "typer",
        "starlette",
        "culmen.cli.main",
    )
    code = "import sys\nfrom culmen.core import extensions\n[extensions.part_addresses(s) for s in extensions.SLOTS]\n"
    code += "print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not set(heavy) & set(loaded)
    inside = {name for name in loaded if name.startswith("culmen.") and name.count(".") > 1}
    tables = {name for name in inside if name.endswith(".extension")}
    assert inside - tables - {name.rpartition(".")[0] for name in tables} == {
        "culmen.core.errors",
        "culmen.core.extensions",
    }


FORM = '''
from culmen.core.evaluation import Observation, Status
from culmen.core.extensions import Extension


class LengthBackend:
    """The score is the length of the candidate; the least that a backend has to have."""

    def __init__(self, task, workers, require):
        pass

    async def start(self):
        return "limits"

    async def evaluate(self, candidate, case, seed, *, certify=False):
        score = float(len("".join(candidate.parts.values())))
        return Observation(candidate.id, Status.OK, score, case=case.id if case else "", seed=seed)

    async def close(self):
        pass


class LengthForm:
    jail_functions, evaluator_requests, jail_modules, jail_sources = {}, (), (), ()
    backend = "lends:LengthBackend"

    def contract_of(self, module):
        return None

    def check_module(self, module, path):
        pass

    def task_from_files(self, program, evaluator, config, goal):
        raise NotImplementedError

    def new_runner(self, host):
        raise NotImplementedError

    def with_agent(self, task, agent):
        return task


FORM = LengthForm()
EXTENSION = Extension(name="lends", evaluator_forms={"length": "lends:FORM"})
'''
TASK = """\
name = "longer"
goal = "Be long."
deterministic = true

[seed]
files = ["text.txt"]

[evaluator]
file = "evaluator.py"
form = "length"

[objective]
direction = "max"
bounds = [0.0, 1e9]
"""


def test_a_form_with_the_least_backend_is_checked_and_searched(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from culmen.cli.main import main

    install(site, "lends", FORM)
    folder = tmp_path / "longer"
    folder.mkdir()
    (folder / "task.toml").write_text(TASK)
    (folder / "evaluator.py").write_text("")
    (folder / "text.txt").write_text("size = 3\n")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "longer"]) == 0, capsys.readouterr()
    code = main(["run", "longer", "--budget", "evaluations=8", "--quiet", "--run-dir", "first"])
    assert code == 0, capsys.readouterr()


JAILED_FORM = """
from culmen.core.evaluation import Scoring
from culmen.core.extensions import Extension


class LinesRunner:
    def __init__(self, host):
        self.host = host

    async def check(self, jail):
        pass

    async def determine_scoring(self, jail):
        return Scoring("self-reported", "one process")

    async def evaluate_apart(self, candidate, case, seed, slot):
        raise NotImplementedError


class LinesForm:
    jail_functions, jail_modules, jail_sources = {"lines": "lends_inside:run_lines"}, ("lends_inside",), ()
    evaluator_requests, backend, new_runner = ("lines",), "", LinesRunner

    def contract_of(self, module):
        return None

    def check_module(self, module, path):
        pass


FORM = LinesForm()
EXTENSION = Extension(name="lends", evaluator_forms={"lines": "lends:FORM"})
"""
INSIDE = '''
from culmen.jail import wire
from culmen.jail.plain import load_file


def run_lines(channel, request, work):
    """The evaluator measures the file of the program."""
    measure = load_file(request["evaluator"], "evaluator").measure
    score, metrics = measure(work / next(iter(request["parts"]))), {"seed": request["seed"]}
    report = {"score": score, "metrics": metrics, "artifacts": {}, "feedback": ""}
    wire.send(channel, "R", wire.encode(report))
'''
MEASURE = """\
def measure(path):
    lines = open(path).read().splitlines()
    if not lines:
        raise ValueError("no lines to count")
    return float(len(lines))
"""


SCRIPT = """\
import asyncio, json
from culmen.core.candidate import Candidate
from culmen.evaluate.local import LocalBackend
from culmen.tasks import loading

task = loading.load("longer")

async def evaluate_both():
    backend = LocalBackend(task, 1)
    await backend.start()
    try:
        texts = ("one\\ntwo\\n", "")
        parts = [Candidate.of({"text.txt": text}) for text in texts]
        return [await backend.evaluate(each, None, 7) for each in parts]
    finally:
        await backend.close()

whole, empty = asyncio.run(evaluate_both())
print(json.dumps([task.evaluator.suffix, whole.score, whole.metrics, whole.trust]))
print(json.dumps([empty.ok, "no lines to count" in empty.feedback, empty.culprit]))
"""


def test_a_form_from_outside_runs_its_evaluator_beside_the_program_in_the_jail(tmp_path: Path):
    venv.create(tmp_path / "own", symlinks=True)
    place = sysconfig.get_path("purelib", "venv", {"base": str(tmp_path / "own")})
    install(Path(place), "lends", JAILED_FORM)
    (Path(place) / "lends_inside.py").write_text(INSIDE)
    source = Path(extensions.__file__).parents[2]
    (Path(place) / "culmen.pth").write_text(f"{source}\n{sysconfig.get_path('purelib')}\n")
    folder = tmp_path / "longer"
    folder.mkdir()
    (folder / "task.toml").write_text(TASK.replace('"length"', '"lines"\npackages = []'))
    (folder / "evaluator.py").write_text(MEASURE)
    (folder / "text.txt").write_text("one\ntwo\n")
    done = subprocess.run(
        [tmp_path / "own" / "bin" / "python", "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    whole, empty = map(json.loads, done.stdout.splitlines())
    assert whole == [".txt", 2.0, {"seed": 7.0}, "self-reported"]
    assert empty == [False, True, ""]  # the trace alone says who raised
