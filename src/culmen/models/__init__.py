"""Language models: roles, backends and the policy above them; heavy imports on first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from culmen.core.options import BankProgram
    from culmen.core.ports import Gateway
    from culmen.core.task import Task


def make_gateway(
    task: Task,
    model: str | object | Mapping[str, object] | None,
    models_file: str | None = None,
    cache_dir: str | PathLike[str] | None = None,
    templates: Mapping[str, str] | None = None,
    tell: Callable[[str], None] | None = None,
    asked: Path | None = None,
    bank: Sequence[BankProgram] = (),
) -> Gateway:
    """A gateway for a `--model` text, a backend, a mapping role -> either, or a models file.

    A ready gateway is passed through. `templates` are texts that replace the shipped prompts, by
    name, `tell` gets a message when a provider goes down or comes back (default: a log warning),
    prompts to a person lie in the folder `asked`, and `bank` are the programs of recorded models.
    Raises `UserError` for unreadable models; API
    keys are read at the first call.
    """
    from culmen.core.ports import Gateway, MinimalGateway, with_protocol_defaults

    if isinstance(model, MinimalGateway):
        return with_protocol_defaults(Gateway, model)
    from culmen.models.caller import Providers
    from culmen.models.gateway import ModelGateway
    from culmen.models.prompts.template import Templates
    from culmen.models.roles import ModelBook
    from culmen.models.sampler import ReplyCache

    roles = ModelBook(models_file, asked).parse_roles(model)
    cache = ReplyCache(cache_dir) if cache_dir else None
    providers = Providers(tell=tell) if tell else Providers()
    models = ModelGateway(
        task, roles.without_banks(), cache, templates=Templates(templates), providers=providers
    )
    if not roles.banks():
        return models
    from culmen.models.bank import BankGateway

    return BankGateway(task, models, roles, bank)
