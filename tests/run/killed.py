"""Small runs that one text of a model had ended, recorded before such texts became faults.

    python -m tests.run.killed tests/run/killed

was run with the culmen that they ended; today's would end the runs properly. Each has a text of
culmen's own making that a model may write: it is no attack on Python or on a library.
"""

import json
import sys
import tempfile
from pathlib import Path

from culmen.run.study import Study, optimize
from culmen.store.archive import archive_run
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


def start(name, run):
    """Start such a run, and return the study."""
    return optimize(
        SUM if name == "initial" else PROGRAM,
        evaluator=evaluate,
        strategy=STRATEGIES.get(name, "best_of_n"),
        model=model(name),
        budget=EVALUATIONS,
        workers=1,
        run_dir=run,
        progress=False,
    )


def resume(name, run):
    """Go on with such a run; returns its end state."""
    given = {"evaluator": evaluate, "model": model(name)}
    return Study.resume(run, **given).run(progress=False)


def record(folder):
    """Make the runs, each of which raises, and write an archive of each."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        for name in NAMES:
            run = Path(home) / name
            try:
                start(name, run)
            except Exception as error:  # noqa: BLE001 (which error it is, is what is recorded)
                print(f"{name}: {type(error).__name__}: {str(error)[:100]}")
                archive_run(run, folder / f"{name}.culmen.tar.xz", unfinished=True)
            else:
                print(f"{name}: ended, not recorded")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
