"""A candidate that lives on a tolerance in silence.

It is named under warn and never the best under reject.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.cli.keep import replay_run
from culmen.core.candidate import Candidate
from culmen.core.usage import Budget
from culmen.extensions.audit.cli import find_signs
from culmen.run.study import Study
from culmen.store import views
from tests.evaluate.conftest import need
from tests.extensions.audit.silent import BORDER, SILENT, Border, Silent
from tests.extensions.audit.worlds import Programs

pytestmark = pytest.mark.jail


class OwnPrograms(Programs):
    """Programs that are there without a model or an initial program."""

    writes = True


def evaluator_alone(folder: Path, scorer: str) -> Path:
    """A task that has nothing but its evaluator."""
    folder.mkdir()
    (folder / "task.toml").write_text(
        'name = "alone"\ngoal = "As much as possible."\ndeterministic = true\n[limits]\nseconds = 20\n'
    )
    (folder / "evaluator.py").write_text(scorer)
    return folder


def search(
    folder: Path, case: Silent | Border, texts: tuple[str, ...], policy: str
) -> views.RunStatus:
    """A search that evaluates these programs."""
    study = Study.create(
        evaluator_alone(folder / f"task-{policy}", case.scorer),
        OwnPrograms(texts, "program.py"),
        budget=Budget(evaluations=60),
        run_dir=folder / policy,
        workers=1,
        integrity=policy,
    )
    assert not study.meta.task.seeds
    assert study.run() == "finished"
    return views.run_status(folder / policy)


def ident(text: str) -> str:
    return Candidate.of({"program.py": text}).id


@pytest.mark.slow
@pytest.mark.parametrize(("number", "silent"), list(enumerate(SILENT.values())), ids=list(SILENT))
def test_a_silent_cheat_is_named_and_loses(tmp_path: Path, number: int, silent: Silent) -> None:
    need("restricted")
    cheat, (first, *others) = silent.program(silent.gamed), map(silent.program, silent.honest)
    status = search(tmp_path, silent, (first, cheat, *others), "warn")
    best, before = status.best, status.best_before_first_finding
    assert best is not None and best.id == ident(cheat) and not best.verified
    assert best.tolerance.startswith("used: ") and silent.line in best.tolerance, best.tolerance
    grave = [(each.candidate, each.sign) for each in find_signs(tmp_path / "warn") if each.grave]
    assert grave == [(ident(cheat), "forgiven")]
    assert before is not None and before.id == ident(others[-1])

    # under reject it is evaluated first, while nothing is known, or among others
    texts = (cheat, first, *others) if number % 2 else (first, cheat, *others)
    best = search(tmp_path, silent, texts, "reject").best
    assert best is not None and best.id == ident(others[-1]) and best.verified, best
    assert replay_run(tmp_path / "reject", verify=True).data["matches"]


@pytest.mark.slow
@pytest.mark.parametrize("border", BORDER.values(), ids=list(BORDER))
def test_an_honest_optimum_at_the_border_is_never_accused(tmp_path: Path, border: Border) -> None:
    need("restricted")
    texts = tuple(map(border.program, border.honest))
    best = search(tmp_path, border, texts, "reject").best
    assert best is not None and best.id == ident(texts[-1]), best
    assert not best.tolerance.startswith("used")
    assert not [each for each in find_signs(tmp_path / "reject") if each.grave]
