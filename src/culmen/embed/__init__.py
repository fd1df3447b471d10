"""Embedders: texts to vectors. Vectors of embedders with different names cannot be compared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from culmen.core.ports import Embedder


def make(name: str = "hashing", models_file: str | None = None) -> Embedder:
    """The embedder of this name. Raises `UserError` for an unknown name.

    hashing, hashing-512, hashing-256-v1    weight-free n-grams (256 buckets unless said)
    local, local:MODEL                      sentence-transformers on this machine
    unixcoder, unixcoder:MODEL              UniXcoder on this machine, for programs
    PROVIDER/MODEL, or a models file's name an OpenAI-compatible endpoint, e.g. openai/text-embedding-3-small
    """
    from culmen.core.errors import UserError

    hashing = re.fullmatch(r"hashing(?:-(\d+))?(?:-v1)?", name)
    if hashing:
        from culmen.embed.hashing import HashingEmbedder

        try:
            return HashingEmbedder(int(hashing[1] or 256))
        except ValueError as error:
            raise UserError(str(error), where=f"embedder {name}") from None
    kind, _, model = name.partition(":")
    if kind == "local":
        from culmen.embed.models import LocalEmbedder

        return LocalEmbedder(model) if model else LocalEmbedder()
    if kind == "unixcoder":
        from culmen.embed.models import UnixcoderEmbedder

        return UnixcoderEmbedder(model) if model else UnixcoderEmbedder()
    if "/" not in name and models_file is None:
        raise UserError(
            f"unknown embedder '{name}'", where="embedder", fix="use hashing, local:MODEL, unixcoder or PROVIDER/MODEL"
        )
    from culmen.embed.models import RemoteEmbedder
    from culmen.llm.roles import ModelBook

    return RemoteEmbedder(ModelBook(models_file).model(name))
