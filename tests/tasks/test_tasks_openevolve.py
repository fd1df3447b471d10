"""OpenEvolve example folders, loaded as they are and run in the jail."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import msgspec
import pytest

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import Observation, Scoring
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evaluate.local import LocalBackend
from culmen.extensions.baselines.openevolve import OpenEvolve
from culmen.models.prompts.formats import FORMATS
from culmen.models.prompts.writer import PromptWriter
from culmen.models.roles import ModelBook
from culmen.run.plan import requested_run
from culmen.run.pools import load_pool, pool_label, with_carried_pool
from culmen.run.request import RunRequest
from culmen.tasks import load, with_proxy
from tests.evaluate.conftest import available

pytestmark = pytest.mark.extension("compat")

FIXTURES = Path(__file__).parent.parent / "fixtures"


def need_locks_between_processes() -> None:
    """Skip at level `restricted`, which refuses the semaphores of multiprocessing."""
    if available("namespaces"):
        pytest.skip("multiprocessing's locks do not work at isolation level restricted")


def run(task: Task) -> Observation:
    """One evaluation of the first seed."""

    async def once() -> Observation:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            return await backend.evaluate(task.initial_candidates()[0], None, 0)
        finally:
            await backend.close()

    return asyncio.run(once())


def test_stages_result_class_and_settings() -> None:
    task = load(FIXTURES / "openevolve_stages")
    assert (task.evaluator.form, task.evaluator.suffix, task.surface.language) == (
        "legacy",
        ".py",
        "python",
    )
    assert task.evaluator.thresholds == (0.5, 0.65) and task.objective.direction == "max"
    assert (task.limits.seconds, task.surface.max_chars) == (20, 20000)
    assert task.system == "You fit polynomials." and task.features == ("complexity", "fine")
    defaults = task.defaults
    assert (defaults.budget, defaults.seed, defaults.workers) == (Budget(evaluations=41), 7, 2)
    assert (defaults.model, defaults.settings) == ("", {})
    assert defaults.settings_of == {"openevolve": {"islands": "2", "top": "3", "format": "diff"}}
    seen = run(task)
    assert seen.ok and seen.trust == "proxied" and seen.score == pytest.approx(0.72405, abs=1e-4)
    assert {"runs", "rough", "fine"} <= seen.metrics.keys()
    assert "200 points" in seen.artifacts["fine"] and "5 points" in seen.artifacts["rough"]


def test_a_stage_below_its_threshold_ends_the_evaluation() -> None:
    task = load(FIXTURES / "openevolve_stages")
    strict = msgspec.structs.replace(task.evaluator, thresholds=(0.5, 0.99))
    seen = run(msgspec.structs.replace(task, evaluator=strict))
    assert seen.score == 0.7 and "fine" not in seen.metrics


def test_async_evaluator_without_combined_score() -> None:
    task = load(FIXTURES / "openevolve_async")
    assert task.limits.seconds == 300 and task.evaluator.thresholds is None
    assert any("combined_score" in note for note in task.notes)
    seen = run(task)
    assert seen.score == pytest.approx(
        0.75
    )  # the mean of brevity 0.5 and complete 1.0: no booleans, texts or None
    assert "household" in seen.artifacts["kept"]


def test_evaluator_with_a_process_of_its_own_and_misplaced_keys() -> None:
    task = load(FIXTURES / "openevolve_process")
    assert (task.system, task.defaults.workers) == ("", 0)  # OpenEvolve reads them elsewhere
    assert task.defaults.settings_of == {"openevolve": {"format": "diff"}}
    notes = " ".join(task.notes)
    assert "parallel_evaluations (a key of evaluator)" in notes
    assert "llm.num_islands (a key of database)" in notes
    assert "system_message (a key of llm and prompt)" in notes
    assert "allow_full_rewrites" in notes and "checkpoint_interval" in notes
    need_locks_between_processes()
    assert run(task).score == 1.0


LEVELS = {
    "openevolve_stages": ("proxied", ()),
    "openevolve_async": ("proxied", ()),
    "openevolve_process": ("proxied", ()),
    "openevolve_packing": ("proxied", ()),
    "openevolve_players": ("proxied", ("Player() an object", "team() an object")),
    "openevolve_text": ("self-reported", ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEVELS)
def test_unmodified_folders_score_the_same_behind_a_proxy_or_say_why_not(name: str) -> None:
    """An evaluator's verdict on its seed does not depend on where the seed runs.

    The log alone may differ.
    """
    if name == "openevolve_process":
        need_locks_between_processes()

    async def both() -> list[tuple[Scoring, Observation]]:
        seen = []
        for proxy in ("auto", "never"):
            task = with_proxy(load(FIXTURES / name), proxy)
            backend = LocalBackend(task, 1)
            try:
                await backend.start()
                seen.append(
                    (backend.scoring, await backend.evaluate(task.initial_candidates()[0], None, 0))
                )
            finally:
                await backend.close()
        return seen

    (scoring, first), (_, second) = asyncio.run(both())
    level, accepted = LEVELS[name]
    assert (scoring.trust, scoring.accept) == (level, accepted), scoring
    assert first.ok and first.trust == level and second.trust == "self-reported"
    assert (first.score, first.metrics, first.feedback) == (
        second.score,
        second.metrics,
        second.feedback,
    )
    assert first.artifacts.keys() == second.artifacts.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ("    return centers, radii, radii.sum()", "ok", ""),
        ("    1 / 0", "ok", "division by zero"),
        ("    import os; os._exit(3)", "ok", "exit status 1"),
        ("    return centers * np.nan, radii, 1.0", "invalid", "not finite"),
        ("    return centers, radii, Liar(9.0)", "ok", ""),
        ("    return Liar(1.0), radii, 1.0", "ok", "shapes ()"),
        ("    return centers, radii.view(Array) * 2, 1.0", "ok", ""),
    ],
)
def test_what_a_usual_evaluator_makes_of_failures_behind_a_proxy(
    change: str, status: str, said: str
) -> None:
    """Its own interpreter sees the same failures; liars come as the plain data they are."""
    task = load(FIXTURES / "openevolve_packing")
    liars = (
        "\nclass Liar(float):\n    def __gt__(self, other): return True\n    def __format__(self, spec): return '99'\n"
        "class Array(np.ndarray):\n    def sum(self, *a, **k): return 99.0\n"
        "    def __lt__(self, other): return np.zeros(self.shape, bool)\n"
    )
    text = (
        task.seeds[0]["initial_program.py"].replace(
            "    return centers, radii, radii.sum()", change
        )
        + liars
    )

    async def once() -> Observation:
        backend = LocalBackend(task, 1, scoring=Scoring("proxied"))
        try:
            await backend.start()
            return await backend.evaluate(Candidate.of({"initial_program.py": text}), None, 0)
        finally:
            await backend.close()

    seen = asyncio.run(once())
    told = " ".join([seen.feedback, *seen.artifacts.values()])
    assert seen.status == status and said in told, seen
    assert seen.score is None or (seen.score <= 1.0 and "99" not in told)


def test_a_key_written_out_never_enters_the_task() -> None:
    task = load(FIXTURES / "openevolve_process")
    assert b"sk-written" not in msgspec.json.encode(task)
    assert any("API key in plain text" in note for note in task.notes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "openevolve_stages", tmp_path / "task"))


CONFIGS = {
    "no YAML": ("llm: [1\nx: 2\n", ("not valid YAML", "config.yaml:2")),
    "no mapping": ("- 1\n", ("not a mapping", "config.yaml")),
    "wrong type": ("max_iterations: many\n", ("expected int", "(max_iterations)")),
    "float for int": ("database:\n  num_islands: 3.0\n", ("expected int", "num_islands")),
    "null": ("database:\n  num_islands: null\n", ("expected int", "num_islands")),
    "empty section": ("llm:\n", ("'llm' must hold keys", "(llm)")),
    "a model as such": ("llm: {model: b}\n", ("no key llm.model", "primary_model")),
    "a negative weight": (
        "llm: {models: [{name: b, weight: -1}]}\n",
        ("llm.models has the weight -1", "0 or more"),
    ),
    "no weight": ("llm: {primary_model: b, primary_model_weight: 0}\n", ("no model",)),
    "a model that changes scores": (
        "evaluator: {use_llm_feedback: true}\n",
        ("evaluator.use_llm_feedback is on",),
    ),
    "more programs than islands": (
        "database: {num_islands: 1, island_initial_programs: [null, a.py]}\n",
        ("island_initial_programs has more entries",),
    ),
    "another first program": (
        "database: {island_initial_programs: [a.py]}\n",
        ("must begin with null",),
    ),
    "a program that is not there": (
        "database: {island_initial_programs: [null, a.py]}\n",
        ("'a.py', which does not exist",),
    ),
    "no thresholds": (
        "evaluator: {cascade_thresholds: []}\n",
        ("evaluator.cascade_thresholds is empty",),
    ),
    "no pattern": ("diff_pattern: '('\n", ("diff_pattern is no regular expression",)),
    "wrong type below": (
        "evaluator:\n  timeout: [3]\n",
        ("expected int", "(evaluator.timeout)"),
    ),
    "no section": ("llm: gpt\n", ("'llm' must hold keys", "(llm)")),
    "no time": ("evaluator:\n  timeout: 0\n", ("above 0", "(evaluator.timeout)")),
    "endless time": (f"evaluator:\n  timeout: {10**12}\n", ("at most", "(evaluator.timeout)")),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_bad_settings(folder: Path, name: str) -> None:
    text, pieces = CONFIGS[name]
    (folder / "config.yaml").write_text(text)
    with pytest.raises(TaskError) as caught:
        load(folder)
    assert caught.value.fix and all(piece in str(caught.value) for piece in pieces)


def test_cascade_defaults_and_switch(folder: Path) -> None:
    (folder / "config.yaml").write_text("")
    assert load(folder).evaluator.thresholds == (0.5, 0.75)  # of three stages at most
    (folder / "config.yaml").write_text("evaluator:\n  cascade_evaluation: false\n")
    assert load(folder).evaluator.thresholds is None
    (folder / "config.yaml").write_text("cascade_evaluation: false\n")  # misplaced
    assert load(folder).evaluator.thresholds == (0.5, 0.75)


def test_feature_dimensions_of_a_folder_without_settings(folder: Path) -> None:
    (folder / "config.yaml").unlink()
    (folder / "evaluator.py").write_text(
        "def evaluate(path): return {'accuracy': 0.8, 'complexity': 100.0}\n"
    )
    task = load(folder)
    assert task.features == ("complexity", "diversity") and run(task).score == 0.8
    (folder / "config.yaml").write_text("database: {feature_dimensions: [accuracy, complexity]}\n")
    assert run(load(folder)).score == pytest.approx(50.4)  # nothing else is left


def test_keys_have_their_effect_or_are_named(folder: Path) -> None:
    (folder / "config.yaml").write_text(
        "llm: {primary_model: b, temperature: 0.1, secondary_model: c, api_key: '${MY_KEY}'}\n"
        "prompt: {num_top_programs: 9, include_artifacts: false}\n"
        "database: {num_islands: 7, migration_interval: 3, random_x: 1}\n"
        "enforce_evolve_blocks: true\n"
    )
    task, options = load(folder), RunRequest(strategy="openevolve")
    strategy = requested_run(task, options).strategy
    assert isinstance(strategy, OpenEvolve)
    chosen = (strategy.islands, strategy.interval, strategy.top, strategy.format)
    assert chosen == (7, 3, 9, "diff") and task.surface.markers == "enforced"
    notes = "\n".join(task.notes)
    assert "keys without effect here: prompt.include_artifacts, database.random_x" in notes
    assert f"models b, c: asked with --models {folder / 'config.yaml'}" in notes
    roles = ModelBook(folder / "config.yaml").parse_roles()
    assert [
        (each.model.model, each.weight, each.model.temperature, each.model.provider.key_env)
        for each in roles.members("proposer")
    ] == [("b", 1.0, 0.1, "MY_KEY"), ("c", 0.2, 0.1, "MY_KEY")]


def test_keys_of_one_model_without_effect_are_named(folder: Path) -> None:
    models = "[{name: m, top_p: 0.5, retries: 7, system_message: Fit.}, {name: n, whatever: 1}]"
    (folder / "config.yaml").write_text(f"llm: {{models: {models}}}\n")
    listed = "llm.models[].retries, llm.models[].system_message, llm.models[].whatever"
    assert f"config.yaml: keys without effect here: {listed}" in load(folder).notes


def test_arguments_of_the_evaluator(folder: Path) -> None:
    (folder / "evaluator.py").write_text(
        "def evaluate(path, *, n): return {'combined_score': n / 10}\n"
    )
    (folder / "config.yaml").write_text("evaluator: {evaluator_args: {n: 3}}\n")
    first = load(folder)
    assert run(first).score == 0.3
    (folder / "config.yaml").write_text("evaluator: {evaluator_args: {n: 4}}\n")
    assert load(folder).digest != first.digest  # another score
    (folder / "config.yaml").write_text("evaluator: {evaluator_args: {m: 3}}\n")
    with pytest.raises(TaskError, match=r"does not take evaluator\.evaluator_args"):
        run(load(folder))


def test_programs_and_system_texts_of_islands(folder: Path) -> None:
    (folder / "second.py").write_text("y = 2\n")
    (folder / "config.yaml").write_text(
        "max_iterations: 3\n"
        "database: {island_initial_programs: [null, null, second.py]}\n"
        "prompt: {system_message: Fit., island_system_messages: [null, Be brief.]}\n"
    )
    task = load(folder)
    assert [next(iter(seed.values())) for seed in task.seeds][1:] == ["y = 2\n"]
    assert task.defaults.settings_of["openevolve"]["starts"] == "0,2"
    assert task.defaults.budget == Budget(evaluations=5)
    writer = PromptWriter(task)
    form, first = FORMATS["rewrite"], task.initial_candidates()[0]
    texts = [writer.brief_prompt(Brief(first, island=i), form).system for i in (0, 1, None)]
    assert texts == ["Fit.", "Be brief.", "Fit."]


def test_the_card_of_a_task_has_its_goal_and_the_best_value(folder: Path) -> None:
    (folder / "card.yaml").write_text(
        "description: |\n  Fit it.\nreferences: {best_known: 3.22, best_known_scaffold: X}\n"
    )
    task = load(folder)
    notes = "\n".join(task.notes)
    assert task.goal == "Fit it." and "does not name: 3.22 (by X)" in notes
    assert "there is also" not in notes and "card.yaml" not in task.evaluator.files
    (folder / "card.yaml").write_text("description: [\n")
    assert any("card.yaml is left out" in note for note in load(folder).notes)


@pytest.mark.parametrize(
    ("stated", "thresholds"),
    [
        ("{cascade_evaluation: false, cascade_thresholds: [0.1]}", None),
        ("{cascade_thresholds: [0.9]}", (0.9, 0.9)),  # the last one counts on, as in the package
        ("{cascade_thresholds: [0, 0.3, 0.4]}", (0.0, 0.3)),
        ("{cascade_thresholds: []}", (0.5, 0.65)),
        ("{mode: local}", (0.5, 0.65)),
    ],
)
def test_the_card_of_a_task_has_its_cascade(
    folder: Path, stated: str, thresholds: tuple[float, ...] | None
) -> None:
    (folder / "card.yaml").write_text(f"evaluation: {stated}\n")
    assert load(folder).evaluator.thresholds == thresholds
    evaluator = folder / "evaluator.py"
    evaluator.write_text(evaluator.read_text().replace("evaluate_stage", "_stage"))
    assert load(folder).evaluator.thresholds is None


def test_checkpoints_are_pools(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "openevolve_output"
    for number, programs in ((3, {"a": 0.5}), (20, {"a": 0.5, "b": 0.9, "c": None})):
        place = output / "checkpoints" / f"checkpoint_{number}"
        (place / "programs").mkdir(parents=True)
        (place / "best_program.py").write_text("")
        for name, score in programs.items():
            metrics = {} if score is None else {"combined_score": score, "size": 1.0}
            content = {"id": name, "code": f"{name} = 1\n", "metrics": metrics, "generation": 2}
            (place / "programs" / f"{name}.json").write_text(json.dumps(content))
    pool = load_pool(output)
    assert [(each.candidate.text, each.score) for each in pool.members] == [
        ("b = 1\n", 0.9),
        ("a = 1\n", 0.5),
        ("c = 1\n", None),
    ]
    carried = with_carried_pool(load(folder), pool)
    assert len(carried.carried) == 3 and sorted(carried.stated.values()) == [0.5, 0.9]
    first = load_pool(output / "checkpoints" / "checkpoint_3")
    assert len(first.members) == 1 and pool_label(output).startswith("openevolve_output ")
    (place / "programs" / "d.json").write_text("[]")
    with pytest.raises(UserError, match="no file of OpenEvolve"):
        load_pool(output)
    with pytest.raises(UserError, match="this folder is no pool"):
        load_pool(folder)


def test_a_checkpoint_is_ranked_by_its_own_dimensions_and_may_hold_nan(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint_3"
    (place / "programs").mkdir(parents=True)
    (place / "metadata.json").write_text('{"feature_stats": {"speed": {"min": 1.0}}}')
    programs = {
        "a": {"accuracy": 0.5, "speed": 90.0},
        "b": {"accuracy": 0.8, "speed": 1.0},
        "c": {"combined_score": float("nan")},
        "d": {"accuracy": 0.4, "complexity": 0.8},
    }
    for name, metrics in programs.items():
        content = {"id": name, "code": f"{name} = 1\n", "metrics": metrics}
        (place / "programs" / f"{name}.json").write_text(json.dumps(content))
    scores = [(each.candidate.text[0], each.score) for each in load_pool(place).members]
    assert [*map(str, scores)] == [
        *("('b', 0.8)", "('d', 0.6000000000000001)", "('a', 0.5)", "('c', None)")
    ]


def test_a_run_that_ended_before_its_first_checkpoint_is_a_pool(tmp_path: Path) -> None:
    best = tmp_path / "openevolve_output" / "best"
    best.mkdir(parents=True)
    (best / "best_program.rs").write_text("fn main() {}\n")
    (best / "best_program_info.json").write_text('{"id": "x", "metrics": {"combined_score": 0.5}}')
    (member,) = load_pool(best.parent).members
    assert (dict(member.parts), member.score) == ({"initial_program.rs": "fn main() {}\n"}, 0.5)
    (best / "best_program.rs").unlink()
    with pytest.raises(UserError, match="it has no code"):
        load_pool(best.parent)


def test_a_limit_below_the_initial_programs_length_is_raised_to_it(folder: Path) -> None:
    (folder / "config.yaml").write_text("")
    assert load(folder).surface.max_chars == 10_000
    (folder / "config.yaml").write_text("max_code_length: 3\n")
    task = load(folder)
    assert task.surface.max_chars == len(task.seeds[0]["initial_program.py"])
    assert any("max_code_length" in note for note in task.notes)


def test_programs_of_other_languages_and_other_settings_files(folder: Path) -> None:
    (folder / "initial_program.py").rename(folder / "initial_program.rs")
    (folder / "config_large.yaml").write_text("")
    task = load(folder)
    assert (task.evaluator.suffix, task.surface.language) == (".rs", "rust")
    assert any("config_large.yaml" in note for note in task.notes)
    (folder / "initial_program.go").write_text("package main\n")
    with pytest.raises(TaskError, match=r"initial_program\.go, initial_program\.rs"):
        load(folder)


def test_a_folder_as_in_skydiscover_says_what_counts_otherwise_there(folder: Path) -> None:
    (folder / "evaluator").mkdir()
    (folder / "evaluator.py").rename(folder / "evaluator" / "evaluator.py")
    task = load(folder)
    assert any("scores follow SkyDiscover 0.1.0" in note for note in task.notes)
    assert task.features == ()


def test_a_folder_as_in_skydiscover_is_scored_by_its_rules(tmp_path: Path) -> None:
    (tmp_path / "evaluator").mkdir()
    stages = (
        "def evaluate(path):\n    raise ValueError\n"
        "def evaluate_stage1(path):\n    return {'a': 0.8, 'ok': True, 'complexity': 0.0}\n"
        "def evaluate_stage2(path):\n    return {'b': 1.0, 'fast': False}\n"
        "def evaluate_stage3(path):\n    return {'c': 9.0}\n"
    )
    (tmp_path / "evaluator" / "evaluator.py").write_text(stages)
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    task = load(tmp_path)
    seen = run(task)
    assert (task.limits.seconds, task.surface.max_chars) == (360.0, 60_000)
    assert seen.score == pytest.approx((0.8 + 1 + 0 + 1 + 0) / 5), seen


def test_an_evaluator_without_evaluate(folder: Path) -> None:
    (folder / "evaluator.py").write_text("def evaluat(path):\n    return {}\n")
    with pytest.raises(
        TaskError, match="no function 'evaluate' is defined; there is 'evaluat' on line 1"
    ):
        load(folder)


def test_settings_and_seed_do_not_touch_the_evaluators_digest(folder: Path) -> None:
    first = load(folder)
    (folder / "config.yaml").write_text("evaluator:\n  timeout: 7\n")
    (folder / "initial_program.py").write_text("x = 1\n")
    second = load(folder)
    assert first.evaluator.digest == second.evaluator.digest and first.digest != second.digest


def test_numerical_packages_are_loaded_once_before_the_first_candidate(folder: Path) -> None:
    text = (folder / "evaluator.py").read_text()
    (folder / "evaluator.py").write_text(
        f"import json\nfrom scipy import no_such\nimport scipy.no_such\n{text}"
    )
    with (folder / "initial_program.py").open("a") as file:
        file.write("\n\ndef later():\n    from scipy.optimize import minimize\n")
    assert load(folder).evaluator.packages == ("numpy", "scipy", "scipy.optimize")


LOAD = """
import importlib.util

def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
PROMPT = """
def evaluate(path):
    with open(path) as file:
        prompt = file.read()
    return {"combined_score": 1.0 if "{question}" in prompt else 0.0, "length": float(len(prompt))}
"""
PATCHES_MODULE = """
from unittest import mock

def evaluate(path):
    program = load(path)
    with mock.patch.object(program, "price", lambda item: 2.0):
        return {"combined_score": program.total(["a", "b", "c"])}
"""
PATCHES_CLASS = """
from unittest import mock

def evaluate(path):
    program = load(path)
    with mock.patch.object(program.Shop, "price", lambda self, item: 2.0):
        return {"combined_score": program.total(["a", "b", "c"])}
"""
FORKS = """
import multiprocessing

def work(job):
    path, seed = job
    return load(path).play(seed)

def evaluate(path):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return {"combined_score": sum(pool.map(work, [(path, seed) for seed in range(4)]))}
"""
TAKES_SOURCE = """
import inspect

def evaluate(path):
    program = load(path)
    return {"combined_score": program.play(3) - 0.01 * len(inspect.getsource(program.play))}
"""
SHOP = """
class Shop:
    def price(self, item): return 1.0
shop = Shop()
def price(item): return 1.0
def total(items): return sum(min(price(item), 9.0) * shop.price(item) for item in items)
def play(seed): return float(seed * seed)
"""
FALLBACKS = [
    ("forks workers", LOAD + FORKS, ".py", "proxied", ""),
    ("patches the module", LOAD + PATCHES_MODULE, ".py", "proxied", ""),
    (
        "patches a class",
        LOAD + PATCHES_CLASS,
        ".py",
        "self-reported",
        "behind a proxy and 6 in the same process",
    ),
    ("takes a function's source", LOAD + TAKES_SOURCE, ".py", "self-reported", "same process"),
    ("a prompt, which is only text", PROMPT, ".txt", "self-reported", "not a Python module"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "suffix", "level", "why"),
    [row[1:] for row in FALLBACKS],
    ids=[r[0] for r in FALLBACKS],
)
def test_what_cannot_work_behind_a_proxy_says_which_level_is_in_force(
    tmp_path: Path, source: str, suffix: str, level: str, why: str
) -> None:
    if source.endswith(FORKS):
        need_locks_between_processes()
    (tmp_path / "evaluator.py").write_text(source)
    (tmp_path / f"initial_program{suffix}").write_text(
        SHOP if suffix == ".py" else "Answer this: {question}"
    )

    async def once() -> tuple[Scoring, Observation]:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            return backend.scoring, await backend.evaluate(task.initial_candidates()[0], None, 0)
        finally:
            await backend.close()

    task = load(tmp_path)
    scoring, seen = asyncio.run(once())
    assert seen.ok and (seen.trust, scoring.trust) == (level, level) and why in scoring.why, scoring
