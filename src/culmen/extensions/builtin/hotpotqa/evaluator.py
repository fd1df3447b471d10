"""Asks a model one question with the candidate's prompt and compares the answer with the right one, in two ways.

`contains` is how POLCA counts: the right answer occurs in what was said. It pays a prompt that makes the model repeat
its paragraphs, so `exact` (and the number of words) is shown beside it; set COUNTS to "exact" to search by that.
"""

import gzip
import json
from pathlib import Path

COUNTS = "contains"  # or "exact"
LONG = 20  # words from which on an answer that counts is suspicious
ROWS = gzip.decompress(Path(__file__).with_name("paragraphs.jsonl.gz").read_bytes()).decode().splitlines()
PARAGRAPHS = {row["id"]: row["context"] for row in map(json.loads, ROWS)}


def score(parts, case, ask):
    context = "\n\n".join(f"{title}\n{text}" for title, text in PARAGRAPHS[case.id])
    said = ask(
        f"{parts['prompt.txt'].strip()}\n\nContext:\n{context}\n\nQuestion: {case.input}", role="qa", temperature=0.1
    ).text
    found, wanted = plain(said), plain(case.info)
    metrics = {"exact": float(found == wanted), "contains": float(wanted in found), "words": float(len(said.split()))}
    feedback = f"Question: {case.input}\nRight answer: {case.info}\nThe model's answer: {said[:1000]}"
    if metrics["contains"] and metrics["words"] > LONG:
        feedback += f"\nThe right answer is somewhere in {metrics['words']:.0f} words: that is no answer."
    return {"score": metrics[COUNTS], "metrics": metrics, "feedback": feedback}


def plain(text):
    """Lower case, without space around it and without final punctuation."""
    return text.strip().lower().rstrip(".,!?;:").strip()
