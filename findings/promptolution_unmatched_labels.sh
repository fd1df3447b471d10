#!/usr/bin/env bash
# promptolution 2.3.0 (numpy 2.4.6, pandas 3.1.1, scikit-learn 1.9.1)
# FirstOccurrencePredictor never finds a label with a hyphen or a space, so a model that answers with
# the label alone gets it wrong. With it and with MarkerBasedPredictor a reply without any label counts
# as the first one: a model that never answers has that label's share as its accuracy.
. "$(dirname "$0")/environment.sh"
in_environment promptolution==2.3.0 numpy==2.4.6 pandas==3.1.1 scikit-learn==1.9.1 scipy==1.17.1 <<'PYTHON'
import pandas as pd
from promptolution.llms.base_llm import BaseLLM
from promptolution.predictors.first_occurrence_predictor import FirstOccurrencePredictor
from promptolution.predictors.maker_based_predictor import MarkerBasedPredictor
from promptolution.tasks.classification_tasks import ClassificationTask
from promptolution.utils.prompt import Prompt


class Replies(BaseLLM):
    def __init__(self, reply):
        super().__init__()
        self.reply = reply

    def _get_response(self, prompts, system_prompts):
        return [self.reply(prompt.rsplit("\n", 1)[-1]) for prompt in prompts]


def accuracy(labels, predictor, reply):
    # each text ends with its label, so that a reply can be perfect
    rows = pd.DataFrame({"x": [f"case {n}: {label}" for n, label in enumerate(labels)], "y": labels})
    task = ClassificationTask(rows)
    found = task.evaluate([Prompt("Name the label.")], predictor(Replies(reply), list(task.classes)))
    return float(found.agg_scores[0])


def label(text):
    return text.partition(": ")[2]


def nothing(text):
    return "I cannot tell."


hyphen, words = ["check-in", "sign-up"] * 5, ["very bad", "very good"] * 5
uneven = ["account"] * 7 + ["billing"] * 3
first, marked = FirstOccurrencePredictor, MarkerBasedPredictor
seen = {
    "the label, check-in or sign-up": accuracy(hyphen, first, label),
    "the label, very bad or very good": accuracy(words, first, label),
    "the label, by markers": accuracy(words, marked, label),
    "no label, account in 7 of 10": accuracy(uneven, first, nothing),
    "no label, by markers": accuracy(uneven, marked, nothing),
}
for name, value in seen.items():
    print(f"{name}: {value:g}")
assert list(seen.values()) == [0.5, 0.5, 1.0, 0.7, 0.7]
PYTHON
