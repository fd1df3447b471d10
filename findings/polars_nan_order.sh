#!/usr/bin/env bash
# polars 1.35.2
# A table of scores with a NaN has two best rows: max and arg_max pass over NaN, while sort, top_k,
# rank and >= take it for the largest number. Two NaN are equal.
. "$(dirname "$0")/environment.sh"
in_environment polars==1.35.2 <<'PYTHON'
import polars as pl

nan = float("nan")
table = pl.DataFrame({"name": ["low", "nan", "high", "none"], "score": [0.2, nan, 0.9, None]})
score = table["score"]
seen = {
    "max": score.max(),
    "arg_max": table["name"][score.arg_max()],
    "top_k": table.top_k(1, by="score")["name"][0],
    "sort": table.sort("score", descending=True, nulls_last=True)["name"][0],
    "rank 1": table.filter(score.rank(descending=True) == 1)["name"].to_list(),
    ">= 0.9": table.filter(pl.col("score") >= 0.9)["name"].to_list(),
    "nan == nan": (pl.Series([nan]) == pl.Series([nan])).to_list(),
    "first of a sort, by default": table.sort("score", descending=True)["name"][0],
}
for what, found in seen.items():
    print(f"{what}: {found}")
assert list(seen.values()) == [0.9, "high", "nan", "nan", ["nan"], ["nan", "high"], [True], "none"]
PYTHON
