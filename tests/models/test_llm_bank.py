"""Recorded models: a folder of programs answers requests for candidates, each program once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

import culmen
from culmen.core.brief import BANK_EMPTY
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.event import EvaluateRequest, ProposeRequest
from culmen.core.options import RunOptions
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.extensions.baselines.portfolio import Portfolio
from culmen.models import make_gateway
from culmen.models.bank import BankProposer, list_bank, list_banks
from culmen.models.prompts.writer import FallbackProposer
from culmen.models.roles import ModelBook, join_model_texts
from culmen.models.spec import BankAddress
from culmen.run.plan import plan_run
from culmen.store.journal import MemoryJournal
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.pedigree import PedigreeSearch
from culmen.testing.strategy_kit import outcome
from culmen.testing.virtual import simulate

SEED = "VALUE = 0.0\n"


def task(**more) -> Task:
    return Task("hill", "Climb.", seeds=({"program.py": SEED},), **more)


def fill_bank(folder: Path, count: int = 3, inner: str = "", table: str = "") -> Path:
    """Programs of the models `large` and `small`."""
    for number, model in enumerate(("large", "small")):
        place = folder / model / inner
        place.mkdir(parents=True)
        for nth in range(count):
            (place / f"p{nth}.py").write_text(f"VALUE = {10 * number + nth + 1}.0\n")
    if table:
        (folder / "bank.toml").write_text(table)
    return folder


def value_of(text: str) -> float:
    return float(text.partition("=")[2])


class BankWorld:
    """Draws from the bank by its real gateway; evaluations are noisy."""

    def __init__(self, folder: Path, model: str, deterministic: bool = False) -> None:
        self.task = task(deterministic=deterministic)
        self.roles = ModelBook().parse_roles(model)
        self.programs = list_banks(self.roles.banks(), self.task)
        self.gateway = make_gateway(self.task, model, bank=self.programs)

    def perform(self, effect, rng: Random):
        request = effect.request
        if isinstance(request, ProposeRequest):
            return 1.0, asyncio.run(self.gateway.propose(request.brief, request.seed))
        assert isinstance(request, EvaluateRequest)
        score = value_of(request.candidate.text) + rng.gauss(0, 0.5)
        return 1.0 + rng.random(), Observation(request.candidate.id, Status.OK, score)

    def run(self, strategy, budget: Budget, **more):
        proposer = BankProposer(self.roles, self.programs, FallbackProposer())
        estimate = self.gateway.estimate
        more = {"seed": 5, "workers": 2, "proposer": proposer, **more}
        return simulate(strategy, self.task, self, budget, estimate=_or_one(estimate), **more)


def _or_one(estimate):
    from culmen.core.event import at_least

    return lambda request: (
        estimate(request) if isinstance(request, ProposeRequest) else at_least(request)
    )


def drawn(journal) -> list[str]:
    """Notes of the candidates proposed, in order."""
    results = (event.entry.result for event in journal.read() if event.entry.effect == "propose")
    return [each.candidates[0].origin.note for each in results if each and each.candidates]


@pytest.mark.parametrize("strategy", [BestOfN(), BestOfN(proposals=4), PedigreeSearch()])
def test_every_program_is_drawn_once_and_evaluated_and_then_the_search_ends(tmp_path, strategy):
    world = BankWorld(fill_bank(tmp_path, 5), f"bank:{tmp_path}")
    run = world.run(strategy, Budget(evaluations=400))
    assert run.search.reason == BANK_EMPTY
    names = drawn(run.journal)
    assert len(names) == len(set(names)) == 10
    done = [e.entry for e in run.journal.read() if e.entry.kind == "done"]
    evaluated = {entry.result.candidate for entry in done if entry.effect == "evaluate"}
    assert len(evaluated) == 11  # with the initial program
    empty = [entry for entry in done if getattr(entry.result, "fault", "") == BANK_EMPTY]
    assert 1 <= len(empty) <= 2  # one a lane: no endless repeats
    other = world.run(strategy, Budget(evaluations=400), seed=6)
    assert drawn(other.journal) != names  # another random seed, another order


def test_drafts_that_may_be_the_best_are_compared_once_the_bank_is_empty(tmp_path):
    world = BankWorld(fill_bank(tmp_path, 5), f"bank:{tmp_path}")
    run = world.run(BestOfN(), Budget(evaluations=60), workers=1)
    account = run.search.evidence.account
    counts = {tally.id: tally.count for tally in account.tallies()}
    assert len(counts) == 11 and run.verdict is not None
    best, second = sorted(counts.values(), reverse=True)[:2]
    assert (
        best >= 3 and second >= 2 and sorted(counts.values())[4] == 1
    )  # the bad ones were seen once
    assert value_of(run.search.lab.find(run.verdict.id).text) == 15.0


def test_arms_with_banks_of_their_own_draw_all_before_one_compares(tmp_path):
    world = BankWorld(fill_bank(tmp_path, 5), f"bank:{tmp_path}#large,strong=bank:{tmp_path}#small")
    portfolio = Portfolio(("best_of_n", "best_of_n@strong", "pedigree@strong"))
    run = world.run(portfolio, Budget(evaluations=60), workers=1)
    assert run.search.reason == BANK_EMPTY and len(set(drawn(run.journal))) == 10
    two = world.run(Portfolio(("best_of_n", "best_of_n@strong")), Budget(evaluations=60), workers=1)
    done = [
        e.entry
        for e in two.journal.read()
        if e.entry.kind == "done" and e.entry.effect == "evaluate"
    ]
    initial = world.task.initial_candidates()[0].id
    assert [entry.result.candidate == initial for entry in done[:2]] == [
        True,
        False,
    ]  # they share that look


@pytest.mark.parametrize("strategy", [BestOfN(), PedigreeSearch()])
def test_a_resumed_run_draws_what_the_uninterrupted_one_draws(tmp_path, strategy):
    world = BankWorld(fill_bank(tmp_path, 4), f"3*bank:{tmp_path}#large|bank:{tmp_path}#small")
    whole = world.run(strategy, Budget(evaluations=60), order="request")
    for kill_after in range(1, whole.performed, 9):
        journal = MemoryJournal()
        world.run(
            strategy,
            Budget(evaluations=60),
            order="request",
            journal=journal,
            kill_after=kill_after,
        )
        world.run(strategy, Budget(evaluations=60), order="request", journal=journal)
        assert outcome(journal) == outcome(whole.journal)


def test_an_ensemble_goes_on_with_the_model_that_has_programs_left(tmp_path):
    fill_bank(tmp_path, 6)
    world = BankWorld(tmp_path, f"5*bank:{tmp_path}#large|bank:{tmp_path}#small")
    firsts = []
    for seed in range(8):
        run = world.run(BestOfN(), Budget(evaluations=400), seed=seed, workers=1)
        names = drawn(run.journal)
        assert len(set(names)) == 12
        firsts += names[:3]
    assert sum(name.startswith("large") for name in firsts) > 16  # of 24; 20 expected, 12 if equal


def test_the_journal_names_the_model_the_file_and_the_price(tmp_path):
    table = '[price]\nlarge = 0.5\n"small/p0.py" = 0.125\nsmall = 0.25\n[note]\nsmall = "May"\n'
    fill_bank(tmp_path / "bank", 2, table=table)
    study = culmen.optimize(
        SEED,
        evaluator=lambda text: value_of(text),
        model=f"bank:{tmp_path / 'bank'}",
        budget=Budget(evaluations=40, dollars=5.0),
        deterministic=True,
        run_dir=tmp_path / "run",
    )
    assert study.meta.strategy["path"].endswith(":BestOfN")  # nothing improves independent drafts
    assert study.best is not None
    assert study.best.score == 12.0
    assert study.status.reason == BANK_EMPTY
    assert study.status.usage.calls == 4
    assert study.status.usage.dollars == pytest.approx(0.5 + 0.5 + 0.125 + 0.25)
    best = next(each for each in study.candidates() if each.id == study.best.id)
    assert (best.model, best.operator, best.parents) == ("small", "bank", ())
    (tmp_path / "bank" / "large" / "p0.py").unlink()  # finished draws are in the journal
    again = culmen.Study.resume(tmp_path / "run", evaluator=lambda text: value_of(text))
    again.run()
    assert again.best is not None
    assert again.best.id == study.best.id


def test_dollars_limit_the_draws(tmp_path):
    world = BankWorld(
        fill_bank(tmp_path, 3, table="[price]\nlarge = 1.0\nsmall = 1.0\n"), f"bank:{tmp_path}"
    )
    run = world.run(BestOfN(), Budget(evaluations=100, dollars=2.5))
    assert run.search.reason == "dollars"
    assert len(drawn(run.journal)) == 2


def test_a_program_that_changed_since_the_run_was_made_stops_it(tmp_path):
    world = BankWorld(fill_bank(tmp_path, 1), f"bank:{tmp_path}#large")
    (tmp_path / "large" / "p0.py").write_text("VALUE = 99.0\n")
    with pytest.raises(UserError, match="has changed since"):
        world.run(BestOfN(), Budget(evaluations=10))


def test_programs_lie_in_the_model_s_folder_or_in_the_task_s_below_it(tmp_path):
    plain = list_bank(BankAddress(str(fill_bank(tmp_path / "a", 2))), task())
    below = list_bank(BankAddress(str(fill_bank(tmp_path / "b", 2, "hill"))), task())
    assert [program.model for program in plain.programs] == ["large", "large", "small", "small"]
    assert below.programs[0].path == "large/hill/p0.py"
    (tmp_path / "b" / "large" / "hill" / "setup.py").write_text("")
    built = list_bank(BankAddress(str(tmp_path / "b")), task())
    assert {program.model for program in built.programs} == {"small"}
    assert built.built == ("large/hill",)


@pytest.mark.parametrize(
    ("name", "table", "says"),
    [
        ("bank:{}/none", "", "there is no folder"),
        ("bank:", "", "names no folder"),
        ("bank:{}#huge", "", "no model 'huge'.*large, small"),
        ("bank:{}", "[price]\nlarge = -1.0\n", "price of 'large'"),
        ("bank:{}", "[price]\nhuge = 1.0\n", "'huge', which is not in the bank"),
        ("bank:{}", "[prices]\nlarge = 1.0\n", "bank.toml is not valid"),
    ],
)
def test_mistakes_are_told_before_the_run(tmp_path, name, table, says):
    fill_bank(tmp_path, 1, table=table)
    with pytest.raises(UserError, match=f"(?s){says}"):
        culmen.optimize(
            SEED, evaluator=value_of, model=name.format(tmp_path), run_dir=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_folders_of_other_tasks_are_not_this_one_s(tmp_path):
    with pytest.raises(UserError, match=r"(?s)task 'hill'.*folders for the tasks valley"):
        list_bank(BankAddress(str(fill_bank(tmp_path, 1, "valley"))), task())


def test_a_budget_in_dollars_needs_the_bank_s_prices(tmp_path):
    fill_bank(tmp_path, 1, table="[price]\nlarge = 1.0\n")
    with pytest.raises(UserError, match="no price for small"):
        culmen.optimize(
            SEED,
            evaluator=value_of,
            model=f"bank:{tmp_path}",
            run_dir=tmp_path / "run",
            budget=Budget(dollars=1.0),
        )


def test_several_models_for_a_role_are_an_ensemble():
    assert (
        join_model_texts(["bank:a#x", "2*bank:a#y", "summarizer=none"])
        == "bank:a#x|2*bank:a#y,summarizer=none"
    )


def test_a_bank_of_a_models_file_lies_beside_that_file(tmp_path, monkeypatch):
    """Also where `--model` names another role, and wherever the run is started and resumed."""
    fill_bank(tmp_path / "there" / "programs")
    file = tmp_path / "there" / "models.toml"
    file.write_text('[roles]\nproposer = "bank:programs"\n')
    monkeypatch.chdir(tmp_path)
    plan = plan_run(task(), None, RunOptions(model="summarizer=ollama/x", models_file=str(file)))
    assert isinstance(plan.strategy, BestOfN) and len(plan.programs) == 6
    folder = str(tmp_path / "there" / "programs")
    assert ModelBook(file).roles_text() == f"proposer=bank:{folder}"
    file.write_text(
        '[roles]\nproposer = [{ model = "bank:programs", weight = 2 }, "bank:programs#large"]\n'
    )
    members = ModelBook(file).parse_roles().members("proposer")
    assert [each.model.bank for each in members] == [
        BankAddress(folder),
        BankAddress(folder, "large"),
    ]
