"""The console script and `python -m culmen`: the first page of the help, or `cli.main`."""

from __future__ import annotations

import gc
import sys

from culmen.cli import first_page


def main() -> int:
    """Run the command line of this process and return its exit code."""
    words = sys.argv[1:]
    if first_page.is_answered_here(words):
        sys.stdout.write(first_page.answer(words))
        return 0
    gc.set_threshold(50_000)  # what is imported stays: to search it 70 times is a tenth of a verb
    from culmen.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
