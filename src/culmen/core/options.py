"""The options of a run: what a person chooses on the command line or in Python, as the run's
journal keeps it.
"""

from __future__ import annotations

import msgspec

from culmen.core.usage import Budget

DEFAULT_STRATEGY = "pedigree"
DEFAULT_BUDGET = Budget(evaluations=200)


class Needs(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resources of one evaluation on its node: cores, GPUs, bytes of memory, custom resources by
    name.

    They decide where an evaluation is placed; what it may use is decided by the task's limits and
    its jail.
    """

    cpu: float = 1.0
    gpu: float = 0.0
    memory: int = 0
    custom: dict[str, float] = {}


class BackendChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backend by name (local, ray, slurm), and its options.

    address   of Ray: auto (the cluster of this machine's environment), local (a new one, here), ray://... or host:port
    wait      seconds without any node that could take an evaluation after which the run gives up; 0: the backend's own
    rest      of Ray: seconds without work after which a node's evaluator ends, so that an autoscaler may take the node
    retries   how often an evaluation is tried again that a worker or node took down with it
    The others are Slurm's: `jobs` of `slots` evaluations each, for `minutes`, with its own options (partition, ...) in
    `texts`.
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


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a person can choose of a run, besides its task and its strategy.

    model        a model's name, "offline" for none, or names by role; of an object of the caller's
    own, where its
                 class is
    models_file  file of providers, models and prices
    budget       hard limits of the search
    seed         random seed
    workers      evaluations at once; 0: one per core of this machine, up to 8, and on Ray as many
    as it has room for
    require      weakest isolation level accepted (namespaces, container, restricted, limits); None:
    any
    level        isolation level to use, and no other; None: the strongest there is
    backend      where evaluations run; None: on this machine
    embedder     an embedder's name
    integrity    what is done about grave signs of gaming: warn, reject or stop
    stop_at      score at which the search ends before its budget does; "target" is the task's own
    allow_failing  search even if no initial program scores; else such a run stops before it has
    asked a model
    fork_of      the run whose finished results are used again
    templates    texts of prompt templates by name, instead of those that culmen brings
    pool         name and digest of the file of candidates that the search began with, beside the
    initial program
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

    @property
    def offline(self) -> bool:
        """Whether the search asks no language model; its evaluator may (`offline,judge=MODEL`)."""
        if isinstance(self.model, dict):
            return self.model.get("default") == "offline"
        return self.model is None or "offline" in [piece.strip() for piece in self.model.split(",")]
