"""Lists of a run as pandas data frames, where pandas is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.store.views import CandidateRow


def candidates(rows: Sequence[CandidateRow]) -> Any:
    """One row each; the columns are the fields."""
    pandas = _pandas()
    return pandas.DataFrame([_plain(row) for row in rows], columns=CandidateRow.__struct_fields__)


def evaluations(observations: Sequence[Observation]) -> Any:
    """One row each; the columns are the fields, and `metrics.NAME` for every metric; artifacts are left out."""
    pandas = _pandas()
    fields = [name for name in Observation.__struct_fields__ if name not in ("metrics", "artifacts")]
    rows = [
        {name: value for name, value in _plain(each).items() if name in fields}
        | {f"metrics.{name}": value for name, value in each.metrics.items()}
        for each in observations
    ]
    named = dict.fromkeys(name for row in rows for name in row if name not in fields)
    return pandas.DataFrame(rows, columns=[*fields, *named])


def _plain(row: msgspec.Struct) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    return {name: str(value) if name == "status" else value for name, value in values.items()}


def _pandas() -> Any:
    try:
        import pandas  # pyright: ignore[reportMissingImports, reportMissingModuleSource]
    except ImportError:
        raise UserError(
            "a data frame needs the package pandas, which is not installed",
            where="Study.dataframe()",
            fix="pip install pandas; or use candidates() and evaluations(), which are plain lists",
        ) from None
    return pandas
