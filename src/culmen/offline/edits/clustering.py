"""k-means over embeddings, as heavy work outside the search (needs scikit-learn, the extra `pools`)."""

from __future__ import annotations

from random import Random
from typing import Any

from culmen.core.candidate import Candidate
from culmen.core.event import Edits


def kmeans(candidates: tuple[Candidate, ...], options: dict[str, Any], rng: Random) -> Edits:
    """Clusters of `vectors` (rows of one length) for k = `k`: data `labels`, one in 0..k-1 per row.

    Fewer clusters where fewer rows differ. Fault `no_sklearn` where the package is missing.
    """
    try:
        from sklearn.cluster import KMeans  # pyright: ignore[reportMissingImports]
    except ImportError:
        return Edits(fault="no_sklearn")
    import numpy as np

    points = np.asarray(options["vectors"], dtype=np.float64)
    k = min(int(options["k"]), len(np.unique(points, axis=0)))
    model = KMeans(n_clusters=k, n_init=10, random_state=rng.getrandbits(31))  # pyright: ignore[reportArgumentType]
    return Edits(data={"labels": [int(label) for label in model.fit_predict(points)]})
