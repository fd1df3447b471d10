"""The options of a run that a person chooses, in the form that the run's journal keeps.

`TaskDefaults` are those that a task chooses where the person does not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from culmen.core.errors import UserError
from culmen.core.usage import MOST, Budget

DEFAULT_STRATEGY = "pedigree"
STRATEGY_FOR_BANKS = "best_of_n"  # the default if programs come from a bank alone
DEFAULT_BUDGET = Budget(evaluations=200)


class Needs(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resources of one evaluation on its node: cores, GPUs, bytes of memory, custom by name.

    They decide the placement of an evaluation; the task's limits and its jail decide the resources
    that it may use.
    """

    cpu: float = 1.0
    gpu: float = 0.0
    memory: int = 0
    custom: dict[str, float] = {}

    @classmethod
    def from_table(cls, table: Mapping[str, object]) -> Needs:
        """The needs that a table `[resources]` states; UserError names the key."""
        named = cast("Mapping[str, object]", table.get("custom", {}))
        amounts = {
            name: parse_amount(name, str(value), name)
            for name, value in table.items()
            if name != "custom"
        }
        custom = {
            name: parse_amount(f"custom.{name}", str(value), f"custom.{name}")
            for name, value in named.items()
        }
        return msgspec.structs.replace(cls(), **amounts, custom=custom)


_UNITS = {
    "": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


def parse_amount(name: str, text: str, where: str) -> float:
    """An amount of a resource, a number from 0 to `MOST`; bytes of `memory`, which takes units.

    Raises `UserError` for anything else.
    """
    unit, digits = 1, text
    if name == "memory":
        match = re.fullmatch(r"([\d.]+)\s*([a-zA-Z]*)", text)
        unit = _UNITS.get(match[2].lower(), 0) if match else 0
        digits = match[1] if match else text
    if not unit:
        raise UserError(f"memory = '{text}' is not a size", where=where, fix="write memory=2GB")
    try:
        number = float(digits)
    except ValueError:
        number = math.nan
    number *= unit
    if not 0 <= number <= MOST:
        raise UserError(
            f"{name} = '{text:.60}' is not a number from 0 to {MOST:g}",
            where=where,
            fix=f"write {name}=1",
        )
    return int(number) if name == "memory" else number


class BackendChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backend by name (local, ray, slurm), and its options.

    address  of Ray: auto (the cluster of this machine's environment), local (a new one, here),
             ray://... or host:port
    wait     seconds without a node that could take an evaluation after which the run gives up;
             0: the backend's own
    rest     of Ray: seconds without work after which a node's evaluator ends, so that an autoscaler
             may release the node
    retries  retries of an evaluation that a worker or node took down with it

    The others are Slurm's: `jobs` of `slots` evaluations each, for `minutes`, with its own options
    (partition, ...) in `texts`.
    """

    name: str = "local"
    address: str = "auto"
    needs: Needs = Needs()
    wait: float = 0.0
    rest: float = 60.0
    retries: int = 2
    jobs: int = 1
    slots: int = 0
    minutes: int = 24 * 60
    texts: dict[str, str] = {}


class BankProgram(msgspec.Struct, frozen=True, omit_defaults=True):
    """A program that a model wrote before the run (`--model bank:DIR`).

    folder  the bank's folder, absolute
    path    the program's path in that folder, "/" between its pieces
    model   name of the model that wrote it
    digest  SHA-256 (hex) of the file
    price   dollars that one draw costs; None: unknown
    note    free text from the bank
    """

    folder: str
    path: str
    model: str
    digest: str
    price: float | None = None
    note: str = ""

    @property
    def key(self) -> str:
        """Name of the program in requests: its path and the first digits of its digest."""
        return f"{self.path} ({self.digest[:12]})"


# `module:Class`, `module:<lambda>` of a model object; not the name of a fine-tuned model
_PLACE = re.compile(r"(?!ft:)[^\W\d][\w.]*:(?:<|[^\W\d])[\w.<>]*")


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All options of a run that a person can choose, except its task and its strategy.

    model          a model's name, "offline" for none, or names by role; for an object of the
                   caller's own, the place of its class
    models_file    file of providers, models and prices
    budget         hard limits of the search
    seed           random seed
    workers        evaluations at once; 0: one per core of this machine, up to 8, and on Ray as many
                   as it has room for
    require        weakest isolation level accepted (namespaces, container, restricted, limits);
                   None: any
    level          isolation level to use, and no other; None: the strongest available
    backend        backend of the evaluations; None: this machine
    embedder       an embedder's name
    integrity      reaction to grave signs of gaming: warn, reject or stop
    stop_at        score at which the search ends before its budget does; "target" is the task's own
    allow_failing  search even if no initial program scores; otherwise such a run stops before it
                   asks a model
    fork_of        the run whose finished results are used again
    templates      texts of prompt templates by name, instead of culmen's own
    pool           name and digest of the file of candidates that the search began with, beside the
                   initial program
    own_replies    keep models' replies in the run's folder, for this run alone, instead of with
                   those of all runs: each run of a comparison pays for what it asks
    """

    model: str | dict[str, str] | None = "offline"
    models_file: str | None = None
    budget: Budget = DEFAULT_BUDGET
    seed: int = 0
    workers: int = 0
    require: str | None = None
    level: str | None = None
    backend: BackendChoice | None = None
    embedder: str = "hashing"
    integrity: str = "warn"
    stop_at: float | str | None = None
    fork_of: str | None = None
    allow_failing: bool = False
    templates: dict[str, str] = {}
    pool: str = ""
    own_replies: bool = False

    @property
    def searches_offline(self) -> bool:
        """True if the search asks no language model; its evaluator may (`offline,judge=MODEL`)."""
        if isinstance(self.model, dict):
            return self.model.get("default") == "offline"
        return self.model is None or "offline" in [piece.strip() for piece in self.model.split(",")]

    @property
    def asks_no_model(self) -> bool:
        """True if no model is named at all, not even for the evaluator."""
        return self.model in (None, "offline")

    @property
    def asks_person(self) -> bool:
        """True if a person answers the requests of a role (`--model ask`)."""
        named = (piece for text in self._model_texts() for piece in re.split("[,|]", str(text)))
        return any(re.split("[=*]", piece)[-1].strip() == "ask" for piece in named)

    @property
    def has_own_model(self) -> bool:
        """True if a model was an object of the caller's own, which no text can make again."""
        return any(_PLACE.fullmatch(str(name)) for name in self._model_texts())

    def _model_texts(self) -> Iterable[str | None]:
        return self.model.values() if isinstance(self.model, dict) else (self.model,)


class TaskDefaults(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Choices that a task's folder makes for its runs; those of a request take precedence.

    strategy     a strategy's name, "" for culmen's default
    model        a model's name or names by role, "" for none
    budget       None for culmen's default
    workers      0 for the default of the backend
    settings     settings of `strategy`, as the command line writes them
    settings_of  settings of strategies by name, for runs that choose one of them
    backend      the backend with the resources of one evaluation, None for this machine
    presets      further defaults by name, each complete
    """

    strategy: str = ""
    model: str = ""
    budget: Budget | None = None
    seed: int = 0
    workers: int = 0
    settings: dict[str, str] = {}
    backend: BackendChoice | None = None
    presets: dict[str, TaskDefaults] = {}
    settings_of: dict[str, dict[str, str]] = {}

    def with_choices(self, other: TaskDefaults) -> TaskDefaults:
        """The defaults with the choices that the other ones make."""
        plain = TaskDefaults()
        chosen = {
            field: value
            for field in self.__struct_fields__
            if (value := getattr(other, field)) != getattr(plain, field)
        }
        return msgspec.structs.replace(self, **chosen)


def setting_texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings of a task.toml as the command line would write them."""

    def text(value: object) -> str:
        if isinstance(value, bool):
            return "on" if value else "off"
        return (
            ",".join(map(str, cast(Iterable[object], value)))
            if isinstance(value, list | tuple)
            else str(value)
        )

    return {name: text(value) for name, value in settings.items()}


class RunSetting(msgspec.Struct, frozen=True):
    """A rare option of a run, which `--set NAME=VALUE` gives: its values and meaning in words."""

    value: str
    default: str
    meaning: str


RUN_SETTINGS = {
    "allow_failing": RunSetting(
        "on or off", "off", "Search even if the initial program gives no score."
    ),
    "embedder": RunSetting(
        "hashing, local:MODEL or PROVIDER/MODEL",
        "hashing",
        "Embeds texts, to tell how near two are.",
    ),
    "integrity": RunSetting(
        "warn, reject or stop", "warn", "What to do about signs of gaming (culmen docs audit)."
    ),
    "pool_share": RunSetting(
        "0 to 1", "0.25", "Share of the evaluations that the candidates of --pool may use at most."
    ),
    "prior": RunSetting(
        "a run of the same task and model",
        "none",
        "Start from what that run learnt of noise and steps (strategy pedigree).",
    ),
    "proxy": RunSetting(
        "auto, always or never", "auto", "Run candidates of evaluate(path) in a separate process."
    ),
    "templates": RunSetting(
        "a folder", "culmen's own", "Prompt templates to use instead (culmen templates)."
    ),
    "backend.address": RunSetting(
        "auto, local or ray://HOST:PORT", "auto", "Address of the Ray cluster."
    ),
    "backend.cpu": RunSetting("cores", "1", "What an evaluation needs of its node."),
    "backend.gpu": RunSetting("GPUs", "0", "What an evaluation needs of its node."),
    "backend.memory": RunSetting("a size, as 2GB", "0", "What an evaluation needs of its node."),
    "backend.custom.NAME": RunSetting(
        "an amount", "0", "What an evaluation needs of a resource that the cluster names."
    ),
    "backend.wait": RunSetting(
        "seconds", "the backend's own", "End the session after so long without a fitting node."
    ),
    "backend.rest": RunSetting(
        "seconds; 0: never", "60", "End an idle evaluator of Ray, so that its node can go."
    ),
    "backend.retries": RunSetting(
        "a number", "2", "Tries again of an evaluation that a node took down with it."
    ),
    "backend.jobs": RunSetting("a number", "1", "Jobs of Slurm."),
    "backend.slots": RunSetting(
        "a number; 0: by workers and jobs", "0", "Evaluations at once in a job of Slurm."
    ),
    "backend.minutes": RunSetting("minutes", "1440", "Time limit of a job of Slurm."),
    "backend.folder": RunSetting(
        "a folder that all nodes see", "the run's", "Exchange of files with jobs of Slurm."
    ),
    "backend.partition": RunSetting(
        "a name; so also account, qos, constraint, cluster", "Slurm's", "Option of Slurm's jobs."
    ),
}
"""Settings of a run by name, beside those of its strategy."""
