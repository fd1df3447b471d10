"""Train a model outside the jail, where a GPU can be reached; candidates in the jail cannot see one.

    python outside.py --settings paper                 the model of this folder, on the log in data/
    python outside.py --settings paper --made          the same on the small made-up log, to try it out
    python outside.py --settings paper --model FILE    another one: it runs with your rights, so read it first

`judge(text)` does the same in a process of its own that is ended when the time is up; it can be handed to
`culmen.optimize` as the evaluator of a search on a GPU, whose scores are then self-reported.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUDGETS = {"tiny": 120.0, "paper": 1200.0}  # seconds, those of evaluator.SETTINGS
GRACE = 60.0  # seconds for starting Python, reading the log and ending, beside those of the budget


def main():
    parser = argparse.ArgumentParser(description="Train and score one model in this process.")
    parser.add_argument("--settings", default="paper", help="tiny or paper: see evaluator.py")
    parser.add_argument("--model", default=str(HERE / "model.py"))
    parser.add_argument("--back", type=int, default=2, choices=(1, 2), help="2: the view before the last, 1: the last")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--made", action="store_true", help="paper's settings without KuaiRec's log")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    import evaluator

    if options.settings not in evaluator.SETTINGS:
        sys.exit(f"there are no settings '{options.settings}': use one of {', '.join(evaluator.SETTINGS)}")
    if options.settings == "paper" and evaluator.FILE is None and not options.made:
        wanted = HERE / "data" / "interactions.npz"
        sys.exit(f"paper's settings need KuaiRec's log: {wanted} is missing.\n{evaluator.interactions.SOURCE}")
    spec = importlib.util.spec_from_file_location("model", options.model)
    model = importlib.util.module_from_spec(spec)
    sys.modules["model"] = model
    try:
        spec.loader.exec_module(model)
        import training
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        sys.exit("this needs torch, which is not installed: pip install 'culmen[train]'")
    if evaluator.SETTINGS[options.settings]["device"] == "cpu":
        import torch

        torch.set_num_threads(1)  # as in the jail
    begun = time.monotonic()
    info = {"settings": options.settings, "back": options.back}
    result = evaluator.evaluated(training.fit, lambda name, *given: getattr(training, name)(*given), info, options.seed)
    print(json.dumps({**result, "seconds": time.monotonic() - begun, "device": training.STATE["device"]}))


def judge(text, settings="paper", back=2, seed=0):
    """(score, what is known of it) of a model's text; raises TimeoutError, or RuntimeError with the last words."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.py"
        path.write_text(text, encoding="utf-8")
        line = [sys.executable, str(HERE / "outside.py"), "--model", str(path)]
        line += ["--settings", settings, "--back", str(back), "--seed", str(seed)]
        allowed = BUDGETS[settings]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=allowed + GRACE, check=False)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"training and scoring took more than {allowed:.0f} s") from None
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-2000:])
    result = json.loads(done.stdout.splitlines()[-1])
    if result["score"] is None:
        raise RuntimeError(result["feedback"])
    return result["score"], {"feedback": result["feedback"], **result["metrics"]}


if __name__ == "__main__":
    main()
