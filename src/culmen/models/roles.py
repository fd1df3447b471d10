"""`--model` texts and models files, read into `Roles`.

Every mistake is a `UserError` that names its location.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from culmen.core.errors import UserError
from culmen.core.extensions import import_part, part_addresses
from culmen.core.foreign import boundary, yaml_value
from culmen.core.json import JsonObject
from culmen.core.options import BankProgram
from culmen.core.ports import MinimalGateway, with_protocol_defaults
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.models.call import Call, MinimalModel, ModelBackend
from culmen.models.spec import (
    LONGEST_TOKEN,
    OTHERS,
    PROVIDERS,
    BankAddress,
    ModelSpec,
    Price,
    Provider,
    Roles,
    Weighted,
)

Table = TypeVar("Table")
Number = TypeVar("Number", int, float)

NONE = "none"  # a role without a model
BANK = "bank:"  # begins the name of a bank of programs
_BANK_FOLDER = re.compile(rf"(?<={BANK})[^#|,]+")


class _Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A [models.NAME] table."""

    model: str = ""
    provider: str = "openai"
    temperature: float | None = None
    max_tokens: int = 16_384
    samples: int | None = None
    json: bool = False
    send_seed: bool = False
    max_tokens_name: str = ""
    price: Price | None = None
    price_unknown: bool = False
    context: int | None = None
    images: bool | None = None
    extra: JsonObject = {}
    token_bytes: float = 1.0


class _Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    weight: float = 1.0


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    providers: dict[str, JsonObject] = {}
    models: dict[str, _Settings] = {}
    roles: dict[str, str | list[str | _Member]] = {}


class ModelBook:
    """The providers and models that can be named: built-in ones and those of a models file."""

    def __init__(self, file: str | Path | None = None, asked: Path | None = None) -> None:
        """`asked` is the folder of prompts to a person."""
        self._where, self._asked = str(file or ""), asked
        content = _read_models_file(Path(file).expanduser()) if file else _File()
        self._providers = {
            **PROVIDERS,
            **{n: self._build_provider(n, t) for n, t in content.providers.items()},
        }
        self._models = content.models
        self._roles = {
            role: _entry_beside_file(entry, Path(file or "").expanduser().parent)
            for role, entry in content.roles.items()
        }

    def parse_roles(self, model: object = None) -> Roles:
        """Roles of a run's model over those of the models file.

        `model` is a `--model` text (`gpt-5-mini`, `proposer=openai/gpt-5,summarizer=none`,
        ensembles as `3*gpt-5-mini|1*gpt-5`), a mapping from roles to names or backends, or a
        backend for all roles. Raises `UserError`.
        """
        named = _split_models(model)
        if named.get(OTHERS) == "offline":  # only roles of the evaluator may have models then
            named[OTHERS] = NONE
        table = {
            role: self._parse_ensemble(entry) for role, entry in {**self._roles, **named}.items()
        }
        return Roles(table)

    def roles_text(self) -> str:
        """The models in the file's [roles], written as a `--model` text.

        "" if it has no such table.
        """

        def text(entry: str | list[str | _Member]) -> str:
            if isinstance(entry, str):
                return entry
            return "|".join(e if isinstance(e, str) else f"{e.weight:g}*{e.model}" for e in entry)

        return ",".join(f"{role}={text(entry)}" for role, entry in self._roles.items())

    def model_names(self) -> list[str]:
        """The models described in the file."""
        return list(self._models)

    def model(self, name: str) -> ModelSpec:
        """The model of this name: one of the file's, `provider/model`, or a model of OpenAI.

        Raises `UserError` for any other name.
        """
        name = name.strip()
        if name in self._models:
            return self._build_model(name, self._models[name])
        if name == "offline":
            raise UserError(
                "'offline' cannot be the model of a single role",
                where=self._where or "--model",
                fix="name offline alone, or write ROLE=none for a role without a model",
            )
        if name == "ask":
            return _person_model(self._asked)
        if name.startswith(BANK):
            return bank_model(name)
        prefix, slash, rest = name.partition("/")
        if not slash:
            return self._default_model("openai", prefix)
        if prefix in self._providers and rest:
            return self._default_model(prefix, rest)
        raise UserError(
            f"unknown provider '{prefix}' in model '{name}'",
            where=self._where or "--model",
            fix=f"use one of {', '.join(sorted(self._providers))}, or define it in a models "
            f"file under [providers.{prefix}]{_nearest_hint(prefix, self._providers)}",
        )

    def _default_model(self, provider: str, model: str) -> ModelSpec:
        return self._build_model(model, _Settings(model=model, provider=provider))

    def _build_model(self, name: str, s: _Settings) -> ModelSpec:
        provider = self._providers.get(s.provider)
        if provider is None:
            raise UserError(
                f"model '{name}' names an unknown provider '{s.provider}'",
                where=self._where,
                fix=f"define [providers.{s.provider}]{_nearest_hint(s.provider, self._providers)}",
            )
        openai_itself = provider.name == "openai" and provider.effective_base_url is None
        return ModelSpec(
            provider=provider,
            model=s.model or name,
            temperature=s.temperature,
            max_tokens=_check_positive(s.max_tokens, f"{name}.max_tokens", self._where),
            samples=_check_positive(
                s.samples or (8 if openai_itself else 1), f"{name}.samples", self._where
            ),
            json=s.json,
            send_seed=s.send_seed,
            max_tokens_name=s.max_tokens_name
            or ("max_completion_tokens" if openai_itself else "max_tokens"),
            price=s.price,
            price_unknown=s.price_unknown,
            context=None
            if s.context is None
            else _check_positive(s.context, f"{name}.context", self._where),
            images=s.images,
            extra=s.extra,
            token_bytes=_check_token_bytes(s.token_bytes, f"{name}.token_bytes", self._where),
        )

    def _build_provider(self, name: str, table: JsonObject) -> Provider:
        start = msgspec.to_builtins(PROVIDERS[name]) if name in PROVIDERS else {"name": name}
        if "api_key" in table or "key" in table:
            raise UserError(
                "a models file must not contain API keys",
                where=f"{self._where}: [providers.{name}]",
                fix="name the variable (key_env) or the file (key_file) that holds it",
            )
        if "base_url" in table:
            start["prices"] = ""  # elsewhere the known provider's prices need not hold
        provider = _convert_table(
            {**start, **table}, Provider, f"{self._where}: [providers.{name}]"
        )
        for field in ("concurrency", "timeout", "deadline", "rpm", "tpm"):
            if (value := getattr(provider, field)) is not None:
                _check_positive(value, f"{name}.{field}", self._where)
        return provider

    def _parse_ensemble(self, entry: object) -> tuple[Weighted, ...]:
        if isinstance(entry, str):
            names = [piece.strip() for piece in entry.split("|")]
            return () if names == [NONE] else tuple(self._parse_weighted(name) for name in names)
        if isinstance(entry, list | tuple):
            return tuple(member for item in entry for member in self._parse_ensemble(item))
        if isinstance(entry, _Member):
            return (Weighted(self.model(entry.model), _parse_weight(entry.weight, entry.model)),)
        return (Weighted(entry if isinstance(entry, ModelSpec) else of_backend(entry)),)

    def _parse_weighted(self, text: str) -> Weighted:
        weight, star, name = text.partition("*")
        if not star:
            return Weighted(self.model(_check_model_name(text, text)))
        return Weighted(self.model(_check_model_name(name, text)), _parse_weight(weight, text))


class Model:
    """A model that is a Python function, plain or `async`, from the prompt to the reply.

    `dollars` is the price of one call. `version` names what the function does: a later run with the
    same name and version may get its replies from the disk; without one every reply is asked for.
    """

    reports_price = False

    def __init__(
        self, function: Callable[[str], object], *, dollars: float | None = None, version: str = ""
    ) -> None:
        if dollars is not None and not (
            isinstance(dollars, int | float) and 0 <= dollars < math.inf
        ):
            fix = "dollars=0.002 is the price of one call"
            raise UserError(f"{dollars!r:.60} is no price", where="dollars=", fix=fix)
        self._function, self.dollars, self.version = function, dollars, version
        name = getattr(function, "__name__", "function")
        self.name = f"{name} {version}" if version else name

    async def complete(self, call: Call) -> str:
        """The reply to one call; a plain function runs in a thread."""
        if inspect.iscoroutinefunction(self._function):
            return self._check_reply(await self._function(call.prompt))
        return self._check_reply(await asyncio.to_thread(self._ask, call.prompt))

    def _ask(self, prompt: str) -> object:
        try:
            return self._function(prompt)
        except StopIteration as error:  # no future can hold it: its call would never end
            raise self._error("raised StopIteration", "answer every prompt") from error

    def _check_reply(self, reply: object) -> str:
        if isinstance(reply, str):
            return reply
        returned = (
            "None: is a return missing?"
            if reply is None
            else f"a {type(reply).__name__}, not a text"
        )
        raise self._error(f"returned {returned}", "return the reply as a str")

    def _error(self, did: str, fix: str) -> UserError:
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        where = f"{code.co_filename} line {code.co_firstlineno}" if code else "model="
        return UserError(f"the model {self.name} {did}", where=where, fix=fix)


def _person_model(folder: Path | None) -> ModelSpec:
    """A person as a model: one prompt at a time, without a time limit in practice."""
    from culmen.models.backends import ASKED, Person

    month = 30 * 86_400.0
    provider = Provider(name="person", concurrency=1, timeout=month, deadline=month)
    return ModelSpec(
        provider=provider,
        model=ASKED,
        price=Price(0.0, 0.0),
        backend=Person(folder),
        cacheable=False,
    )


def bank_model(name: str) -> ModelSpec:
    """The recorded models of `bank:DIR` or `bank:DIR#MODEL`; the folder is not read."""
    folder, _, model = name.removeprefix(BANK).partition("#")
    if not folder:
        raise UserError(
            f"'{name}' names no folder", where="--model", fix=f"write {BANK}DIR or {BANK}DIR#MODEL"
        )
    address = BankAddress(folder, model.strip())
    provider = Provider(name="bank")
    return ModelSpec(provider=provider, model=address.text, price=Price(0.0, 0.0), bank=address)


def of_backend(backend: object) -> ModelSpec:
    """A user's own model object as a `ModelSpec`.

    Raises `UserError` if it has no `complete`.
    """
    if inspect.isroutine(backend):
        backend = Model(backend)
    if not isinstance(backend, MinimalModel) or isinstance(backend, type):
        raise UserError(
            f"a {type(backend).__name__} is not a model",
            where="model=",
            fix="pass a model's name, a function from the prompt's text to the reply's, or an "
            "object with `async def complete(self, call)`",
        )
    name = with_protocol_defaults(ModelBackend, backend).name or type(backend).__name__
    provider = Provider(name="custom")
    if isinstance(backend, Model):  # a sample is a call, and only a version tells functions apart
        price = None if backend.dollars is None else Price(0.0, 0.0, call=backend.dollars)
        known = {"backend": backend, "price": price, "cacheable": bool(backend.version)}
        return ModelSpec(provider=provider, model=name, **known)
    # only a name of its own tells the replies of an object from those of another of its class
    is_named = bool(with_protocol_defaults(ModelBackend, backend).name)
    return ModelSpec(
        provider=provider, model=name, samples=1_000, backend=backend, cacheable=is_named
    )


def _absolute_banks(text: str, folder: Path = Path()) -> str:
    """A model's text with the folders of banks as absolute paths; relative ones are in `folder`."""

    def absolute_path(found: re.Match[str]) -> str:
        return str((folder / Path(found[0]).expanduser()).resolve())

    return _BANK_FOLDER.sub(absolute_path, text)


def with_absolute_banks(model: str | dict[str, str] | None) -> str | dict[str, str] | None:
    """A run's model, or its models by role, with the folders of banks as absolute paths."""
    if isinstance(model, dict):
        return {role: _absolute_banks(text) for role, text in model.items()}
    return model and _absolute_banks(model)


def _entry_beside_file(entry: str | list[str | _Member], folder: Path) -> str | list[str | _Member]:
    """A role of a models file in `folder`, its banks as absolute paths."""
    if isinstance(entry, str):
        return _absolute_banks(entry, folder)
    return [
        _absolute_banks(each, folder)
        if isinstance(each, str)
        else _Member(_absolute_banks(each.model, folder), each.weight)
        for each in entry
    ]


def read_roles(model: object, models_file: str | Path | None = None) -> Roles | None:
    """The models of a run by role, as `ModelBook.parse_roles` reads them.

    None for a run without a model, and for a gateway of the caller's own.
    """
    if model in (None, "offline") or isinstance(model, MinimalGateway):
        return None
    return ModelBook(models_file).parse_roles(model)


def check_models(roles: Roles | None, budget: Budget, programs: Iterable[BankProgram] = ()) -> None:
    """Refuse models without a key, and without a price if dollars alone are limited."""
    models = roles.without_banks().all_models() if roles else ()
    for entry in models:
        if entry.backend is None and not entry.provider.key.is_available():
            entry.provider.key.reveal()
    if budget.dollars is not None and budget.calls is None and budget.tokens is None:
        _check_prices(models)
        _check_bank_prices(programs)


def _check_prices(models: Iterable[ModelSpec]) -> None:
    """Refuse models whose price is unknown: a budget in dollars would not limit them."""
    unknown = {m.name: m for m in models if not m.can_be_priced and not m.price_unknown}
    if unknown:
        raise UserError(
            f"dollars would limit nothing: the price of {', '.join(unknown)} is unknown",
            where="budget",
            fix="limit calls=100 or tokens=1000000 as well, or describe the model in a models file "
            "(--models FILE), with price = { input = 0.2, output = 0.8 } (dollars per million "
            "tokens), or with price_unknown = true to run all the same"
            + max(model.price_list.advice for model in unknown.values()),
        )


def _check_bank_prices(programs: Iterable[BankProgram]) -> None:
    """Refuse programs whose price is unknown: a budget in dollars would not limit them."""
    unknown = sorted({program.model for program in programs if program.price is None})
    if unknown:
        raise UserError(
            f"dollars would limit nothing: the bank has no price for {', '.join(unknown)}",
            where="budget",
            fix='limit evaluations=100 instead, or write [price] "'
            f"{unknown[0]}\" = 0.05 (dollars a program) into the bank's bank.toml",
        )


def check_roles(task: Task, roles: Roles | None) -> None:
    """Refuse a task whose evaluator asks models in roles without a model."""
    wanted = task.evaluator.options.get("roles", ())
    asked = roles.without_banks() if roles else None
    missing = [role for role in wanted if asked is None or asked.pick_model(role, 0) is None]
    if missing:
        raise UserError(
            f"the evaluator asks models as {', '.join(wanted)}; no model is named for "
            f"{', '.join(missing)}",
            where=f"task {task.name}",
            fix=(
                f"add {' '.join(f'--model {role}=MODEL' for role in missing)} (the search may stay "
                "--model offline)"
            ),
        )


def _split_models(model: object) -> dict[str, object]:
    if isinstance(model, str):
        return {**_split_roles(model)}
    if isinstance(model, Mapping):
        return dict(cast("Mapping[str, object]", model))
    return {} if model is None else {OTHERS: model}


def _split_roles(text: str) -> dict[str, str]:
    """`a,summarizer=b` as {default: a, summarizer: b}."""
    table: dict[str, str] = {}
    for piece in filter(None, (p.strip() for p in text.split(","))):
        role, equals, name = piece.rpartition("=")
        role = role.strip() if equals else OTHERS
        if not role or not name.strip() or role in table:
            raise UserError(
                f"cannot read '{piece}'",
                where=f"model {text}",
                fix="write MODEL or ROLE=MODEL,ROLE=MODEL, each role once",
            )
        table[role] = name.strip()
    if not table:
        raise UserError("no model given", where="model", fix="name one: gpt-5-mini, or offline")
    return table


def join_model_texts(texts: Iterable[str]) -> str:
    """Several `--model` texts as one; models that two of them name for a role are an ensemble."""
    table: dict[str, str] = {}
    for text in texts:
        for role, name in _split_roles(text).items():
            table[role] = f"{table[role]}|{name}" if role in table else name
    return ",".join(name if role == OTHERS else f"{role}={name}" for role, name in table.items())


_FORM = "name a TOML or YAML file of this form: culmen docs models"


@boundary()
def _read_models_file(path: Path) -> _File:
    try:
        raw = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot read the models file: {error}"
        raise UserError(what, where=str(path), fix=_FORM) from None
    import tomllib

    try:
        data = tomllib.loads(raw) if path.suffix == ".toml" else _parse_yaml(raw)
    except ValueError as error:
        what = f"the models file is not valid: {error}"
        raise UserError(what, where=str(path), fix=_FORM) from None
    data = _tables_of_others(data, path)
    return _convert_table(data if data is not None else {}, _File, str(path))


def _tables_of_others(data: object, path: Path) -> object:
    """The tables that settings of another program stand for; a models file's own unchanged."""
    if isinstance(data, dict) and path.suffix != ".toml":
        for name, address in part_addresses("models_files").items():
            if name in data:
                return import_part(address)(path)
    return data


def _parse_yaml(raw: str) -> object:
    import yaml

    try:
        return yaml_value(raw)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _convert_table(data: object, kind: type[Table], where: str) -> Table:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise UserError(
            f"the models file is not valid: {error}",
            where=where,
            fix="see its format: culmen docs models",
        ) from None


def _check_positive(value: Number, name: str, where: str) -> Number:
    if not 0 < value < math.inf:
        raise UserError(
            f"{name} must be a number above 0, not {value:g}",
            where=where,
            fix=f"correct {name} in the models file",
        )
    return value


def _check_token_bytes(value: float, name: str, where: str) -> float:
    if not 1 <= value <= LONGEST_TOKEN:
        raise UserError(
            f"{name} must be from 1 to {LONGEST_TOKEN:g}, not {value:g}",
            where=where,
            fix="leave it out, or divide the bytes of some texts by the tokens that the model's "
            "tokenizer makes of them",
        )
    return value


def _parse_weight(raw: object, text: str) -> float:
    try:
        weight = float(raw)  # pyright: ignore[reportArgumentType]
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise UserError(f"cannot read the weight in '{text}'", fix="write 3*MODEL|1*MODEL")
    return weight


def _check_model_name(name: str, text: str) -> str:
    if not name.strip():
        raise UserError(
            f"a model is missing in '{text}'",
            where="--model",
            fix="write MODEL|MODEL or 3*MODEL|1*MODEL",
        )
    return name


def _nearest_hint(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), 1)
    return f" (did you mean '{close[0]}'?)" if close else ""
