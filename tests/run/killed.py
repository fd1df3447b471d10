"""Small runs that one text of a model had ended: they break off when it is in their journal.

Each has a text of culmen's own making that a model may write: it is no attack on Python or on a
library.
"""

import contextlib
import json
import os
from multiprocessing import get_context

from culmen.core.errors import NoAnswer
from culmen.run.study import Study, optimize
from culmen.testing.scripted import ScriptedModel
from tests.run.recorded import evaluate

PROGRAM = "A = 0.5\n\n\ndef run():\n    return A\n"
EVALUATIONS = 12


def program(line):
    """The program, with one more line above its function."""
    return PROGRAM.replace("\n\n\n", f"\n{line}\n\n\n", 1)


SUM = program(f"LONG = {' + '.join(['1'] * 520)}")
HEX = f"0x{'F' * 3600}"  # 4,335 decimal digits
FENCED = "```python\n{}```".format
PLAN = '{{"experiments": [{{"idea": {}, "description": "d", "experiment": "raise A"}}]}}'.format


BETTER = PROGRAM.replace("0.5", "0.7")


def verbalized(probability, text=BETTER):
    """A reply with one candidate, whose probability is these digits."""
    return f'{{"responses": [{{"code": {json.dumps(text)}, "probability": {probability}}}]}}'


REPLIES = {
    "sum": FENCED(SUM),
    "print": FENCED(program(f"if A > 9:\n    print({HEX})")),
    "compare": FENCED(program(f"VALID = A < 9 or tolerance < {HEX}")),
    "probability": verbalized("1" * 401),
    "emoji": verbalized("0.5", program('"half a sign: \ud83d"')),
    "power": PLAN('"\u00b2"'),
    "digits": PLAN(f'"{"7" * 5000}"'),
}
STRATEGIES = {"probability": "turboevolve", "emoji": "turboevolve", "power": "pacevolve"}
STRATEGIES |= {"digits": "pacevolve"}
NAMES = (*REPLIES, "initial")  # the last has the long sum in its initial program


def model(name):
    """A model that replies this to every request; its name keeps it apart in the reply cache."""
    reply = REPLIES.get(name, FENCED(BETTER))

    def script(call):
        advised = STRATEGIES.get(name) == "pacevolve" and "experiments" not in call.prompt
        return FENCED(PROGRAM.replace("0.5", str(call.seed % 300 / 100))) if advised else reply

    made = ScriptedModel(script)
    made.name = f"scripted-{name}"
    return made


def start(name, run, observers=()):
    """Start such a run; returns once it has ended, also without one usable answer."""
    return _ended(
        optimize,
        SUM if name == "initial" else PROGRAM,
        evaluator=evaluate,
        strategy=STRATEGIES.get(name, "best_of_n"),
        model=model(name),
        budget=EVALUATIONS,
        workers=1,
        run_dir=run,
        progress=False,
        observers=observers,
    )


def resume(name, run):
    """Go on with such a run to its end."""
    study = Study.resume(run, evaluator=evaluate, model=model(name))
    _ended(study.run, progress=False)


def _ended(work, *args, **options):
    with contextlib.suppress(NoAnswer):  # a good end where no answer of the model can be used
        work(*args, **options)


class Killer:
    """An observer that kills its process when a model's first reply is durable."""

    def __init__(self, kind):
        self.kind = kind

    def see(self, events):
        if any(each.entry.kind == "done" and each.entry.effect == self.kind for each in events):
            os._exit(9)


def kill(name, run):
    """Start such a run in a process that ends where the text had ended it."""
    kind = "evaluate" if name == "initial" else "propose"
    child = get_context("fork").Process(target=start, args=(name, run, [Killer(kind)]))
    child.start()
    child.join(60)
    assert child.exitcode == 9
