"""Parts of a run as docs/extending.md describes them: only the required methods."""

from __future__ import annotations

from culmen import Observation
from culmen.core.evaluation import Status
from culmen.models.call import Completion, Reply, ServerFailed, Tokens


class Dice:
    """A model that answers with numbers; its second attempt fails."""

    calls = 0

    async def complete(self, call):
        self.calls += 1
        if self.calls == 2:
            raise ServerFailed("busy")
        text = f"```\n{call.seed % 100}\n```"
        return Reply(
            (Completion(text),), Tokens(input=call.prompt_tokens(), output=8), dollars=0.001
        )


class Arithmetic:
    """A backend that scores a text that is a number, and loses every third evaluation."""

    asked = 0

    async def start(self):
        return "none"

    async def evaluate(self, candidate, case, seed):
        self.asked += 1
        if self.asked % 3 == 0:
            return Observation(candidate.id, Status.LOST, seed=seed)
        return Observation(candidate.id, Status.OK, float(candidate.text), seed=seed)

    async def close(self):
        """Nothing was opened."""


class Flat:
    """An embedder of one dimension, whose first attempt fails."""

    name = "flat"
    calls = 0

    def embed(self, texts):
        self.calls += 1
        if self.calls == 1:
            raise ServerFailed("warming up")
        return [[float(len(text))] for text in texts]


class Tally:
    """An observer that counts events."""

    count = 0

    def see(self, events):
        self.count += len(list(events))
