"""Reading of `config.yaml` beside that of the package: all keys, and whole files."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.errors import TaskError
from culmen.core.task import Task
from culmen.extensions.compat.openevolve import config as own
from culmen.extensions.compat.openevolve import folder

configs = pytest.importorskip("openevolve.config", reason="python -m tests.differential")

pytestmark = pytest.mark.timeout(1800)

SECTIONS: dict[str, Any] = {
    "": configs.Config,
    "llm": configs.LLMConfig,
    "prompt": configs.PromptConfig,
    "database": configs.DatabaseConfig,
    "evaluator": configs.EvaluatorConfig,
    "evolution_trace": configs.EvolutionTraceConfig,
}
VALUES = [
    None,
    True,
    0,
    3,
    -1,
    0.25,
    1.5,
    "0.5",
    "text",
    [],
    [0.5, 1],
    ["a", "b"],
    [None, "a"],
    [1, "a"],
    [{"name": "m", "weight": 0.5}],
    {},
    {"a": 1},
    {"a": "b"},
    {"a": ["b"]},
    {1: 2},
]


def test_the_keys_are_theirs() -> None:
    for section, kind in SECTIONS.items():
        names = {field.name for field in dataclasses.fields(kind)} - SECTIONS.keys()
        assert own.KEYS[section].keys() == names, section
    names = {field.name for field in dataclasses.fields(configs.LLMModelConfig)}
    assert own.MODEL_KEYS.keys() == names


@pytest.mark.parametrize("section", SECTIONS)
def test_a_value_is_of_a_keys_type_if_it_is_there(section: str) -> None:
    dacite = pytest.importorskip("dacite")
    hints = get_type_hints(SECTIONS[section], localns={"LLMInterface": Any})
    asked = dacite.Config(cast=[list], check_types=True)
    for name, key in own.KEYS[section].items():
        if name in ("models", "evaluator_models", "init_client", "novelty_llm"):
            continue
        holder = dataclasses.make_dataclass("Holder", [("value", hints[name])])
        for value in VALUES:
            is_text_for_list = isinstance(value, str | dict) and "List" in str(hints[name])
            if is_text_for_list:  # on purpose: OpenEvolve takes it for a list of its letters
                continue
            try:
                dacite.from_dict(holder, {"value": value}, asked)
                fits = True
            except Exception:  # noqa: BLE001 - lists are made of anything, and fail in many ways
                fits = False
            assert own.fits(value, key.kind) == fits, (section, name, value)


def _good(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a key's type, small enough for any key."""
    table: list[tuple[Any, st.SearchStrategy[Any]]] = [
        (bool, st.booleans()),
        (int, st.integers(1, 12)),
        (float, st.sampled_from([0.0, 0.1, 0.5, 1, 1.0])),
        (str, st.sampled_from(["a", "text", "${NO_SUCH_VARIABLE_HERE}x"])),
        (list[float], st.lists(st.floats(0, 1), min_size=1, max_size=4)),
        (list[str], st.lists(st.sampled_from(["complexity", "speed", "x"]), max_size=3)),
        (list[str | None], st.lists(st.sampled_from([None, "Be brief."]), max_size=3)),
        (dict[str, int], st.just({"speed": 4})),
        (dict[str, object], st.dictionaries(st.sampled_from("ab"), st.integers(0, 3))),
        (dict[str, list[str]], st.just({"a": ["b"]})),
        (list[dict[str, object]], st.lists(MODEL, max_size=3)),
    ]
    return st.one_of(
        [made for each, made in table if own.get_origin(kind) is None and each is kind]
        or [made for each, made in table if str(each) in str(kind)]
        or [st.none()]
    )


MODEL = st.fixed_dictionaries(
    {"name": st.sampled_from(["m", "n"])},
    optional={
        "weight": st.sampled_from([0, 0.5, 1, 2.0, -1]),
        "temperature": st.sampled_from([0.1, None]),
        "top_p": st.just(0.9),
        "max_tokens": st.just(100),
        "api_base": st.just("http://127.0.0.1:9/v1"),
        "reasoning_effort": st.just("low"),
        "retries": st.just(3),
        "model_x": st.just(1),
    },
)
AWAY = {"island_initial_programs", "init_client", "novelty_llm", "template_dir"}
"""Keys whose values are files or objects."""


def _section(section: str) -> st.SearchStrategy[dict[str, Any]]:
    pairs = [
        st.tuples(
            st.just(name), st.one_of(_good(key.kind), _good(key.kind), st.sampled_from(VALUES))
        )
        for name, key in own.KEYS[section].items()
        if name not in AWAY
    ]
    unknown = st.tuples(st.sampled_from(["random_x", "num_islands", "model_x"]), st.integers(0, 3))
    return st.lists(st.one_of(*pairs, unknown), max_size=4).map(dict)


FILES = st.fixed_dictionaries(
    {}, optional={section: _section(section) for section in SECTIONS if section}
).flatmap(lambda nested: _section("").map(lambda top: {**top, **nested}))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a task without its settings."""
    made = tmp_path_factory.mktemp("task")
    (made / "initial_program.py").write_text("x = 1\n")
    (made / "evaluator.py").write_text(
        "def evaluate(path): return {'combined_score': 1.0}\n"
        "def evaluate_stage1(path): return {'combined_score': 1.0}\n"
    )
    return made


@settings(max_examples=1000, deadline=None)
@given(content=FILES)
def test_a_file_has_their_settings_or_is_refused_as_there(place: Path, content: Any) -> None:
    path = place / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    try:
        package = configs.Config.from_yaml(path)
        weights = [model.weight for model in package.llm.models]
        refused = bool(weights) and (min(weights) < 0 or max(weights) <= 0)
    except Exception:  # noqa: BLE001 - a file is refused by whatever it raises
        package, refused = None, True
    try:
        task = folder.read_folder(place)
    except TaskError as error:
        assert refused or refused_on_purpose(content), error
        return
    assert not refused
    compare(task, package, own.read_config(path))
    for section, key in unread_keys(content):
        named = f"{section}.{key}".lstrip(".")
        assert any(named in note for note in task.notes), named


def refused_on_purpose(content: Any) -> bool:
    """True for values that OpenEvolve takes and culmen refuses, with the key's name."""
    evaluator, database = content.get("evaluator") or {}, content.get("database") or {}
    texts = [
        value
        for name, section in content.items()
        for key, value in (section.items() if isinstance(section, dict) else [(name, section)])
        if isinstance(value, str | dict)
        and "list[" in str(own.KEYS.get(name, own.KEYS[""]).get(key, own.ConfigKey(0)).kind)
    ]
    return bool(
        texts
        or evaluator.get("use_llm_feedback")
        or evaluator.get("cascade_thresholds") == []
        or evaluator.get("timeout", 1) <= 0
        or evaluator.get("max_retries", 0) < 0
        or not all(isinstance(key, str) for key in evaluator.get("evaluator_args") or {})
        or database.get("island_initial_programs")
    )


def compare(task: Task, package: Any, read: own.OpenEvolveConfig) -> None:
    """The task has the package's settings, each at its place."""
    evaluator, database, prompt = package.evaluator, package.database, package.prompt
    assert task.features == tuple(database.feature_dimensions)
    assert task.limits.seconds == evaluator.timeout
    thresholds = tuple(evaluator.cascade_thresholds)[:2]
    assert task.evaluator.thresholds == (thresholds if evaluator.cascade_evaluation else None)
    tries = 0 if evaluator.cascade_evaluation else evaluator.max_retries  # a cascade's errors count
    assert task.evaluator.options["retries"] == tries
    assert task.evaluator.options.get("arguments", {}) == (evaluator.evaluator_args or {})
    assert task.surface.max_chars == max(package.max_code_length, len("x = 1\n"))
    assert (task.surface.markers == "enforced") == bool(package.enforce_evolve_blocks)
    assert task.evaluator.suffix == package.file_suffix
    chosen = task.defaults.settings_of["openevolve"]
    assert chosen["format"] == ("diff" if package.diff_based_evolution else "rewrite")
    for name, (section, key) in own._SETTINGS.items():
        value = getattr(getattr(package, section), key)
        if name in chosen:
            assert float(chosen[name]) == float(value), key
    assert task.system == (
        "" if prompt.system_message == "system_message" else prompt.system_message
    )
    assert task.island_systems == tuple(text or "" for text in prompt.island_system_messages)
    models = [
        (m.name, m.weight, m.api_base, m.temperature, m.top_p, m.max_tokens, m.reasoning_effort)
        for m in package.llm.models
        if m.weight > 0
    ]
    fields = (
        "name",
        "weight",
        "api_base",
        "temperature",
        "top_p",
        "max_tokens",
        "reasoning_effort",
    )
    assert [tuple(m.get(key) for key in fields) for m in own.named_models(read)] == models
    if (iterations := read.get("", "max_iterations")) is not None:
        budget = task.defaults.budget
        assert budget is not None and budget.evaluations == max(0, iterations) + 1
    assert math.isclose(task.defaults.workers, read.get("evaluator", "parallel_evaluations", 0))


def unread_keys(content: Any) -> list[tuple[str, str]]:
    """Keys of a file that have no effect here."""
    models = (content.get("llm") or {}).get("models") or []
    unread = {key for model in models for key in model} & {"retries", "model_x"}
    return [("llm", f"models[].{key}") for key in unread] + [
        (section, key)
        for section, keys in {"": content, **content}.items()
        if isinstance(keys, dict) and section in own.KEYS
        for key in keys
        if key not in SECTIONS and own.KEYS[section].get(key, own.ConfigKey(0)).effect == "none"
    ]
