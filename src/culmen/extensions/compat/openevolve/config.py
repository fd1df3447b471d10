"""Keys of OpenEvolve's `config.yaml` (0.4.1), their types and their effect here.

A file that OpenEvolve refuses is refused, and a key at a level where OpenEvolve does not read it
has no effect. Only an empty file counts as none. Values that are not finite are refused, and a text
in place of a list, which OpenEvolve takes for a list of letters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args, get_origin

import msgspec

from culmen.core.errors import TaskError
from culmen.core.foreign import boundary, yaml_value
from culmen.core.inside import path_inside
from culmen.core.json import JsonObject
from culmen.models.spec import OTHERS, PROVIDERS
from culmen.tasks.reading import read_text

Effect: TypeAlias = Literal["task", "search", "model", "none"]
"""What a key decides: the task, the search of the strategy `openevolve`, models, nothing here."""


class ConfigKey(NamedTuple):
    """A key's type, and its effect here."""

    kind: Any
    effect: Effect = "none"


_UNREAD = ConfigKey(object)
_KINDS: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "str?": str | None,
    "int?": int | None,
    "float?": float | None,
    "bool?": bool | None,
    "object": object,
    "texts": list[str],
    "texts?": list[str | None],
    "floats": list[float],
    "bins": int | dict[str, int],
    "models": list[dict[str, object]],
    "arguments?": dict[str, object] | None,
    "variations": dict[str, list[str]],
}
_TABLE = """
-               task   int        max_iterations max_code_length
-               task   int?       random_seed
-               task   str        language file_suffix
-               task   bool       enforce_evolve_blocks
-               search bool       diff_based_evolution
-               none   float      full_rewrite_probability convergence_threshold
-               none   str        diff_pattern log_level early_stopping_metric
-               none   int        checkpoint_interval
-               none   bool       checkpoint_on_improvement
-               none   str?       log_dir logger_prefix
-               none   int?       early_stopping_patience max_tasks_per_child
llm             model  models     models
llm             model  str        primary_model secondary_model
llm             model  float      primary_model_weight secondary_model_weight
llm             none   bool       manual_mode
llm             none   models     evaluator_models
model           model  str        name api_base
model           model  float      weight
model           model  str?       api_key reasoning_effort
model           model  float?     temperature top_p
model           model  int        max_tokens
model           none   str?       provider system_message _manual_queue_dir
model           none   int        timeout retries retry_delay
model           none   int?       random_seed
model           none   float?     max_budget_usd max_ai_credits
model           none   bool?      allow_all_tools manual_mode
model           none   object     init_client
prompt          task   str        system_message
prompt          task   texts?     island_system_messages
prompt          search int        num_top_programs num_diverse_programs
prompt          none   str?       template_dir system_message_changes_description
prompt          none   str        evaluator_system_message initial_changes_description
prompt          none   bool       programs_as_changes_description use_template_stochasticity
prompt          none   bool       use_meta_prompting include_artifacts artifact_security_filter
prompt          none   variations template_variations
prompt          none   float      meta_prompt_weight
prompt          none   int        max_artifact_bytes diff_summary_max_line_len
prompt          none   int        diff_summary_max_lines
prompt          none   int?       suggest_simplification_after_chars include_changes_under_chars
prompt          none   int?       concise_implementation_max_lines
prompt          none   int?       comprehensive_implementation_min_lines code_length_threshold
database        task   texts      feature_dimensions
database        task   texts?     island_initial_programs
database        search int        num_islands migration_interval population_size archive_size
database        search bins       feature_bins
database        search float      migration_rate exploration_ratio exploitation_ratio
database        search float      elite_selection_ratio
database        none   str?       db_path artifacts_base_path embedding_model embedding_api_base
database        none   bool       in_memory log_prompts cleanup_old_artifacts
database        none   str        diversity_metric
database        none   int        diversity_reference_size artifact_size_threshold
database        none   int        artifact_retention_days
database        none   int?       random_seed max_snapshot_artifacts
database        none   object     novelty_llm
database        none   float      similarity_threshold
evaluator       task   int        timeout max_retries parallel_evaluations
evaluator       task   bool       cascade_evaluation use_llm_feedback
evaluator       task   floats     cascade_thresholds
evaluator       task   arguments? evaluator_args
evaluator       none   float      llm_feedback_weight
evaluator       none   int?       memory_limit_mb
evaluator       none   float?     cpu_limit
evaluator       none   bool       distributed enable_artifacts
evaluator       none   int        max_artifact_storage
evolution_trace none   bool       enabled include_code include_prompts include_failures compress
evolution_trace none   str        format
evolution_trace none   str?       output_path
evolution_trace none   int        buffer_size
"""
"""Section ("-" for the top level, "model" for one model), effect, type, keys."""


def _read_table() -> dict[str, dict[str, ConfigKey]]:
    keys: dict[str, dict[str, ConfigKey]] = {}
    for line in _TABLE.strip().split("\n"):
        section, effect, kind, *names = line.split()
        key = ConfigKey(_KINDS[kind], cast("Effect", effect))
        keys.setdefault(section.strip("-"), {}).update(dict.fromkeys(names, key))
    return keys


KEYS = _read_table()
"""Section -> key -> type and effect. "" is the top level."""
MODEL_KEYS = KEYS.pop("model")
"""The keys of one model, also of `llm` itself, which has them for all models."""
KEYS["llm"] = {**MODEL_KEYS, **KEYS["llm"]}


class OpenEvolveConfig(msgspec.Struct, frozen=True):
    """The settings of a file: values by (section, key), the file, and notes for the user."""

    values: dict[tuple[str, str], object] = {}
    path: str = ""
    notes: tuple[str, ...] = ()

    def get(self, section: str, key: str, default: object = None) -> Any:
        """The value of a key, the default if it is absent or null."""
        value = self.values.get((section, key))
        return default if value is None else value

    def fault(self, section: str, key: str, what: str, fix: str) -> TaskError:
        """The error for a key whose value cannot be used."""
        dotted = f"{section}.{key}".lstrip(".")
        return TaskError(f"{dotted} {what}", where=f"{self.path} ({dotted})", fix=fix)


def read_config(path: Path, is_skydiscover: bool = False) -> OpenEvolveConfig:
    """Read a `config.yaml`; raise `TaskError` for invalid YAML and refused values."""
    values: dict[tuple[str, str], object] = {}
    ignored: list[str] = []
    found = load_mapping(path)
    if is_skydiscover:
        found = _skydiscover_keys(found, path, ignored)
    for name, value in found.items():
        section = str(name)
        if section not in KEYS or not section:
            _add_value(values, ignored, path, "", section, value)
            continue
        if not isinstance(value, Mapping):
            raise TaskError(
                f"'{section}' must hold keys, not {value!r}",
                where=f"{path} ({section})",
                fix="write its keys indented below it, or remove the section",
            )
        for key, inner in value.items():
            _add_value(values, ignored, path, section, str(key), inner)
    config = OpenEvolveConfig(values, str(path))
    check_config(config)
    note = f"{path.name}: keys without effect here: {', '.join(ignored)}"
    return msgspec.structs.replace(config, notes=(note,) if ignored else ())


_SKYDISCOVER_NAMES = {
    "max_solution_length": "max_code_length",
    "diff_based_generation": "diff_based_evolution",
}
_OPENEVOLVES = (*_SKYDISCOVER_NAMES.values(), "enforce_evolve_blocks", "database")


def _skydiscover_keys(
    found: Mapping[object, object], path: Path, ignored: list[str]
) -> dict[object, object]:
    """SkyDiscover's keys (0.1.0) by OpenEvolve's names; those that it does not read are ignored.

    A short system message may be the name of a file.
    """
    ignored += [name for name in _OPENEVOLVES if name in found]
    kept = {key: value for key, value in found.items() if key not in _OPENEVOLVES}
    renamed = {_SKYDISCOVER_NAMES.get(str(key), key): value for key, value in kept.items()}
    prompt = renamed.get("prompt")
    if isinstance(prompt, dict):
        renamed["prompt"] = {key: _text_of_message(prompt, key, path.parent) for key in prompt}
    return renamed


def _text_of_message(prompt: Mapping[object, object], key: object, folder: Path) -> object:
    """The value of a key; of a system message that names a file its text."""
    value = prompt[key]
    if key != "system_message" or not isinstance(value, str) or "\n" in value.strip():
        return value
    is_name = len(value) <= 255 and (folder / value).is_file()
    return read_text(path_inside(folder, value)) if is_name else value


def _add_value(
    values: dict[tuple[str, str], object],
    ignored: list[str],
    path: Path,
    section: str,
    name: str,
    value: object,
) -> None:
    """Add a key's value, checked; name those without effect here."""
    dotted = f"{section}.{name}".lstrip(".")
    known = KEYS[section].get(name)
    if (section, name) == ("llm", "model"):
        raise TaskError(
            "there is no key llm.model",
            where=f"{path} (llm.model)",
            fix="write llm.primary_model, or the list llm.models",
        )
    if known is None:
        home = [] if name in KEYS else _homes(name)
        ignored.append(f"{dotted} (a key of {' and '.join(home)})" if home else dotted)
        return
    _check_value(value, known.kind, path, dotted, name)
    values[section, name] = value
    if known.effect == "none":
        ignored.append(dotted)
    elif name == "models" and isinstance(value, list):
        keys = dict.fromkeys(str(key) for entry in value for key in entry)
        idle = [key for key in keys if MODEL_KEYS.get(key, _UNREAD).effect == "none"]
        ignored += [f"{dotted}[].{key}" for key in idle]


def _homes(key: str) -> list[str]:
    """The sections that have a key, as a person would say it."""
    return [section or "the top level" for section, keys in KEYS.items() if key in keys]


def _check_value(value: object, kind: Any, path: Path, dotted: str, name: str) -> None:
    # OpenEvolve drops these two before it looks at types
    is_dropped = value is None and dotted in ("llm.temperature", "llm.top_p")
    if not is_dropped and not fits(value, kind):
        wanted = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
        raise TaskError(
            f"wrong value {value!r}: expected {wanted}",
            where=f"{path} ({dotted})",
            fix="correct the value or remove the key",
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise TaskError(
            "the value must be finite", where=f"{path} ({dotted})", fix="write a number"
        )
    if name in ("models", "evaluator_models") and isinstance(value, list):
        for number, entry in enumerate(value):
            for key, inner in entry.items():
                if key in MODEL_KEYS:
                    where = f"{dotted}[{number}].{key}"
                    _check_value(inner, MODEL_KEYS[key].kind, path, where, key)


def fits(value: object, kind: Any) -> bool:
    """True if a value is of a type as OpenEvolve counts it: ints are floats, bools are ints."""
    args = get_args(kind)
    if isinstance(kind, UnionType):
        return any(fits(value, each) for each in args)
    if get_origin(kind) is list:
        return isinstance(value, list) and all(fits(each, args[0]) for each in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(
            fits(key, args[0]) and fits(each, args[1]) for key, each in value.items()
        )
    return isinstance(value, (int, float) if kind is float else kind)


def check_config(config: OpenEvolveConfig) -> None:
    """Raise `TaskError` for values that OpenEvolve refuses together, and for those not followed."""
    islands = config.get("database", "num_islands", 5)
    for section, key in (
        ("prompt", "island_system_messages"),
        ("database", "island_initial_programs"),
    ):
        if len(config.get(section, key, [])) > islands:
            fix = "remove entries, or raise num_islands"
            raise config.fault(section, key, "has more entries than database.num_islands", fix)
    first = config.get("database", "island_initial_programs", [None])[:1]
    if first not in ([], [None]):
        what, fix = "must begin with null", "write null for the first island"
        raise config.fault("database", "island_initial_programs", what, fix)
    _check_replies(config)
    named_models(config)
    if config.get("evaluator", "use_llm_feedback", False):
        raise config.fault(
            "evaluator",
            "use_llm_feedback",
            "is on: a model would change every score, which culmen does not do",
            "set it to false, or let the evaluator ask a model: culmen docs tasks",
        )


def _check_replies(config: OpenEvolveConfig) -> None:
    """Refuse a faulty `diff_pattern`, and forms of replies that exclude each other."""
    try:
        re.compile(config.get("", "diff_pattern", ""))
    except re.error as error:
        what, fix = f"is no regular expression: {error}", "correct it, or remove the key"
        raise config.fault("", "diff_pattern", what, fix) from None
    rewrites = config.get("", "full_rewrite_probability", 0.0)
    if isinstance(rewrites, bool) or not 0 <= rewrites <= 1:
        raise config.fault("", "full_rewrite_probability", "is not from 0 to 1", "write 0.1")
    by_diff = config.get("", "diff_based_evolution", True)
    if rewrites > 0 and not by_diff:
        what = "is of use with diff_based_evolution = true only"
        raise config.fault("", "full_rewrite_probability", what, "remove one of them")
    described = config.get("prompt", "programs_as_changes_description", False)
    if described and (rewrites > 0 or not by_diff):
        what = "needs diff_based_evolution = true and full_rewrite_probability = 0"
        raise config.fault("prompt", "programs_as_changes_description", what, "remove one of them")


def search_settings(config: OpenEvolveConfig) -> dict[str, str]:
    """The settings of the strategy `openevolve` that a file makes, as the command line has them."""
    settings = {
        name: str(int(value) if isinstance(value, bool) else value)
        for name, (section, key) in _SETTINGS.items()
        if isinstance(value := config.get(section, key), int | float)
    }
    by_diff = config.get("", "diff_based_evolution", True)
    return {**settings, "format": "diff" if by_diff else "rewrite"}


_SETTINGS = {
    "islands": ("database", "num_islands"),
    "bins": ("database", "feature_bins"),
    "interval": ("database", "migration_interval"),
    "rate": ("database", "migration_rate"),
    "population": ("database", "population_size"),
    "archive": ("database", "archive_size"),
    "exploration": ("database", "exploration_ratio"),
    "exploitation": ("database", "exploitation_ratio"),
    "elites": ("database", "elite_selection_ratio"),
    "top": ("prompt", "num_top_programs"),
    "diverse": ("prompt", "num_diverse_programs"),
}
"""Settings of the strategy by name, and the keys that they come from."""


def named_models(config: OpenEvolveConfig) -> list[JsonObject]:
    """The models that a file names, with their own and the shared settings; never a key.

    Those of weight 0 are never asked and left out. Raises `TaskError` for weights of which
    OpenEvolve can make no choice.
    """
    models: list[JsonObject] = [dict(each) for each in config.get("llm", "models", [])]
    for role, usual in (("primary", 1.0), ("secondary", 0.2)):
        name = config.get("llm", f"{role}_model")
        weight = config.get("llm", f"{role}_model_weight", usual)
        if name and (role == "primary" or weight > 0):
            models.append({"name": name, "weight": weight})
    for model in models:
        weight = model.setdefault("weight", 1.0)
        if not 0 <= weight < math.inf:
            raise config.fault("llm", "models", f"has the weight {weight}", "write 0 or more")
    chosen = [model for model in models if model["weight"] > 0]
    pair = ("primary_model", "secondary_model", "primary_model_weight", "secondary_model_weight")
    if not chosen and (models or any(config.get("llm", key) for key in pair)):
        fix = "write primary_model, or models with a weight above 0"
        raise config.fault("llm", "models", "names no model that could be asked", fix)
    return [_complete_model(config, model) for model in chosen]


_SHARED: JsonObject = {
    "api_base": "https://api.openai.com/v1",
    "temperature": 0.7,
    "top_p": None,
    "max_tokens": 4096,
    "reasoning_effort": None,
}
"""Settings that `llm` makes for all models, and OpenEvolve's values without them."""


def _complete_model(config: OpenEvolveConfig, model: JsonObject) -> JsonObject:
    """A model with the shared settings that it does not make itself, and its key's variable."""
    plain: JsonObject = {"name": model.get("name", ""), "weight": float(model["weight"])}
    for key, usual in _SHARED.items():
        own = model.get(key)
        value = config.get("llm", key, usual) if own is None else own
        if value is not None:
            plain[key] = value
    key = model.get("api_key") or config.get("llm", "api_key", "")
    if variable := env_variable_name(key):
        plain["api_key_env"] = variable
    return plain


def models_file(path: Path) -> JsonObject:
    """The tables of a models file that stand for the models of a `config.yaml`.

    A provider has the address that the file names, and its key from the variable that the file
    names, else from the one that is usual there. Raises `TaskError`.
    """
    providers, models, members = JsonObject(), JsonObject(), list[JsonObject]()
    for number, model in enumerate(named_models(read_config(path)), 1):
        name = str(model["name"])
        name = name if name not in models else f"{name} {number}"
        address = str(model["api_base"]).rstrip("/")
        known = _PROVIDERS_BY_ADDRESS.get(address, "")
        provider = known if known and "api_key_env" not in model else f"config-{number}"
        if provider != known:
            variable = model.get("api_key_env") or "OPENAI_API_KEY"
            providers[provider] = {"base_url": address, "key_env": variable}
        fields = ("top_p", "reasoning_effort")
        models[name] = {
            "model": model["name"],
            "provider": provider,
            "temperature": model["temperature"],
            "max_tokens": model["max_tokens"],
            "extra": {key: model[key] for key in fields if key in model},
        }
        members.append({"model": name, "weight": model["weight"]})
    return {"providers": providers, "models": models, "roles": {OTHERS: members}}


_PROVIDERS_BY_ADDRESS = {
    "https://api.openai.com/v1": "openai",
    **{
        provider.base_url.rstrip("/"): name
        for name, provider in PROVIDERS.items()
        if provider.base_url
    },
}


def written_keys(config: OpenEvolveConfig) -> bool:
    """True if a file has an API key in plain text."""
    own: Iterable[JsonObject] = config.get("llm", "models", [])
    keys = [config.get("llm", "api_key", ""), *(str(each.get("api_key") or "") for each in own)]
    return any(key and not env_variable_name(key) for key in keys)


def env_variable_name(text: str) -> str:
    """The name in `${NAME}`, "" for any other text."""
    match = re.fullmatch(r"\s*\$\{(\w+)\}\s*", text)
    return match[1] if match else ""


@boundary()
def load_mapping(path: Path) -> dict[object, object]:
    """The mapping in a YAML file, empty for an empty file; raise `TaskError` for anything else."""
    import yaml

    try:
        raw = yaml_value(read_text(path_inside(path.parent, path.name)))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        what = f"not valid YAML: {error.problem}"
        raise TaskError(what, where=f"{path}{line}", fix="correct that line") from None
    except yaml.YAMLError as error:
        raise TaskError(
            f"not valid YAML: {error}", where=str(path), fix="correct the file"
        ) from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise TaskError(
            "the file is not a mapping of keys", where=str(path), fix="write key: value lines"
        )
    return raw
