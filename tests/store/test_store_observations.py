"""The journal as a search's observation store, in folders and in PostgreSQL."""

import pytest

from culmen.core.event import Entry
from culmen.store.reader import JournalObservations
from tests.store.contracts import ObservationStoreContract

from .runs import new_run, proposed


class TestJournalObservations(ObservationStoreContract):
    @pytest.fixture(autouse=True)
    def _stores(self, each_store):
        self.key = 0

    def make(self, folder):
        journal = new_run(folder)

        def deliver(mark, candidate, observation):
            self.key += 2
            evaluated = Entry("done", self.key, mark, "evaluate", result=observation)
            journal.append([proposed(self.key - 1, candidate), evaluated])

        return JournalObservations(journal.run_dir, at_hand=8), deliver
