"""Embeddings by a sentence-transformers model on this machine (optional extra)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from culmen.core.errors import UserError


class LocalEmbedder:
    """A model by name or path, loaded when first used (its weights are downloaded then if they are not here).

    `device` is "cpu", "cuda", ... or None for what the library finds. Raises `UserError` if the library is missing or
    the model cannot be loaded.
    """

    def __init__(self, model: str = "sentence-transformers/all-MiniLM-L6-v2", *, device: str | None = None) -> None:
        self._name, self._device = model, device
        self._model: Any = None
        self.name = f"local:{model}"

    def embed(self, texts: Sequence[str]) -> Any:
        """Array of shape (len(texts), width), float32, rows of length 1."""
        model = self._load()
        return model.encode(list(texts), normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False)

    def _load(self) -> Any:
        if self._model is None:
            try:
                from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]
            except ImportError:
                raise UserError(
                    "local embeddings need the sentence-transformers package",
                    where=f"embedder {self.name}",
                    fix="pip install 'culmen[local-embeddings]', or use the embedder 'hashing'",
                ) from None
            try:
                self._model = SentenceTransformer(self._name, device=self._device)
            except (OSError, ValueError) as error:
                raise UserError(f"cannot load the model: {error}", where=f"embedder {self.name}") from error
        return self._model
