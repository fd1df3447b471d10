"""Evaluators of the form legacy with the candidate in another process.

The things they see of it, and those they do not.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from culmen.core.evaluation import Observation, Status
from tests.evaluate.conftest import LIMITS, Grounds
from tests.extensions.compat.openevolve.proxied import LOAD, ROOMY, Make

pytestmark = pytest.mark.jail


@pytest.fixture
def ground(shared: Grounds) -> Grounds:
    return shared


def asked(
    ground: Make, body: str, program: str, accept: tuple[str, ...] = (), **more: Any
) -> Observation:
    """The judgement of an evaluator with this body on a program.

    `p` is the program's module, `np` NumPy.
    """
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    source = f"{LOAD}\nimport numpy as np\ndef evaluate(path):\n    p = load(path)\n{lines}\n    return 1.0\n"
    arena = ground(
        source, form="legacy", options={"accept": list(accept)}, **{"limits": ROOMY, **more}
    )
    assert arena.backend.scoring.trust == "proxied"
    return arena.one(program)


VALUES = """
import numpy as np
DATA = {
    "none": None, "yes": True, "whole": 2**70, "real": 0.1, "z": 1j, "text": "ä", "raw": b"\\x00", "pair": (1, (2, 3)),
    "list": [1, [2]], "set": {1, 2}, "frozen": frozenset([3]), "keys": {1: "a", (1, 2): "b", "$": 1},
    "array": np.arange(6.0).reshape(2, 3), "bools": np.array([True, False]), "small": np.arange(3, dtype=np.int8),
    "nothing": np.zeros((0, 4)), "number": np.float32(1.5), "count": np.int64(7), "point": np.array(2.0),
    "turned": np.arange(6).reshape(2, 3).T, "bytes": bytearray(b"ab"), "range": range(1, 9, 2),
}
def get(name): return DATA[name]
def same(value): return value
def kind(value): return type(value).__name__ + (str(value.dtype) if hasattr(value, "dtype") else "")
"""


def test_data_keeps_its_types_both_ways(ground: Make) -> None:
    body = """
for name, value in p.DATA.items():
    once, twice = p.get(name), p.same(p.get(name))
    for other in (once, twice):
        assert type(other) is type(value), (name, type(other), type(value))
        assert np.array_equal(other, value) if isinstance(value, np.ndarray) else other == value, name
    assert p.kind(value) == p.kind(once), name
assert p.get("array").flags.writeable and p.get("array").dtype == np.float64 and p.get("turned").shape == (3, 2)
assert p.get("number").dtype == np.float32
"""
    observation = asked(ground, body, VALUES)
    assert observation.ok, observation.feedback


def test_modules_look_like_modules(ground: Make) -> None:
    body = """
import inspect, types
assert isinstance(p, types.ModuleType) and p.__name__ == "program" and p.__doc__ == "Doc." and p.__file__ == path
assert inspect.isfunction(p.f) and callable(p.f) and p.f.__name__ == "f" and p.f.__doc__ == "Does."
assert str(inspect.signature(p.f)) == "(a, b=2, *c, d, **e)" and p.f(1, d=4) == (1, 2, (), 4, {})
assert hasattr(p, "f") and not hasattr(p, "g") and "f" in dir(p) and p.N == 3 and p.bump() == 4 and p.N == 4
assert p.f is p.f and getattr(p, "missing", None) is None
p.N = 10
assert p.bump() == 11 and p.N == 11
p.helper = lambda x: 2 * x
assert p.uses_helper(4) == 8
space = {"__name__": "copied"}
exec(open(path).read(), space)
assert space["f"](5, d=1)[0] == 5
sys.path.insert(0, os.path.dirname(path))
again = __import__(os.path.basename(path)[:-3])
assert again.N == 3 and p.N == 11
import shutil, tempfile
copy = os.path.join(tempfile.mkdtemp(), "solution.py")
shutil.copy(path, copy)
assert load(copy).bump() == 4
"""
    program = (
        '"""Doc."""\nN = 3\n'
        'def f(a, b=2, *c, d, **e):\n    """Does."""\n    return a, b, c, d, e\n'
        "def bump():\n    global N\n    N += 1\n    return N\n"
        "def helper(x): return x\ndef uses_helper(x): return helper(x)\n"
    )
    observation = asked(ground, body, program)
    assert observation.ok, observation.feedback


OBJECTS = """
class Agent:
    \"\"\"Acts.\"\"\"
    LIMIT = 7
    made = 0
    def __init__(self, size=1): self.size = size; Agent.made += 1
    def act(self, observation): self.size += observation; return self.size
    def __len__(self): return 3
    def __getitem__(self, key): return key * 2
    def __contains__(self, key): return key == 5
    def __call__(self, x): return x + 100
    def __iter__(self): return iter([1, 2])
    def __enter__(self): return self
    def __exit__(self, *error): self.size = -1
    def __eq__(self, other): return True
    def __lt__(self, other): return True
    def __float__(self): return 100.0
    def sum(self, *a, **k): return 100.0
    @staticmethod
    def rule(): return "rule"
class Odd(ValueError): pass
def make(): return Agent(2)
def agents(): return [Agent(), Agent()]
def fail(kind): raise {"odd": Odd("odd", 3), "key": KeyError("k"), "zero": ZeroDivisionError("z")}[kind]
def solver(): return lambda x: x + 1
def numbers():
    got = yield 1
    yield got
    return 5
async def later(x): return x * 2
"""
ACCEPTED = (
    "make() an object",
    "agents() an object",
    "Agent() an object",
    "solver() an object",
    "__enter__() an object",
)


def test_objects_stay_where_they_are_and_are_used_by_name(ground: Make) -> None:
    body = """
a = p.make()
assert isinstance(a, p.Agent) and isinstance(p.Agent(5), p.Agent) and not isinstance(a, p.Odd)
assert (a.size, a.act(3), a.act(observation=1), a.size) == (2, 5, 6, 6)
assert (a.LIMIT, p.Agent.LIMIT, p.Agent.rule()) == (7, 7, "rule")
a.size = 20
assert a.act(1) == 21 and len(a) == 3 and a[4] == 8 and 5 in a and 6 not in a and a(1) == 101 and list(a) == [1, 2]
with a as b:
    assert b is a
assert a.size == -1 and [x.act(1) for x in p.agents()] == [2, 2]
assert a != 5 and not (a == p.make())  # comparisons are not forwarded
for wrong in (lambda: a < 1, lambda: float(a), lambda: a + 1):
    try:
        wrong()
    except TypeError:
        continue
    raise AssertionError(wrong)
assert p.solver()(1) == 2
g = p.numbers()
assert next(g) == 1 and g.send(9) == 9 and list(g) == [] and list(p.numbers()) == [1, None]
import asyncio
assert asyncio.run(p.later(4)) == 8
try:
    class Mine(p.Agent): pass
except TypeError: pass
else: raise AssertionError
"""
    observation = asked(ground, body, OBJECTS, ACCEPTED)
    assert observation.ok, observation.feedback


def test_exceptions_arrive_as_what_they_are(ground: Make) -> None:
    body = """
import traceback
try: p.fail("odd")
except p.Odd as error:
    assert error.args == ("odd", 3) and "in fail" in traceback.format_exc()
for kind, name in ((KeyError, "key"), (ZeroDivisionError, "zero")):
    try: p.fail(name)
    except kind as error: assert str(error) in ("'k'", "z")
"""
    observation = asked(ground, body, OBJECTS)
    assert observation.ok, observation.feedback
    raised = asked(ground, "p.fail('zero')", OBJECTS)
    assert (raised.status, raised.reason) == (
        Status.ERROR,
        "exception",
    ) and "in fail" in raised.feedback


def test_functions_of_the_evaluator_can_be_called_back(ground: Make) -> None:
    body = """
calls = []
def objective(x):
    calls.append(np.asarray(x).copy())
    return float(np.sum(np.asarray(x) ** 2))
assert np.isclose(p.minimize(objective, np.array([3.0, 4.0])), 12.5) and [c.shape for c in calls] == [(2,), (2,)]
class Stop(Exception): pass
def stops(x): raise Stop("enough")
assert p.guarded(stops) == "Stop: enough"
assert p.minimize(lambda x: p.double(1.0), [0.0]) == 2.0
assert p.draw(np.random.default_rng(7)) == np.random.default_rng(7).random()
import random
assert p.plain_draw(random.Random(3)) == random.Random(3).random()
try: p.minimize(object(), [1.0])
except ValueError as error: assert "cannot be passed" in str(error)
else: raise AssertionError
"""
    program = (
        "import numpy as np\n"
        "def minimize(f, x):\n    return min(f(x), f(np.asarray(x) / np.sqrt(2)))\n"
        "def guarded(f):\n    try: return f(1)\n    except Exception as error: return str(error)\n"
        "def double(x): return 2 * x\n"
        "def draw(rng): return rng.random()\ndef plain_draw(rng): return rng.random()\n"
    )
    observation = asked(ground, body, program)
    assert observation.ok, observation.feedback


def test_what_the_evaluator_seeds_is_seeded(ground: Make) -> None:
    body = """
import random
np.random.seed(11); random.seed(12)
expected = (np.random.rand(), random.random())
np.random.seed(11); random.seed(12)
assert p.draw() == expected
"""
    program = (
        "import random\nimport numpy as np\ndef draw(): return np.random.rand(), random.random()\n"
    )
    observation = asked(ground, body, program)
    assert observation.ok, observation.feedback


def test_random_numbers_of_the_evaluator_cannot_be_foretold(ground: Make) -> None:
    """Its own draws are not the program's draws: a secret stays one."""
    body = """
import random
assert p.guess() != (random.random(), np.random.rand())
return abs(random.random() - p.guess()[0])
"""
    program = (
        "import random\nimport numpy as np\nstate = random.getstate(), np.random.get_state()\n"
        "def guess():\n    random.setstate(state[0]); np.random.set_state(state[1])\n"
        "    return random.random(), np.random.rand()\n"
    )
    first, again = (asked(ground, body, program) for _ in range(2))
    assert first.ok and first.score == again.score, first.feedback  # and yet the same each time


def test_an_import_of_everything_leaves_pythons_own_functions_alone(ground: Make) -> None:
    body = """
space = {}
sys.modules["program"] = p
exec("from program import *\\ntotal = sum(radii())", space)
assert "radii" in space and p.sum([1.0]) == 100.0
return space["total"]
"""
    for every in ("", "__all__ = ['radii', 'sum']\n"):
        program = f"{every}def radii(): return [0.25, 0.25]\ndef sum(values): return 100.0\n"
        observation = asked(ground, body, program)
        assert observation.score == 0.5, observation


FORGED = [
    ("1e999", b"", "bad_output"),
    ('{"$":"scalar","v":["<f8","nan"]}', b"", "bad_output"),
    ('{"$":"scalar","v":["<f4",1e300]}', b"", "not_finite"),
    ('{"$":"complex","v":["nan",0.0]}', b"", "bad_output"),
    ('{"$":"array","v":["|b1",[2],0,2]}', b"\xff\xff", "bad_output"),
    (
        '{"$":"tuple","v":[{"$":"array","v":["<f8",[1],0,8]},{"$":"array","v":["<f8",[1],0,8]}]}',
        bytes(8),
        "bad_output",
    ),
]


@pytest.mark.parametrize(("text", "tail", "reason"), FORGED)
def test_forged_frames_bring_nothing_across(
    ground: Make, text: str, tail: bytes, reason: str
) -> None:
    """The program writes its frames itself.

    The evaluator takes whatever it gets for a good score.
    """
    program = (
        "import struct\nfrom culmen.jail import wire\n"
        "def f():\n    wire.ValueWriter.encode = lambda *_: "
        f"struct.pack('<I', {len(text)}) + {text.encode()!r} + {tail!r}\n"
    )
    observation = asked(ground, "try: p.f()\nexcept BaseException: pass\nreturn 50.0", program)
    assert (observation.status, observation.score, observation.reason) == (
        Status.INVALID,
        None,
        reason,
    ), observation


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        ("def f(): return float('nan')", Status.INVALID, "not_finite"),
        ("def f(): return {'a': [1.0, float('inf')]}", Status.INVALID, "not_finite"),
        (
            "import numpy as np\ndef f(): return np.array([1.0, np.nan])",
            Status.INVALID,
            "not_finite",
        ),
        ("import numpy as np\ndef f(): return np.float32('inf')", Status.INVALID, "not_finite"),
        ("def f(): return object()", Status.INVALID, "bad_output"),
        ("class f:\n    def sum(self, **k): return 100.0", Status.OK, ""),
        (
            "class C:\n    def sum(self, **k): return 100.0\ndef f(): return C()",
            Status.INVALID,
            "bad_output",
        ),
        ("def f(): return [lambda: 1]", Status.INVALID, "bad_output"),
        ("import numpy as np\ndef f(): return np.zeros(1 << 24)", Status.REJECTED, "output_limit"),
        ("def f(): return 'x' * (1 << 27)", Status.REJECTED, "output_limit memory_limit"),
        ("def f(): return 10**100_000", Status.INVALID, "bad_output"),
        ("import os\ndef f(): os._exit(7)", Status.ERROR, "no_output"),
        ("import os\ndef f(): os.abort()", Status.ERROR, "crash"),
        ("def f():\n    while True: pass", Status.TIMEOUT, "timeout"),
        ("while True: pass", Status.TIMEOUT, "timeout"),
        (
            "import os, struct\ndef f():\n    for fd in range(3, 20):\n        try: os.write(fd, b'junk' * 100)\n"
            "        except OSError: pass",
            None,
            "",
        ),
    ],
)
def test_failures_cannot_be_caught_away(
    ground: Make, program: str, status: Status | None, reason: str
) -> None:
    """The evaluator catches everything and returns a good score: it is not taken for one."""
    body = "try:\n    value = float(np.sum(p.f()))\nexcept BaseException:\n    return 50.0"
    limits = msgspec.structs.replace(LIMITS, memory_mb=384)
    observation = asked(ground, body, program, accept=("any class",), limits=limits)
    if status is None:
        assert observation.score in (None, 50.0) and observation.status is not Status.LOST
    elif status is Status.TIMEOUT or status is Status.REJECTED:
        assert observation.score is None and observation.status in (
            status,
            Status.TIMEOUT,
            Status.REJECTED,
        ), observation
    elif observation.status is not Status.OK or status is not Status.OK:
        assert (observation.status, observation.score) == (status, None), observation
        assert observation.reason in reason.split(), observation
    assert observation.trust == "proxied"


def test_memory_and_time_hold_for_the_evaluator_too(ground: Make) -> None:
    slow = asked(ground, "while True: pass", "x = 1", limits=LIMITS)
    assert (slow.status, slow.reason) == (Status.TIMEOUT, "timeout")
    large = asked(ground, "x = bytearray(1 << 30)", "x = 1", limits=LIMITS)
    assert large.reason in ("exception", "memory_limit") and large.score is None
    gone = asked(ground, "os._exit(3)", "x = 1", limits=LIMITS)
    assert (gone.status, gone.reason) == (Status.LOST, "scorer_error")


def test_the_candidate_sees_neither_the_evaluator_nor_its_files(ground: Make) -> None:
    body = f"""
open("notes.txt", "w").write("mine")
assert p.look({LOAD.split()[1]!r}) == "nothing"
"""
    program = (
        "import os\n"
        "def look(word):\n"
        "    seen = []\n"
        "    for top in ('/', '/tmp', '/w', os.getcwd()):\n"
        "        for folder, _, names in os.walk(top):\n"
        "            folder.count('/') < 7 or _.clear()\n"
        "            if folder.startswith(('/usr', '/proc', '/sys', '/lib')): _.clear(); continue\n"
        "            seen += [os.path.join(folder, n) for n in names if n in ('evaluator.py', 'notes.txt', 'socket')"
        " and 'site-packages' not in folder and 'culmen' not in folder.split('/')]\n"
        "    return ' '.join(seen) or 'nothing'\n"
    )
    for level in ("namespaces", "restricted"):
        observation = asked(ground, body, program, level=level)
        assert observation.ok, observation.feedback


def test_processes_of_the_evaluator_have_the_program_too(ground: Make) -> None:
    """A fresh interpreter, a script, a forked worker with the module at hand, and threads."""
    body = """
import multiprocessing, subprocess, threading
folder, name = os.path.split(path)
code = f"import sys; sys.path.insert(0, {folder!r}); import {name[:-3]} as q; print(q.bump())"
for _ in range(2):  # each process imports it anew
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=15)
    assert out.stdout == "1\\n", out
out = subprocess.run([sys.executable, path, "a", "b"], input="typed", capture_output=True, text=True, timeout=15)
assert (out.returncode, out.stdout, out.stderr) == (3, "['a', 'b'] typed\\n", "warned\\n"), out
import runpy
assert runpy.run_path(path)["bump"]() == 1 and p.bump() == 1
sys.modules["program"] = p
def work(queue): queue.put([p.bump(), p.bump()])
queue = multiprocessing.Queue()
process = multiprocessing.Process(target=work, args=(queue,))
process.start(); assert queue.get(timeout=10) == [2, 3]; process.join()
assert p.bump() == 2  # a fork has a copy of the state
with multiprocessing.Pool(2) as pool: assert pool.map(p.double, [1, 2]) == [2, 4]
got = []
threads = [threading.Thread(target=lambda: got.append(p.wait(p.double(2)))) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert got == [4] * 4
"""
    program = (
        "import sys, time\ncount = 0\n"
        "def bump():\n    global count\n    count += 1\n    return count\n"
        "def double(x): return 2 * x\ndef wait(x):\n    time.sleep(0.05)\n    return x\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], sys.stdin.read()); sys.stderr.write('warned\\n'); sys.exit(3)\n"
    )
    observation = asked(ground, body, program)
    assert observation.ok, observation.feedback


def test_an_interrupted_call_does_not_spoil_the_next(ground: Make) -> None:
    body = """
import signal
class Late(Exception): pass
def ring(*_): raise Late
signal.signal(signal.SIGALRM, ring)
for _ in range(2):
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try: p.hang()
    except Late: pass
    else: raise AssertionError
    assert p.double(4) == 8
"""
    observation = asked(
        ground, body, "def hang():\n    while True: pass\ndef double(x): return 2 * x\n"
    )
    assert observation.ok, observation.feedback


def test_prints_of_both_are_kept(ground: Make) -> None:
    observation = asked(ground, "print('judging')\np.f()", "def f(): print('acting')")
    assert sorted(observation.artifacts["log"].split()) == ["acting", "judging"]


# -- which way is taken
# ------------------------------------------------------------------------------------------------
