"""Without the training's packages: as light as ever.

There is one clear sentence where they are needed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from culmen.tasks import example_path

PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "safetensors",
    "tinker",
    "numpy",
    "pandas",
)
HIDING = (
    "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers', 'peft', 'tinker')))\n"
)


def python(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize(
    "modules",
    [
        "culmen",
        "culmen, culmen.cli.main",
        "culmen.extensions.train.plus_plus, culmen.extensions.train",
        "culmen.store.views",
    ],
)
def test_what_is_imported_stays_light(modules: str):
    done = python(
        f"import sys, {modules}\nprint(*(name for name in {PACKAGES!r} if name in sys.modules))"
    )
    assert done.returncode == 0 and done.stdout.split() == [], done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        (
            "run",
            str(example_path("circle_packing")),
            "--strategy",
            "pacevolve_plus_plus",
            "--budget",
            "evaluations=20",
        ),
    ],
)
def test_a_command_that_needs_the_extra_says_so_in_one_sentence(
    arguments: tuple[str, ...], tmp_path: Path
):
    run = (
        HIDING
        + "sys.argv[0] = 'culmen'\nfrom culmen.cli.main import main\nraise SystemExit(main())"
    )
    done = python(run, *arguments, cwd=tmp_path)
    told = " ".join((done.stdout + done.stderr).split())
    assert done.returncode not in (0, 1) and "Traceback" not in told
    assert (
        "this needs torch, which is not installed" in told and "pip install 'culmen[train]'" in told
    )


def test_objectives_and_settings_need_numpy_alone(tmp_path: Path):
    code = HIDING + (
        "from culmen.strategies import catalog\nfrom culmen.extensions.train.objectives import AdvantageRule\n"
        "made = catalog.make_strategy('pacevolve_plus_plus', {'objective': 'max_at_k'})\n"
        "print(made.advantage_rule().training_signal([0.0, 1.0, 2.0, 5.0], 1.0).advantages[3] > 1)"
    )
    done = python(code, cwd=tmp_path)
    assert done.stdout.strip() == "True", done.stderr
