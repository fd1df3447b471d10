"""Asks a model one question with the candidate's prompt and compares the answer with the right one, in three ways.

`exact` and `f1` are those of HotpotQA's own script: articles, punctuation and case do not count, and an answer that is
or should be yes, no or noanswer counts only if it is equal. `contains` is how POLCA counts: the right answer occurs in
what was said, as whole words; yes and no must be the whole answer. It pays a prompt that makes the model repeat its
paragraphs, so `exact` (and the number of words) is shown beside it; set COUNTS to "exact" to search by that.
"""

import gzip
import json
import re
import string
from collections import Counter
from pathlib import Path

COUNTS = "contains"  # or "exact", "f1"
LONG = 20  # words from which on an answer that counts is suspicious
ROWS = gzip.decompress(Path(__file__).with_name("paragraphs.jsonl.gz").read_bytes()).decode().splitlines()
PARAGRAPHS = {row["id"]: row["context"] for row in map(json.loads, ROWS)}


def score(parts, case, ask):
    context = "\n\n".join(f"{title}\n{text}" for title, text in PARAGRAPHS[case.id])
    said = ask(
        f"{parts['prompt.txt'].strip()}\n\nContext:\n{context}\n\nQuestion: {case.input}", role="qa", temperature=0.1
    ).text
    found, wanted = plain(said), plain(case.info)
    metrics = {
        "exact": float(found == wanted),
        "contains": float(contains(found, wanted)),
        "f1": f1(found, wanted),
        "words": float(len(said.split())),
    }
    feedback = f"Question: {case.input}\nRight answer: {case.info}\nThe model's answer: {said[:1000]}"
    if metrics["contains"] and metrics["words"] > LONG:
        feedback += f"\nThe right answer is somewhere in {metrics['words']:.0f} words: that is no answer."
    return {"score": metrics[COUNTS], "metrics": metrics, "feedback": feedback}


WHOLE = ("yes", "no", "noanswer")  # answers that count only if they are equal


def plain(text):
    """The text as HotpotQA compares it: lower case, without punctuation, articles and further space."""
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def contains(found, wanted):
    """True if an answer has the words of the right one, in their order."""
    if wanted in WHOLE:
        return found == wanted
    return f" {wanted} " in f" {found} "


def f1(found, wanted):
    """Harmonic mean of precision and recall of the words."""
    if found != wanted and (found in WHOLE or wanted in WHOLE):
        return 0.0
    words, right = found.split(), wanted.split()
    common = sum((Counter(words) & Counter(right)).values())
    return 2.0 * common / (len(words) + len(right)) if common else 0.0
