"""culmen's own task folder: `task.toml`, initial programs, an evaluator, perhaps cases.

The evaluator has a function `score`.
"""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import msgspec

from culmen.core import markers
from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import Case
from culmen.core.extensions import part_addresses
from culmen.core.inside import path_inside
from culmen.core.options import BackendChoice, Needs, TaskDefaults, setting_texts
from culmen.core.task import (
    OWN_FORMS,
    Asks,
    Evaluator,
    Objective,
    Surface,
    Task,
    limit_fault,
    parse_constraint,
    parse_direction,
    parse_metric_goals,
)
from culmen.core.usage import Budget
from culmen.jail import spoken
from culmen.jail.forms import find_form, require_form, takes_path
from culmen.tasks import reading
from culmen.tasks.reading import (
    closest_name,
    language_of,
    missing_file_error,
    one_of,
    text_for_agents,
)
from culmen.tasks.schema import (
    DefaultsTable,
    EvaluatorTable,
    ObjectiveTable,
    Seeds,
    TaskToml,
    read_cases,
    read_seeds,
    read_toml,
)

# arguments of score(), and the forms that have them
SCORE_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "output": ("call", "command"),
    "call": ("serve",),
    "case": ("call", "serve", "command"),
    "seed": ("call", "serve", "command"),
    "parts": ("call", "serve", "command"),
    "seconds": ("call", "serve", "command"),
    "ask": ("call", "serve", "command"),
    "data": ("command",),
    "files": ("command",),
}


def read_task_toml(path: Path) -> Task:
    """The task of a `task.toml`.

    Raises `TaskError` also for mistakes that would otherwise appear only later.
    """
    source = read_toml(path)
    table, root = source.table, path.parent
    seeds, seed_files = read_seeds(source)
    if not seeds and not table.goal.strip():
        fix = "add [seed] files = [...], or a goal from which a model can write the first program"
        raise source.error_at_key("a task without an initial program needs a goal", "", "goal", fix)
    cases_path = path_inside(root, table.cases)
    if table.cases and not cases_path.is_file():
        raise missing_file_error(cases_path, f"{path} (cases)")
    label_where = f"{path}:{reading.line_of(source.text, '', 'label')} (label)"
    cases = read_cases(cases_path, table.label, label_where) if table.cases else ()
    surface = _build_surface(source, seeds)
    evaluator = _build_evaluator(source, seeds)
    files, note = reading.evaluator_files(Path(evaluator.path), [path, cases_path, *seed_files])
    evaluator = msgspec.structs.replace(
        evaluator, digest=reading.evaluator_digest(files), files=files
    )
    objective = build_objective(source)
    _check_limits(source)
    task = Task(
        name=table.name or root.resolve().name,
        goal=table.goal.strip(),
        seeds=seeds,
        evaluator=evaluator,
        cases=cases,
        objective=objective,
        surface=surface,
        limits=table.limits,
        features=tuple(table.features),
        deterministic=table.deterministic,
        same_draws=table.same_draws,
        system=table.system.strip(),
        defaults=run_defaults(source),
        notes=tuple(filter(None, (note, *_task_notes(evaluator, cases)))),
        root=str(root.resolve()),
        asks=_declared_asks(source),
        data=_generated_data(source),
    )
    return reading.with_digest(task)


def _declared_asks(source: TaskToml) -> dict[str, Asks]:
    """An evaluation's declared use of models, by role."""
    table = source.table.evaluator
    for role, asks in table.asks.items():
        if role not in table.roles:
            fix = f"add it to roles, now {table.roles}"
            raise source.error_at_key(f"no role is called '{role}'", "evaluator", "asks", fix)
        if min(asks.calls, asks.input, asks.output) < 0:
            fix = "write what one evaluation asks: { calls = 6, input = 9000, output = 300 }"
            raise source.error_at_key("calls and tokens are not negative", "evaluator", "asks", fix)
    return dict(table.asks)


def _generated_data(source: TaskToml) -> str:
    """The words for made-up data if none of the files that would replace them is there."""
    table, root = source.table.data, source.path.parent
    if table is None or any((root / name).exists() for name in table.files):
        return ""
    return table.generated


def _check_form(source: TaskToml) -> None:
    """Refuse a form that neither culmen nor an installed extension has."""
    form = source.table.evaluator.form
    known = (*OWN_FORMS, *part_addresses("evaluator_forms"))
    if form and form not in known:
        raise source.error_at_key(
            f"there is no form of evaluators '{form}'", "evaluator", "form", one_of(form, known)
        )


def _check_metric(source: TaskToml) -> None:
    """Raise `TaskError` for a metric without a package, or for an evaluator that it cannot time."""
    table, known = source.table.evaluator, part_addresses("metrics")
    if table.metric and known and table.metric not in known:
        raise source.error_at_key(
            f"there is no metric '{table.metric}'",
            "evaluator",
            "metric",
            one_of(table.metric, known),
        )
    if table.metric and (table.program or table.url):
        fix = "remove metric, or give a Python evaluator"
        raise source.error_at_key(
            "a metric needs an evaluator in Python", "evaluator", "metric", fix
        )
    if table.metric and table.build:
        raise source.error_at_key(
            "a metric times programs in Python only", "evaluator", "build", "remove build"
        )


def _check_state(source: TaskToml, form: str) -> None:
    """Refuse `keeps_state` where every evaluation has a process of its own."""
    if source.table.evaluator.keeps_state and form == "legacy":
        what = "evaluate(path) has no state to keep: every evaluation has a process of its own"
        fix = "remove it, or write score(output)"
        raise source.error_at_key(what, "evaluator", "keeps_state", fix)


def _build_evaluator(source: TaskToml, seeds: Seeds) -> Evaluator:
    table = source.table.evaluator
    _check_form(source)
    _check_metric(source)
    if table.program or table.url:
        path, form, contract = _spoken_evaluator_file(source), table.form or "call", ""
    else:
        path, form, contract = _python_evaluator(source)
    for key in ("thresholds", "proxy"):
        if form != "legacy" and getattr(table, key) != getattr(EvaluatorTable(), key):
            raise source.error_at_key(
                f"{key} belongs to form = legacy", "evaluator", key, "remove it"
            )
    _check_state(source, form)
    _check_command(source, form, seeds)
    name = _imported_part(source, form, seeds)
    suffix = Path(next(iter(seeds[0]))).suffix if seeds and takes_path(form) else ".py"
    _check_packages(source)
    return Evaluator(
        form=form,
        path=str(path),
        entry=table.entry,
        module=name,
        command=tuple(table.command),
        build=tuple(table.build),
        suffix=suffix,
        thresholds=tuple(table.thresholds) or None,
        packages=tuple(table.packages),
        optional_packages=tuple(table.optional_packages),
        options={
            **table.options,
            **({"contract": contract} if contract else {}),
            **({"roles": list(table.roles)} if table.roles else {}),
        },
        verifier=_verifier_path(source, form, path),
        proxy=table.proxy,
        shown=text_for_agents(path, source.table.agents.evaluator),
        program=tuple(table.program),
        url=table.url,
        image=table.image,
        metric=table.metric,
        keeps_state=table.keeps_state,
    )


def _python_evaluator(source: TaskToml) -> tuple[Path, str, str]:
    """The evaluator's file, its form, and the ecosystem of its contract, "" for culmen's."""
    table = source.table.evaluator
    path = path_inside(source.path.parent, table.file)
    if not path.is_file():
        raise missing_file_error(path, f"{source.path} (evaluator.file)")
    module = reading.read_module(path)
    if table.metric:
        return path, _measured_form(source, module, path), ""
    form = table.form or guess_form(module, path)
    check_scorer(form, module, path)
    added = find_form(form)
    return path, form, (added.contract_of(module) or "") if added is not None else ""


def _measured_form(source: TaskToml, module: reading.Module, path: Path) -> str:
    """The form of an evaluator with a metric; raise `TaskError` if it lacks a function."""
    table = source.table.evaluator
    if table.form not in ("", "serve"):
        fix = "remove form: the program is run and timed by culmen"
        raise source.error_at_key(
            f'metric = "{table.metric}" has a form of its own', "evaluator", "form", fix
        )
    metric = spoken.require_metric(Evaluator("serve", str(path), metric=table.metric))
    for name, arguments in metric.functions.items():
        why = f'metric = "{table.metric}" needs it: define {name}({", ".join(arguments)})'
        definition = reading.require_function(module, name, path, why)
        unknown = [each for each in definition.params or () if each not in arguments]
        if name == "generate" and unknown:
            raise TaskError(
                f"generate has an unknown argument '{unknown[0]}'",
                where=f"{path}:{definition.line}",
                fix=one_of(unknown[0], arguments),
            )
    return "serve"


def _spoken_evaluator_file(source: TaskToml) -> Path:
    """The evaluator's file for an evaluator in another language.

    The file beside task.toml that its command names, else task.toml.
    """
    table, folder = source.table.evaluator, source.path.parent.resolve()
    if table.program and table.url:
        raise source.error_at_key(
            "program and url are two evaluators", "evaluator", "url", "keep one"
        )
    if table.form not in ("", "call", "command"):
        fix = "use form = call or command"
        raise source.error_at_key(
            f"form = {table.form} needs an evaluator in Python", "evaluator", "form", fix
        )
    if table.url and (why := spoken.url_fault(table.url)):
        raise source.error_at_key(
            f"{table.url} cannot be used: {why}",
            "evaluator",
            "url",
            "write http://127.0.0.1:PORT/PATH",
        )
    first = next(iter(table.program), "")
    if first.startswith("docker:"):
        return folder / source.path.name
    if first and not shutil.which(str(folder / first) if "/" in first else first):
        fix = "install it, or correct the command; one of the task's folder is written ./NAME"
        raise source.error_at_key(f"there is no program '{first}'", "evaluator", "program", fix)
    files = [folder / word for word in table.program if (folder / word).is_file()]
    return next((file for file in files if file.parent == folder), folder / source.path.name)


def _check_packages(source: TaskToml) -> None:
    table = source.table.evaluator
    for key in ("packages", "optional_packages"):
        for package in getattr(table, key):
            if not all(piece.isidentifier() for piece in package.split(".")):
                fix = "use names as in an import, without versions"
                raise source.error_at_key(
                    f"'{package}' is not an importable name", "evaluator", key, fix
                )


def _verifier_path(source: TaskToml, form: str, evaluator: Path) -> str:
    """The verifier's absolute path, "" without one.

    It lies beside the evaluator, whose digest then covers it.
    """
    name = source.table.evaluator.verify
    if not name:
        return ""
    path = path_inside(source.path.parent, name)
    if not path.is_file():
        raise missing_file_error(path, f"{source.path} (evaluator.verify)")
    if path.parent != evaluator.parent:
        raise source.error_at_key(
            "the verifier is not beside the evaluator", "evaluator", "verify", "move it there"
        )
    if form not in ("call", "command"):
        fix = "use form = call or command, or remove verify"
        raise source.error_at_key(
            f"form = {form} has no output to verify", "evaluator", "verify", fix
        )
    reading.require_function(reading.read_module(path), "certify", path, "define certify(output)")
    return str(path)


def guess_form(module: reading.Module, path: Path) -> str:
    """The form of an evaluator, judged by its functions.

    `score(call)`: serve; `score(...)`: call; `evaluate(path)`: legacy.
    """
    if "score" in module.names:
        definition = module.names["score"]
        return "serve" if "call" in (*(definition.params or ()), *definition.optional) else "call"
    if module.may_define("evaluate") or _has_contract(module):
        return "legacy"
    near = closest_name("score", module.names) or closest_name("evaluate", module.names)
    raise TaskError(
        "the evaluator defines neither 'score' nor 'evaluate'"
        + (f"; there is '{near}'" if near else ""),
        where=str(path),
        fix="define score(output), or evaluate(program_path) as OpenEvolve has it",
    )


def _has_contract(module: reading.Module) -> bool:
    form = find_form("legacy")
    return form is not None and form.contract_of(module) is not None


def check_scorer(form: str, module: reading.Module, path: Path) -> None:
    """Raise `TaskError` if the form's function is missing or has an unknown argument."""
    if form not in OWN_FORMS:
        require_form(form, str(path)).check_module(module, path)
        return
    definition = reading.require_function(
        module, "score", path, f"define score({'call' if form == 'serve' else 'output'})"
    )
    where = f"{path}:{definition.line}"
    for name in definition.params or ():
        if name not in SCORE_ARGUMENTS:
            fix = one_of(name, SCORE_ARGUMENTS)
            raise TaskError(f"score has an unknown argument '{name}'", where=where, fix=fix)
        if form not in SCORE_ARGUMENTS[name]:
            forms = " or ".join(SCORE_ARGUMENTS[name])
            fix = f"'{name}' exists for form = {forms}; correct [evaluator] form or the function"
            raise TaskError(
                f"score has the argument '{name}', which form = {form} does not provide",
                where=where,
                fix=fix,
            )


def _check_command(source: TaskToml, form: str, seeds: Seeds) -> None:
    command, build = source.table.evaluator.command, source.table.evaluator.build
    if form != "command":
        for key, words in (("command", command), ("build", build)):
            if words:
                raise source.error_at_key(
                    f'{key} needs form = "command"', "evaluator", key, f"add it, or drop {key}"
                )
        return
    if not command:
        fix = 'write for instance command = ["awk", "-f", "{program.awk}"]'
        raise source.error_at_key("form = command needs a command", "evaluator", "form", fix)
    for key, words in (("command", command), ("build", build)):
        for name in re.findall(r"\{([^{}]*)\}", " ".join(words)):
            if seeds and name not in seeds[0]:
                raise source.error_at_key(
                    f"no part is called '{name}'", "evaluator", key, one_of(name, seeds[0])
                )


def _imported_part(source: TaskToml, form: str, seeds: Seeds) -> str:
    """The imported part; raise `TaskError` if its syntax shows that it lacks the entry."""
    table = source.table.evaluator
    entry, name = table.entry, table.module
    if form not in ("call", "serve"):
        return ""
    if not entry and form == "call":
        return ""
    pieces = entry.split(".") if table.metric else [entry]  # Class.method
    if not all(map(str.isidentifier, pieces)) or len(pieces) > 2:
        raise source.error_at_key(
            f"'{entry}' is not a function name",
            "evaluator",
            "entry",
            'write for instance entry = "run"',
        )
    if not seeds:
        return name
    name = name or next(iter(seeds[0]))
    if name not in seeds[0]:
        raise source.error_at_key(
            f"no part is called '{name}'", "evaluator", "module", one_of(name, seeds[0])
        )
    for number, seed in enumerate(seeds, 1):
        label = f"{name} of initial program {number}" if len(seeds) > 1 else name
        where = Path(f"{source.path.parent}/{label}")
        module = reading.parse_module(seed[name], str(where))
        reading.require_function(
            module, pieces[0], where, f"define it, or set [evaluator] entry in {source.path.name}"
        )
    return name


def build_objective(source: TaskToml) -> Objective:
    table = source.table.objective
    if source.table.objectives or source.table.constraints:
        return _build_multi_objective(source)
    low, high = table.bounds
    if source.table.evaluator.metric:
        low = max(low, 0.0)
    for key in ("start", "target", "known"):
        value = getattr(table, key)
        if value is None:
            continue
        if not math.isfinite(value):
            raise source.error_at_key(
                f"{key} must be a finite number",
                "objective",
                key,
                "write the number, or leave it out",
            )
        if not low <= value <= high:
            raise source.error_at_key(
                f"{key} = {value} lies outside the bounds",
                "objective",
                key,
                "correct it or the bounds",
            )
    if math.isnan(low) or math.isnan(high) or not low < high:
        raise source.error_at_key(
            "bounds must be [low, high]", "objective", "bounds", "write for instance [0, inf]"
        )
    ends = (low if math.isfinite(low) else None, high if math.isfinite(high) else None)
    try:
        direction = parse_direction(table.direction)
    except UserError as error:
        raise source.error_at_key(error.what, "objective", "direction", error.fix) from None
    objective = Objective(direction, table.start, table.target, ends, table.known)
    if table.start is not None and objective.reaches_target(table.start):
        other = "min" if direction == "max" else "max"
        fix = f'turn direction to "{other}", or correct start and target'
        raise source.error_at_key("start already reaches the target", "objective", "direction", fix)
    return objective


def _build_multi_objective(source: TaskToml) -> Objective:
    """The objective of a task with several objectives or constraints."""
    table = source.table
    if table.objective != ObjectiveTable():
        fix = "remove [objective]: each objective has its own direction and reference"
        raise source.error_at_key(
            "[objective] and [objectives] exclude each other", "", "objective", fix
        )
    if table.evaluator.verify:
        fix = "remove verify: it certifies one score"
        raise source.error_at_key(
            "several objectives cannot be verified", "evaluator", "verify", fix
        )
    if not table.objectives:
        fix = 'name the metrics to optimise: [objectives], then for instance accuracy = "max"'
        raise source.error_at_key("constraints need [objectives]", "", "constraints", fix)
    try:
        limits = tuple(parse_constraint(constraint) for constraint in table.constraints)
        return Objective(metrics=parse_metric_goals(table.objectives), constraints=limits)
    except UserError as error:
        section = "" if error.where == "constraints" else "objectives"
        key = error.where.partition(": ")[2] or "constraints"
        raise source.error_at_key(error.what, section, key, error.fix) from None


def _check_limits(source: TaskToml) -> None:
    for key in source.table.limits.__struct_fields__:
        if fault := limit_fault(key, getattr(source.table.limits, key)):
            raise source.error_at_key(f"{key} {fault}", "limits", key, "write a positive number")


def _build_surface(source: TaskToml, seeds: Seeds) -> Surface:
    surface = source.table.surface
    if not seeds:
        return surface
    parts = seeds[0]
    for name in surface.frozen:
        if name not in parts:
            raise source.error_at_key(
                f"no part is called '{name}'", "surface", "frozen", one_of(name, parts)
            )
    if set(surface.frozen) >= parts.keys():
        raise source.error_at_key(
            "every part is frozen, nothing can be improved", "surface", "frozen", "free one part"
        )
    if surface.markers == "enforced":
        for seed in seeds:
            _check_markers(source, surface, seed)
    if surface.language == Surface().language:
        editable = next(name for name in parts if name not in surface.frozen)
        return msgspec.structs.replace(surface, language=language_of(editable))
    return surface


def _check_markers(source: TaskToml, surface: Surface, seed: dict[str, str]) -> None:
    for name, text in seed.items():
        try:
            markers.split_blocks(text)
        except markers.MarkerError as error:
            fix = "pair every EVOLVE-BLOCK-START with an EVOLVE-BLOCK-END"
            raise TaskError(
                str(error), where=f"{source.path.parent / name}:{error.line}", fix=fix
            ) from None
    if not any(
        markers.has_blocks(text) for name, text in seed.items() if name not in surface.frozen
    ):
        fix = "put # EVOLVE-BLOCK-START and # EVOLVE-BLOCK-END around the editable text"
        raise source.error_at_key(
            "markers are enforced, but no initial program has any", "surface", "markers", fix
        )


def run_defaults(source: TaskToml) -> TaskDefaults:
    """The choices of [defaults], [presets.NAME] and [resources]."""
    try:
        needs = Needs.from_table(msgspec.to_builtins(source.table.resources))
    except UserError as error:
        raise source.error_at_key(error.what, "resources", error.where, error.fix) from None
    own = msgspec.structs.replace(
        _read_defaults(source, source.table.defaults, "defaults"),
        backend=None if needs == Needs() else BackendChoice(needs=needs),
    )
    presets = {
        name: own.with_choices(_read_defaults(source, table, f"presets.{name}"))
        for name, table in source.table.presets.items()
    }
    return msgspec.structs.replace(own, presets=presets)


def _read_defaults(source: TaskToml, table: DefaultsTable, section: str) -> TaskDefaults:
    try:
        budget = Budget.parse(table.budget) if table.budget else None
    except UserError as error:
        raise source.error_at_key(
            error.what, section, "budget", error.fix or 'write "evaluations=200"'
        ) from None
    return TaskDefaults(
        strategy=table.strategy,
        model=table.model,
        budget=budget,
        seed=table.seed,
        workers=table.workers,
        settings=setting_texts(table.settings),
    )


def _task_notes(evaluator: Evaluator, cases: tuple[Case, ...]) -> list[str]:
    notes = []
    if evaluator.form == "legacy" and evaluator.proxy == "never":
        notes.append(
            'proxy = "never": the evaluator shares a process with the candidate, so scores are '
            "self-reported"
        )
    if (
        evaluator.command
        and not evaluator.build
        and "{" not in evaluator.command[0]
        and not shutil.which(evaluator.command[0])
    ):
        notes.append(
            f"the command '{evaluator.command[0]}' is not found on PATH: install it or correct "
            "[evaluator] command"
        )
    if cases and not any(case.split != "train" for case in cases):
        notes.append(
            'all cases are training cases: mark some "split": "test" to see whether the result '
            "generalises"
        )
    return notes
