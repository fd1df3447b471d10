"""State that one call could leave to the next: settings, modules, data, random generators."""

from __future__ import annotations

import asyncio
import csv
import decimal
import fractions
import http.client
import importlib.util
import json
import locale
import logging
import os
import random
import socket
import statistics
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from culmen.jail.state import ModuleNames, ProcessState
from culmen.jail.streams import NamedGenerator, Streams, is_generator

EVALUATOR = """
import collections, functools, itertools, logging, math, random, re, threading
from pathlib import Path
import numpy as np
HERE = Path(__file__).parent
log = logging.getLogger("evaluator")
lock = threading.Lock()
word = re.compile("a+")
rng = np.random.default_rng(3)
ITEMS = [4, 8, 1]
CASES = [{"x": i, "y": [i] * 3} for i in range(100)]
best = None
ring, numbers = itertools.cycle([1, 2, 3]), itertools.count()
groups, line = collections.defaultdict(list), collections.deque([1])
table, names = np.arange(1000), np.array(["a", None], dtype=object)
class Point:
    __slots__ = ("x", "__hidden")
    def __init__(self): self.x, self.__hidden = 1, [1]
    def hide(self): self.__hidden.append(2)
class World:
    worst = None
    def __init__(self):
        self.rng, self.seen, self.point = random.Random(1), {}, Point()
    def draw(self): return self.rng.random()
    @staticmethod
    def helper(): return groups
world = World()
def steps():
    at = 0
    while True:
        at += 1
        yield at
walk = steps()
@functools.lru_cache
def square(n): return n * n
def noise():
    inner = np.random.RandomState(4)
    def draw(): return inner.normal()
    return draw
draw = noise()
capped = functools.partial(max, 3)
def evaluate(text, memory=[]):
    return (ITEMS, CASES, best, next(ring), next(numbers), groups, line, table, names, world,
            next(walk), square(2), draw(), capped(1), rng, log, lock, word, HERE, memory)
"""


@pytest.fixture
def evaluator(tmp_path: Path) -> ModuleType:
    path = tmp_path / "evaluator.py"
    path.write_text(EVALUATOR)
    spec = importlib.util.spec_from_file_location("evaluator", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["evaluator"] = module
    spec.loader.exec_module(module)
    return module


def in_a_copy(work: Callable[[], Any]) -> Any:
    """The result of a function in a copy of this process, by JSON."""
    read, write = os.pipe()
    copy = os.fork()
    if copy == 0:
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(copy, 0)
    return json.loads(text)


def left_by(statement: str, module: ModuleType, text: str = "") -> list[str]:
    """Names of the state that a statement changed."""

    def work() -> list[str]:
        state = ProcessState([("evaluate", module.evaluate)], 1024, ModuleNames())
        state.begin(1, text)
        exec(statement, {"ev": module, "np": np})
        return list(state.end().left)

    return in_a_copy(work)


SETTINGS = {
    "np.seterr(all='raise')": "settings of numpy",
    "np.set_printoptions(precision=2)": "settings of numpy",
    "import warnings; warnings.simplefilter('error')": "warning filters",
    "import sys; sys.setrecursionlimit(200)": "recursion limit",
    "import sys; sys.set_int_max_str_digits(5000)": "limit of digits",
    "import sys; sys.setswitchinterval(.1)": "switch interval",
    "import sys; sys.settrace(print)": "trace function",
    "import sys; sys.excepthook = print": "hooks of sys",
    "import sys; sys.path.append('/nowhere')": "sys.path",
    "import sys; sys.argv.append('x')": "sys.argv",
    "import sys; sys.stdout = None": "standard streams",
    "import decimal; decimal.getcontext().prec = 5": "settings of decimal",
    "import gc; gc.disable()": "garbage collector",
    "import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)": "signal handlers",
    "import socket; socket.setdefaulttimeout(3)": "settings of socket",
    "import csv; csv.field_size_limit(9)": "settings of csv",
    "import logging; logging.disable()": "settings of logging",
    "import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')": "settings of locale",
    "import asyncio as a; a.set_event_loop_policy(type('P', (a.DefaultEventLoopPolicy,), {'__module__': 'x'})())": "settings of asyncio.events",  # noqa: E501
    "import os; os.environ['A'] = '1'": "os.environ",
    "import os; os.chdir('/')": "working folder",
    "import os; os.umask(0)": "umask",
    "import math; math.sqrt = abs": "math.sqrt",
    "import builtins; builtins.sum = max": "builtins.sum",
    "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()": "a thread",
    "import signal; signal.setitimer(signal.ITIMER_REAL, 60)": "a timer",
    "import sys; sys.modules['made_here'] = type(sys)('made_here')": "module made_here",
}


@pytest.mark.parametrize("statement", SETTINGS)
def test_a_changed_setting_is_named(evaluator: ModuleType, statement: str) -> None:
    assert asyncio and csv and decimal and locale and logging and socket  # loaded before
    assert SETTINGS[statement] in left_by(statement, evaluator)


NAMED = {
    "import json\njson.dumps = print": "json.dumps",
    "import fractions\nfractions.Fraction.__add__ = None": "fractions.Fraction",
    "import statistics\nstatistics.NormalDist.cdf = None": "statistics.NormalDist",
    "import http.client\nhttp.client.responses[200] = 'y'": "http.client.responses",
    "import stat\nstat._filemode_table = 1\nstat.S_IFDIR = 2": "stat.S_IFDIR",
}


@pytest.mark.parametrize("program", NAMED)
def test_a_module_that_the_program_names_is_compared_at_once(
    evaluator: ModuleType, program: str
) -> None:
    assert fractions and http.client and statistics  # loaded before
    assert NAMED[program] in left_by(program, evaluator, program)


def test_every_module_has_its_turn(evaluator: ModuleType) -> None:
    import colorsys

    def work() -> list[str]:
        state = ProcessState([("evaluate", evaluator.evaluate)], 1024, ModuleNames())
        colorsys.rgb_to_hls = abs  # type: ignore[assignment]
        found: list[str] = []
        for seed in range(70):
            state.begin(seed)
            found += state.end().left
        return found

    assert set(in_a_copy(work)) == {"colorsys.rgb_to_hls"}


DATA = {
    "ev.ITEMS.pop()": "data evaluator.ITEMS",
    "ev.CASES[3]['y'].append(1)": "data evaluator.CASES",
    "ev.best = 1": "data evaluator.best",
    "next(ev.ring)": "data evaluator.ring",
    "next(ev.numbers)": "data evaluator.numbers",
    "next(ev.walk)": "data evaluator.walk",
    "ev.square(5)": "data evaluator.square",
    "ev.groups['a']": "data evaluator.groups",
    "ev.line.append(2)": "data evaluator.line",
    "ev.table[3] = 0": "data evaluator.table",
    "ev.names[0] = 'b'": "data evaluator.names[]",
    "ev.world.seen[1] = 2": "data evaluator.world.seen",
    "ev.world.point.x = 2": "data evaluator.world.point.x",
    "ev.world.point.hide()": "data evaluator.world.point._Point__hidden",
    "ev.World.worst = 1": "data evaluator.world.__class__.worst",
    "ev.evaluate.__defaults__[0].append(1)": "data evaluate()",
    "ev.World.draw = lambda self: 0": "data evaluator.world.__class__.draw",
    "ev.square = lambda n: n": "data evaluator.square",
    "ev.rng = np.random.default_rng(4)": "data evaluator.rng",
    "ev.lock.acquire()": "data evaluator.lock",
}


@pytest.mark.parametrize("statement", DATA)
def test_changed_data_of_the_evaluator_are_named(evaluator: ModuleType, statement: str) -> None:
    assert DATA[statement] in left_by(statement, evaluator)


def test_nothing_is_named_where_nothing_changed(evaluator: ModuleType) -> None:
    harmless = (
        "ev.rng.normal(); ev.world.draw(); ev.draw(); ev.table.sum(); ev.word.match('a')",
        "import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('error')",
        "import decimal; decimal.Decimal(1) / 3",
        "import colorsys, textwrap; np.linalg.norm(np.ones(3)); np.random.random()",
        "import random; random.seed(3); random.random()",
    )
    for statement in harmless:
        assert left_by(statement, evaluator, "import numpy, json, math") == []


def traces_of(data: dict[str, Any], act: Callable[[], Any] = lambda: None) -> tuple[Any, Any]:
    """Traces of a function that reaches these data by name, in a copy of this process."""
    scope: dict[str, Any] = {**data, "__name__": "__main__"}
    exec(f"def evaluate(text): return {', '.join(data)}", scope)

    def work() -> Any:
        state = ProcessState([("evaluate", scope["evaluate"])], 1024, ModuleNames())
        state.begin(1)
        act()
        traces = state.end()
        return traces.drew, traces.left

    return tuple(in_a_copy(work))


@pytest.mark.parametrize("kind", ["opaque", "large", "many"])
def test_data_that_cannot_be_compared_are_named(kind: str) -> None:
    value = {
        "opaque": zlib.compressobj(),
        "large": np.zeros(1 << 20),
        "many": [[i] for i in range(20_000)],
    }[kind]
    assert traces_of({"DATA": value})[1] == ["data __main__.DATA (cannot be compared)"]


def test_the_namespace_of_executed_text_is_compared_as_a_modules() -> None:
    """The interpreter notes there, as in a module, the warnings that it saw."""
    space: dict[str, Any] = {"kept": []}
    exec("import warnings\ndef warn():\n    warnings.warn('seen', stacklevel=1)", space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert traces_of({"SPACE": space}, space["warn"])[1] == []
    assert traces_of({"SPACE": space}, lambda: space["kept"].append(1))[1] == [
        "data __main__.SPACE['kept']"
    ]


def test_a_generator_is_found_beside_data_that_cannot_be_compared() -> None:
    own = random.Random(1)
    assert traces_of({"A": np.zeros(1 << 20), "R": own}, own.random)[0] == ["__main__.R"]


# -- random streams

GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "Random": (lambda: random.Random(1), lambda each: each.gauss(0, 1)),
    "PCG64": (lambda: np.random.default_rng(1), lambda each: each.normal()),
    "unseeded": (lambda: np.random.default_rng(), lambda each: each.integers(1 << 30)),
    "PCG64DXSM": (lambda: np.random.Generator(np.random.PCG64DXSM(1)), lambda e: e.random()),
    "Philox": (lambda: np.random.Generator(np.random.Philox(1)), lambda each: each.random()),
    "MT19937": (lambda: np.random.Generator(np.random.MT19937(1)), lambda each: each.random()),
    "SFC64": (lambda: np.random.SFC64(1), lambda each: each.random_raw()),
    "RandomState": (lambda: np.random.RandomState(1), lambda each: each.normal()),
    "on PCG64": (lambda: np.random.RandomState(np.random.PCG64(1)), lambda each: each.normal()),
    "spawned": (lambda: np.random.default_rng(1), lambda each: each.spawn(1)[0].random()),
    "SeedSequence": (
        lambda: np.random.SeedSequence(1),
        lambda each: np.random.default_rng(each.spawn(1)[0]).random(),
    ),
    "random": (lambda: random._inst, lambda _: random.random()),  # type: ignore[attr-defined]
    "numpy.random": (lambda: np.random.mtrand._rand, lambda _: np.random.normal()),
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_stream_depends_on_the_seed_and_the_name_alone(kind: str) -> None:
    make, draw = GENERATORS[kind]
    generator, streams = make(), Streams()
    named = [] if kind in ("random", "numpy.random") else [NamedGenerator(kind, generator)]
    assert is_generator(generator)

    def numbers(seed: int) -> list[Any]:
        streams.set_streams(seed, named)
        return [draw(generator) for _ in range(3)]

    first = numbers(1)
    assert streams.moved_names() == ((kind,) if kind != "spawned" else ())
    assert numbers(1) == first
    assert not {*numbers(2)} & {*first}


def test_a_generator_that_stood_still_or_was_seeded_again_proves_nothing() -> None:
    streams, own = Streams(), np.random.RandomState(1)
    streams.set_streams(1, [NamedGenerator("own", own)])
    assert streams.moved_names() == ()
    streams.set_streams(1, [NamedGenerator("own", own)])
    np.random.seed(0), random.seed(0), own.seed(0)
    np.random.random(10), random.random(), own.normal()
    assert streams.moved_names() == ()


def test_many_numbers_are_recognised_as_drawn() -> None:
    streams, own = Streams(), np.random.default_rng(1)
    streams.set_streams(1, [NamedGenerator("own", own)])
    own.random(1_000_000)
    [random.random() for _ in range(10_000)]
    assert streams.moved_names() == ("random", "own")


def test_the_systems_entropy_is_no_generator_that_can_be_set() -> None:
    assert not is_generator(random.SystemRandom())


def test_numpys_global_generator_is_seeded_at_its_import() -> None:
    program = (
        "import sys; from culmen.jail.streams import seed_globals\n"
        "seed_globals(7); assert 'numpy' not in sys.modules; import numpy as np\n"
        "first = np.random.random(); seed_globals(7); print(first == np.random.random())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def test_generators_of_torch_are_set() -> None:
    torch = pytest.importorskip("torch")
    streams, own = Streams(), torch.Generator()
    named = [NamedGenerator("own", own)]

    def numbers(seed: int) -> list[float]:
        streams.set_streams(seed, named)
        return [torch.rand(1, generator=own).item(), torch.rand(1).item()]

    first = numbers(1)
    assert streams.moved_names() == ("torch", "own")
    assert numbers(1) == first and not {*numbers(2)} & {*first}
    streams.set_streams(1, named)
    torch.manual_seed(0)
    torch.rand(1)
    assert streams.moved_names() == ()
