"""Share of the offline proposer's children that compile, by language and operator.

    python bench/bench_languages.py 40

Parents are the programs of `culmen new --language`; each child has one edit. Only the compilers'
front ends run, outside of the jail.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from culmen.core.candidate import Candidate
from culmen.models.offline.tools import vary_candidate
from culmen.tasks.languages import LANGUAGES

CHECKS = {
    "c": ("gcc", "-fsyntax-only"),
    "cpp": ("g++", "-fsyntax-only"),
    "rust": ("/usr/bin/rustc", "--emit=metadata", "--crate-type", "bin"),
    "go": ("go", "vet"),
    "javascript": ("node", "--check"),
}
OPERATORS = ("numbers", "operators", "lines")


def compiles(command: tuple[str, ...], name: str, text: str) -> bool:
    """True if the compiler accepts the program."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text)
        settings = {**os.environ, "GO111MODULE": "off"}
        ran = subprocess.run(
            [*command, name], cwd=folder, env=settings, capture_output=True, check=False
        )
    return ran.returncode == 0


def main() -> None:
    """Print a table."""
    count = int(sys.argv[1])
    print(f"{'':12}" + "".join(f"{name:>12}" for name in OPERATORS) + f"{count:>8} each")
    for language, made in LANGUAGES.items():
        parent, shares = Candidate.of({made.file: made.program}), list[str]()
        for name in OPERATORS:
            children = [
                vary_candidate((parent,), {"weights": {name: 1.0}, "count": 1}, Random(seed))
                for seed in range(count)
            ]
            texts = [child.parts[0][made.file] for child in children if child.parts]
            good = sum(compiles(CHECKS[language], made.file, text) for text in texts)
            shares.append(f"{good}/{len(texts)}")
        print(f"{language:12}" + "".join(f"{share:>12}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
