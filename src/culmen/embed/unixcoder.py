"""UniXcoder embeddings of programs (Guo et al., 2022), as TurboEvolve uses them for its seed pools (optional extra)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from culmen.core.errors import UserError

_MODE = "<encoder-only>"
_WINDOW = 512  # tokens the model reads at once


class UnixcoderEmbedder:
    """The mean of the encoder's last hidden states over a program's tokens, scaled to length 1.

    Programs longer than the model's window (512 tokens) are read in windows, whose means are averaged by their number
    of tokens. `model` is a name on the Hugging Face hub or a folder; weights are loaded when first used. Raises
    `UserError` if the libraries are missing or the model cannot be loaded.
    """

    def __init__(
        self, model: str = "microsoft/unixcoder-base", *, device: str | None = None, batch: int = 8, windows: int = 8
    ) -> None:
        self._path, self._device, self._batch, self._windows = model, device, batch, windows
        self._loaded: tuple[Any, Any, Any] | None = None
        self.name = "unixcoder" if model == "microsoft/unixcoder-base" else f"unixcoder:{model}"

    def embed(self, texts: Sequence[str]) -> Any:
        """Array of shape (len(texts), 768), float32, rows of length 1."""
        import numpy as np

        torch, tokenizer, model = self._load()
        pieces: list[tuple[int, list[int]]] = []
        for row, text in enumerate(texts):
            ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
            pieces += [(row, window) for window in windows(ids, _WINDOW - 4, self._windows)]
        sums = np.zeros((len(texts), int(model.config.hidden_size)), dtype=np.float64)
        for start in range(0, len(pieces), self._batch):
            batch = pieces[start : start + self._batch]
            for (row, window), vector in zip(batch, self._means(torch, tokenizer, model, [w for _, w in batch])):
                sums[row] += vector * max(len(window), 1)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return (sums / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)

    def _means(self, torch: Any, tokenizer: Any, model: Any, batch: list[list[int]]) -> Any:
        """Mean hidden state of each window, shape (len(batch), width)."""
        mode = tokenizer.convert_tokens_to_ids(_MODE)
        rows = [[tokenizer.cls_token_id, mode, tokenizer.sep_token_id, *ids, tokenizer.sep_token_id] for ids in batch]
        longest = max(map(len, rows))
        padded = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])
        padded = padded.to(model.device)
        mask = padded.ne(tokenizer.pad_token_id)
        with torch.inference_mode():
            states = model(padded, attention_mask=mask)[0]
        weights = mask.unsqueeze(-1)
        return ((states * weights).sum(1) / weights.sum(1)).double().cpu().numpy()

    def _load(self) -> tuple[Any, Any, Any]:
        if self._loaded is None:
            try:
                import torch  # pyright: ignore[reportMissingImports]
                from transformers import AutoModel, AutoTokenizer  # pyright: ignore[reportMissingImports]
            except ImportError:
                raise UserError(
                    "UniXcoder embeddings need the packages torch and transformers",
                    where=f"embedder {self.name}",
                    fix="pip install 'culmen[local-embeddings]', or use the embedder 'hashing'",
                ) from None
            try:
                tokenizer = AutoTokenizer.from_pretrained(self._path)
                model = AutoModel.from_pretrained(self._path, add_pooling_layer=False)
            except (OSError, ValueError) as error:
                raise UserError(f"cannot load the model: {error}", where=f"embedder {self.name}") from error
            device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
            self._loaded = torch, tokenizer, model.to(device).eval()
        return self._loaded


def windows(ids: Sequence[int], size: int, most: int) -> list[list[int]]:
    """Consecutive windows of at most `size` token ids, the first `most` of them; one empty window of no tokens."""
    return [list(ids[start : start + size]) for start in range(0, max(len(ids), 1), size)][:most]
