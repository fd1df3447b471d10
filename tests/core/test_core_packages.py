"""Advice on missing modules names packages of a table, or those of this environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.packages import PACKAGES, install_hint, module_advice


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("cv2", "opencv-python-headless"),
        ("skimage.metrics", "scikit-image"),
        ("sklearn", "scikit-learn"),
        ("yaml", "PyYAML"),
        ("PIL.Image", "pillow"),
        ("google.generativeai", "google-generativeai"),
        ("shinka.llm", "shinka-evolve"),
        ("scipy.optimize", "scipy"),
    ],
)
def test_a_known_module_is_installed_by_its_package(module: str, package: str) -> None:
    assert module_advice(module).endswith(f"-m pip install {package}")


@pytest.mark.parametrize("module", ["shinky", "utils", "helpers.deep", "googel", "tensorflwo"])
def test_an_unknown_module_is_no_name_of_a_package(module: str) -> None:
    advice = module_advice(module)
    assert "pip install" not in advice and f"'{module}'" in advice


def test_a_module_that_an_installed_package_lacks_names_that_package() -> None:
    assert "msgspec" not in PACKAGES
    advice = install_hint("ModuleNotFoundError: No module named 'msgspec.nothing'")
    assert "the installed msgspec " in advice and "pip install" not in advice


@pytest.mark.parametrize("above", [".", "..", "../.."])
def test_a_file_of_ones_own_near_by_is_named(above: str, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "task"
    folder.mkdir(parents=True)
    helper = (folder / above / "yaml.py").resolve()
    helper.write_text("")
    trace = f"  File \"{folder}/evaluator.py\", line 2, in <module>\nNo module named 'yaml'"
    advice = install_hint(trace)
    assert str(helper) in advice and "pip install" not in advice
