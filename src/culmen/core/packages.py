"""Advice on a missing Python module: its package, never guessed from its name.

A stranger may own a module's name in a registry of packages, and coding agents follow advice.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_MISSING = re.compile(r"No module named '([\w.]+)'")
_FILE = re.compile(r'File "([^"<>]+)", line \d+')

PACKAGES = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "Levenshtein": "python-Levenshtein",
    "OpenSSL": "pyOpenSSL",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "google.generativeai": "google-generativeai",
    "google.protobuf": "protobuf",
    "igraph": "igraph",
    "jwt": "PyJWT",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "openevolve": "openevolve",
    "ot": "POT",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "pysat": "python-sat",
    "rdkit": "rdkit",
    "serial": "pyserial",
    "shinka": "shinka-evolve",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "sentence_transformers": "sentence-transformers",
    "umap": "umap-learn",
    "yaml": "PyYAML",
    "z3": "z3-solver",
    **{
        name: name
        for name in (
            *("cvxpy", "datasets", "gymnasium", "h5py", "hnswlib", "httpx", "jax", "joblib"),
            *("lightgbm", "matplotlib", "mpmath", "networkx", "nltk", "numba", "numpy", "openai"),
            *("optuna", "ortools", "pandas", "polars", "psutil", "pulp", "pyarrow", "pydantic"),
            *("pytest", "requests", "scipy", "seaborn", "shapely", "spacy", "statsmodels"),
            *("sympy", "tiktoken", "torch", "torchvision", "tqdm", "transformers", "xgboost"),
        )
    },
}
"""Packages by the module that they are known to bring; the names of many differ."""


def install_hint(traceback: str) -> str:
    """Advice on the module missing in a traceback; "" if none is missing."""
    found = _MISSING.search(traceback)
    return module_advice(found[1], traceback) if found else ""


def module_advice(module: str, traceback: str = "") -> str:
    """Advice on a missing module.

    A file of its name near those of the traceback is the user's own. Else the package is one that
    is known (`PACKAGES`), or that is installed and lacks the module.
    """
    from importlib.metadata import packages_distributions, version  # takes 30 ms

    top = module.partition(".")[0]
    near = _find_near(top, traceback)
    if near is not None:
        return f"'{top}' is {near}: put it beside the evaluator, or add its folder to sys.path"
    package = PACKAGES.get(".".join(module.split(".")[:2]), PACKAGES.get(top, ""))
    installed = packages_distributions().get(top, [])
    if not package and installed:
        installed_version = f"{installed[0]} {version(installed[0])}"
        return f"the installed {installed_version} has no '{module}': install one that has"
    if package:
        return f"install it where culmen is: {sys.executable} -m pip install {package}"
    return (
        f"install what brings the module '{module}' where culmen is ({sys.executable}); a package "
        "of the same name need not be it"
    )


def _find_near(module: str, traceback: str) -> Path | None:
    """The user's own file or folder of this name, near the files of a traceback."""
    for name in reversed(_FILE.findall(traceback)):
        for folder in list(Path(name).parents)[:3]:  # its own, and two above
            if folder.name in ("site-packages", "dist-packages") or folder == Path("/"):
                break
            for path in (folder / f"{module}.py", folder / module / "__init__.py"):
                if path.is_file():
                    return path if path.name != "__init__.py" else path.parent
    return None
