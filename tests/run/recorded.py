"""Small runs recorded by a released version, for later ones to replay and resume.

    python -m tests.run.recorded tests/run/journals/0.1.0

writes them anew with the culmen that is installed: of each strategy one run that finished and one
that was interrupted. Until 0.1.0 is released, that is what to do after a change of what a run
decides, or of where its classes are.
"""

import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

from culmen.run.study import Study, optimize
from culmen.store.archive import archive_run
from culmen.testing.scripted import ScriptedModel

PROGRAM = "A = 0.5\nB = 1.0\nC = 2.0\n\n\ndef run():\n    return A * 2 + B - C / 4\n"
EVALUATIONS, STOPPED_AT = 40, 17
WITH_MODEL = ("gepa",)
STRATEGIES = ("pedigree", *WITH_MODEL)


def evaluate(text, seed=0):
    """Closeness of the program's result to 3; noisy, by the random seed.

    A program that fails is far from it.
    """
    names = {}
    try:
        exec(text, names)  # of our own making
        result = float(names["run"]())
    except (
        ArithmeticError,
        LookupError,
        NameError,
        TypeError,
        ValueError,
    ):  # a traceback would name this file
        result = 100.0
    return -abs(result - 3.0) + (seed % 97) / 970


def answer(call):
    """The script of a model: a program with another number, by the call's random seed."""
    return f"```python\n{PROGRAM.replace('0.5', str(call.seed % 300 / 100))}```"


class Interrupter:
    """An observer that interrupts the session, as Ctrl-C does, after `after` evaluations."""

    def __init__(self, after):
        self._left = after

    def see(self, events):
        self._left -= sum(
            each.entry.kind == "done" and each.entry.effect == "evaluate" for each in events
        )
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGINT)
            self._left = EVALUATIONS

    def told(self, text):
        pass

    remarked = told

    def interrupted(self):
        pass


def objects(name, *observers):
    """Objects that a session of such a run has to be given."""
    given = {"evaluator": evaluate, "observers": observers}
    return {**given, **({"model": ScriptedModel(answer)} if name in WITH_MODEL else {})}


def resume(path, name):
    """Go on with a run that was interrupted; returns its end state."""
    return Study.resume(path, **objects(name)).run(progress=False)


def record(folder):
    """Make all runs and write an archive of each, in the place of those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        for name in STRATEGIES:
            for end, observers in (("finished", ()), ("interrupted", (Interrupter(STOPPED_AT),))):
                run = Path(home) / f"{name}-{end}"
                given = {"model": "offline"} | objects(name, *observers)
                with contextlib.suppress(KeyboardInterrupt):
                    optimize(
                        PROGRAM,
                        strategy=name,
                        budget=EVALUATIONS,
                        run_dir=run,
                        progress=False,
                        workers=2,
                        **given,
                    )
                archive = folder / f"{run.name}.culmen.tar.xz"
                archive.unlink(missing_ok=True)
                archive_run(run, archive, unfinished=True)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
