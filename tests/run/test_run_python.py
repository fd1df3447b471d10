"""The Python API at hand: exports of `culmen`, views of a study, lists, frames, progress."""

from __future__ import annotations

import importlib.resources
import inspect
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import culmen
from culmen.core.evaluation import Status


def closeness(program: str) -> tuple[float, dict[str, float]]:
    space: dict = {}
    exec(program, space)
    return -abs(space["area"](2.0) - 12.566), {"radius": 2.0}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> culmen.Study:
    return culmen.optimize(
        "def area(r):\n    return 2.5 * r * r  # <b>\n",
        evaluator=closeness,
        budget=culmen.Budget(evaluations=60),
        deterministic=True,
        run_dir=tmp_path_factory.mktemp("python") / "run",
    )


@pytest.mark.extension("compat", "prompt")
def test_every_name_exists_and_type_checkers_see_the_same_ones():
    assert all(getattr(culmen, name) is not None for name in culmen.__all__)
    source = Path(culmen.__file__).read_text(encoding="utf-8")
    declared = source.partition("if TYPE_CHECKING:")[2].partition("_HOME")[0]
    assert not [
        name
        for name in culmen.__all__
        if name != "__version__" and name not in declared.replace(",", " ").split()
    ]
    assert (importlib.resources.files("culmen") / "py.typed").is_file()
    assert len(culmen.__all__) <= 30


def test_the_search_has_its_parameters_in_its_signature_and_documents_each():
    parameters = inspect.signature(culmen.optimize).parameters
    text = inspect.getdoc(culmen.optimize) or ""
    documented = set(re.findall(r"^(\w+)  +\S", text, re.MULTILINE))
    documented |= {"proposer", "world", "crafts", "observers"}
    assert set(parameters) == documented
    assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def test_a_status_and_a_result_are_printed_as_a_few_aligned_lines(study: culmen.Study):
    shown = str(study.status).splitlines()
    assert len(shown) <= 8 and len({line.index(line.split()[1]) for line in shown}) == 1
    best = study.best
    assert best is not None and str(best).startswith(f"candidate  {best.id}\nscore      ")
    assert str(best).endswith(best.text)


def test_a_custom_strategy_needs_no_import_but_culmen_and_its_settings(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom typing import Annotated\n"
        "from culmen import Brief, Lab, Rollout, Strategy\n"
        "from culmen.strategies.settings import About, check as check_settings\n\n\n"
        "@dataclass(frozen=True)\nclass Mine(Strategy):\n"
        "    width: Annotated[int, About('proposals', least=1)] = 2\n\n"
        "    def __post_init__(self) -> None:\n        check_settings(self)\n\n"
        "    async def search(self, lab: Lab) -> None:\n"
        "        best: Rollout = await lab.evaluate(lab.seeds[0])\n"
        "        while True:\n"
        "            found = await lab.propose(Brief(best.candidate, best.observations, best.reward, k=self.width))\n"
        "            for each in found.candidates:\n                await lab.evaluate(each)\n"
    )
    made = culmen.optimize(
        "def area(r):\n    return 2.5 * r * r\n",
        closeness,
        strategy=f"{tmp_path}/mine.py:Mine",
        budget=culmen.Budget(evaluations=20),
        run_dir=tmp_path / "run",
        progress=False,
    )
    assert made.status.state == "finished"


def test_a_model_that_raises_stop_iteration_ends_the_run(tmp_path: Path) -> None:
    """No future can hold it: its call never ended, and nor did the run."""
    replies = iter(["```python\nx = 1\n```"])
    with pytest.raises(culmen.UserError, match="raised StopIteration"):
        culmen.optimize(
            "x = 0\n",
            lambda text: float(text.count("1")),
            model=lambda _: next(replies),
            budget=culmen.Budget(evaluations=20),
            run_dir=tmp_path / "run",
            progress=False,
        )


def test_a_study_shows_its_result_as_text(study: culmen.Study):
    first, *rest = repr(study).splitlines()
    assert first == f"Study('{study.path}')"
    assert "initial -2.566" in rest[0] and "best -" in rest[0]


def test_a_study_whose_folder_is_gone_still_has_a_text(tmp_path: Path, study: culmen.Study):
    gone = culmen.Study(tmp_path / "gone", study.meta, None)
    assert repr(gone) == f"Study('{tmp_path / 'gone'}')"
    assert "gone" in gone._repr_html_()


def test_a_study_shows_result_curve_and_change_as_html(study: culmen.Study):
    tree = ElementTree.fromstring(study._repr_html_())  # well-formed, texts of candidates escaped
    assert "initial -2.566" in "".join(tree.itertext())
    assert tree.find(".//svg/path") is not None
    changed = "".join(tree.find(".//details").itertext())
    assert "-    return 2.5 * r * r  # <b>" in changed


def test_lists_and_frames_say_the_same(study: culmen.Study):
    candidates, evaluations = study.candidates(), study.evaluations()
    assert evaluations == list(study.observations()) and len(evaluations) > 50
    frame = study.dataframe()
    assert list(frame["id"]) == [row.id for row in candidates]
    assert list(frame.columns) == list(culmen.CandidateRow.__struct_fields__)
    each = study.dataframe("evaluations")
    assert list(each["score"].dropna()) == [
        one.score for one in evaluations if one.score is not None
    ]
    assert set(each["status"]) <= {status.value for status in Status}
    assert set(each["metrics.radius"].dropna()) == {2.0}
    assert study.candidate(study.best.id[:6]).parts == study.best.parts


_SCRIPT = """
import asyncio, sys, culmen
def score(text): return float(len(text))
async def main(): return culmen.optimize("x = 1", score, budget=culmen.Budget(evaluations=8), run_dir="run" {more})
print(asyncio.run(main()))
"""


@pytest.mark.parametrize("more, lines", [("", True), (", progress=False", False)])
def test_progress_says_where_the_run_lies_unless_it_is_not_wanted(
    tmp_path: Path, more: str, lines: bool
):
    """Also where an event loop runs."""
    command = [sys.executable, "-c", _SCRIPT.format(more=more)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("Study('run')")
    assert ("culmen: the run lies in run" in ran.stderr) == lines
    assert "\x1b" not in ran.stderr


def test_a_frame_without_pandas_says_what_to_install(
    study: culmen.Study, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(culmen.UserError, match=r"pip install pandas; or use candidates\(\)"):
        study.dataframe()
