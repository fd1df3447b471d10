"""The evaluators of `bench_inherit.py`: one for each kind of state.

Its score is that state.

A `Row` is one kind of state. Its evaluator runs `setup` once, at import, and `body` in each
evaluation, as the body of `measure(output)`; `program` is the text of the candidate, in which
NUMBER stands for its number. `wrap_evaluator` makes the evaluator's whole text for a form.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

Kind = Literal["draws", "count", "first", "value"]

PROGRAM = "def run():\n    return NUMBER\n"


@dataclass(frozen=True)
class Row:
    """One kind of state, and the meaning of its score.

    draws   a random number
    count   larger the more evaluations left something before
    first   the output of the program for which the state was made
    value   a value that no evaluation should change
    """

    kind: Kind
    setup: str = ""
    body: str = "return output"
    program: str = PROGRAM
    database: bool = False  # true if data.db lies beside the evaluator


IMPORTS = """
import decimal, functools, gc, importlib, importlib.util, locale, os, random, signal, sqlite3
import subprocess, sys, tempfile, threading, time, warnings
from concurrent.futures import ThreadPoolExecutor
import numpy as np

PLACE = tempfile.gettempdir()
"""

WRAPPERS = {
    "function": """
def evaluate(text):
    space = {}
    exec(text, space)
    return measure(float(space["run"]()))
""",
    "call": """
def score(output):
    return measure(float(output))
""",
    "serve": """
def score(call):
    return measure(float(call()))
""",
    "path": """
def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"combined_score": float(measure(float(module.run())))}
""",
}


def wrap_evaluator(setup: str, body: str, form: str) -> str:
    """The text of an evaluator of a form: function, call, serve or path."""
    measure = f"def measure(output):\n{textwrap.indent(body.strip(), '    ')}\n"
    return f"{IMPORTS}{setup.strip()}\n\n{measure}{WRAPPERS[form]}"


COUNTED_FILE = """
with open(FILE, "a+") as file:
    file.seek(0)
    lines = len(file.readlines())
    file.write("x\\n")
return lines
"""


def setting(read: str, change: str, setup: str = "") -> Row:
    """A setting of the process that each evaluation changes; its score is the setting found."""
    return Row("count", setup, f"found = {read}\n{change}\nreturn float(found)")


WORDS = '{"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"}'
SET_ORDER = f"sum(i * ord(word[0]) for i, word in enumerate({WORDS}))"


def program(setup: str, value: str) -> str:
    """A program with a state of its own; its number changes its text, but not its output."""
    return f"{setup}\ndef run():\n    return {value} + 0 * NUMBER\n"


HELPER = """
with open(os.path.join(PLACE, "inherit_helper.py"), "w") as file:
    file.write(f"VALUE = {output}\\n")
importlib.invalidate_caches()
import inherit_helper
return inherit_helper.VALUE
"""

ID_ORDER = """
many = [object() for _ in range(50)]
return sum(i * (id(each) // 16 % 997) for i, each in enumerate(many))
"""

DATABASE = 'db = sqlite3.connect(os.path.join(os.path.dirname(__file__), "data.db"))'
COUNTED_ROWS = 'return db.execute("select count(*) from t").fetchone()[0]'
ADDED_ROW = f"""
{DATABASE}
db.execute("insert into t values (1)")
db.commit()
{COUNTED_ROWS}
"""

ROWS: dict[str, Row] = {
    "np_gen_seeded": Row("draws", "rng = np.random.default_rng(3)", "return rng.random()"),
    "random_seed_import": Row("draws", "random.seed(3)", "return random.random()"),
    "np_seed_inside": Row("draws", "", "np.random.seed(0)\nreturn np.random.random()"),
    "np_gen_unseeded": Row("draws", "rng = np.random.default_rng()", "return rng.random()"),
    "instances_import": Row("draws", "data = np.random.default_rng().random(5)", "return data[0]"),
    "instances_import_global": Row("draws", "data = np.random.random(5)", "return data[0]"),
    "lru_cache": Row(
        "first",
        "now = [0]\n@functools.lru_cache\ndef solve(size):\n    return now[0]",
        "now[0] = output\nreturn solve(10)",
    ),
    "counter": Row("count", "count = 0", "global count\ncount += 1\nreturn count - 1"),
    "file_beside": Row(
        "count",
        'FILE = os.path.join(os.path.dirname(__file__), "log.txt")',
        COUNTED_FILE,
    ),
    "temp_file": Row("count", 'FILE = os.path.join(PLACE, "inherit_log.txt")', COUNTED_FILE),
    "environ": setting('os.environ.get("INHERIT", 0)', 'os.environ["INHERIT"] = "1"'),
    "same_helper": Row(
        "first",
        "sys.path.insert(0, PLACE)\nsys.dont_write_bytecode = True",
        HELPER,
    ),
    "set_order": Row("value", "", f"return {SET_ORDER}"),
    "time_seed": Row("draws", "", "return np.random.default_rng(time.time_ns()).random()"),
    "id_order": Row("draws", "", ID_ORDER),
    "blas": Row(
        "value",
        "left = np.linspace(0, 1, 40000).reshape(200, 200)",
        "return float((left @ left.T).sum())",
    ),
    "threads_env": Row("value", "", 'return float(os.environ.get("OMP_NUM_THREADS", -1))'),
    "pool": Row("value", "pool = ThreadPoolExecutor(2)", "return sum(pool.map(abs, range(9)))"),
    "thread_left": setting(
        "threading.active_count()",
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    ),
    "alarm": Row(
        "value",
        "signal.signal(signal.SIGALRM, lambda *_: None)",
        "signal.alarm(20)\nsignal.alarm(0)\nreturn 1.0",
    ),
    "cand_np_gen": Row(
        "draws",
        program=program("import numpy as np\nrng = np.random.default_rng(0)", "rng.random()"),
    ),
    "cand_random_global": Row("draws", program=program("import random", "random.random()")),
    "cand_np_unseeded": Row(
        "draws",
        program=program("import numpy as np\nrng = np.random.default_rng()", "rng.random()"),
    ),
    "cand_set_order": Row("value", program=program("", SET_ORDER)),
    "cand_file": Row("value", program=program("", "len(open(__file__).read()) * 0")),
    "fds": Row("count", "", "return os.open(os.devnull, os.O_RDONLY)"),
    "sqlite": Row("value", DATABASE, COUNTED_ROWS, database=True),
    "sqlite_write": Row("count", "", ADDED_ROW, database=True),
    "subprocess_left": setting(
        "sum(each.poll() is None for each in kept)",
        'kept.append(subprocess.Popen(["sleep", "20"]))',
        "kept = []",
    ),
    "chdir": setting("os.path.samefile(os.getcwd(), PLACE)", "os.chdir(PLACE)"),
    "warnings": setting(
        "len(warnings.filters)",
        'warnings.filterwarnings("ignore", message=f"inherit {found}")',
    ),
    "np_seterr": setting('np.geterr()["over"] == "ignore"', 'np.seterr(over="ignore")'),
    "decimal": setting("decimal.getcontext().prec", "decimal.getcontext().prec = found + 1"),
    "locale": setting(
        'locale.setlocale(locale.LC_NUMERIC) == "C.UTF-8"',
        'locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")',
    ),
    "recursion": setting("sys.getrecursionlimit()", "sys.setrecursionlimit(found + 1)"),
    "gc": setting("gc.get_threshold()[0]", "gc.set_threshold(found + 1)"),
}
