"""Without the extra: one clear sentence, and nothing heavy imported."""

import subprocess
import sys

import pytest

from culmen.core.errors import UserError
from culmen.extensions.train.engine import import_extra


def test_a_missing_package_is_one_clear_sentence():
    with pytest.raises(UserError, match="which is not installed") as error:
        import_extra("a_package_that_nobody_has", "train")
    assert error.value.fix == "pip install 'culmen[train]'"


def test_neither_culmen_nor_its_strategies_import_torch():
    code = (
        "import sys, culmen, culmen.extensions.train.plus_plus, culmen.extensions.train.advisors, culmen.run.assemble\n"
        "heavy = {'torch', 'transformers', 'peft'} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
