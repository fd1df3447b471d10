"""Requests for runs as they are written on a command line, and the plans made of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import culmen
from culmen.core.errors import UserError
from culmen.core.options import BackendChoice, Needs
from culmen.evaluate.backends import usual_workers
from culmen.run.plan import create_run, requested_fork, requested_run
from culmen.run.request import RunRequest, session_keywords
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.pedigree import PedigreeSearch
from culmen.strategies.polca import Polca
from culmen.tasks import write_new

pytestmark = pytest.mark.extension("builtin")

MODELS = """
[providers.mine]
base_url = "http://127.0.0.1:9/v1"

[models."mine/small"]

[roles]
default = "mine/small"
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    write_new(tmp_path / "task")
    return tmp_path / "task"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models.toml"
    path.write_text(MODELS)
    return path


def test_a_plan_writes_nothing_and_its_run_is_created_once(task: Path, tmp_path: Path) -> None:
    plan = requested_run(
        task, RunRequest(strategy="polca", settings=["epsilon=off"], budget="evaluations=7")
    )
    assert isinstance(plan.strategy, Polca) and plan.options.budget.evaluations == 7
    assert not (tmp_path / "run").exists()
    path, meta = create_run(plan, tmp_path / "run")
    assert views.run_meta(path) == meta and meta.options == plan.options
    with pytest.raises(UserError, match="already"):
        create_run(plan, tmp_path / "run")


def test_a_fork_finds_an_embedder_of_its_parents_models_file(
    task: Path, models: Path, tmp_path: Path
) -> None:
    request = RunRequest(models=models, model=["offline"], budget="evaluations=5")
    path, _ = create_run(requested_run(task, request), tmp_path / "run")
    plan = requested_fork(path, RunRequest(embedder="mine/vectors", budget="evaluations=9"))
    assert plan.options.embedder == "mine/vectors" and plan.options.models_file == str(models)
    with pytest.raises(UserError, match="nobodys"):
        requested_fork(path, RunRequest(embedder="nobodys/vectors", budget="evaluations=9"))


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (RunRequest(require="stone"), "stone"),
        (RunRequest(models=Path("gone.toml")), "no models file"),
        (RunRequest(preset="paper"), "no preset 'paper'"),
        (RunRequest(settings=["explore"]), "cannot read the setting"),
        (RunRequest(budget="evaluations=+5"), "no budget to add to"),
        (RunRequest(stop_at="soon"), "'soon' is not a score"),
        (RunRequest(stop_at="soon", model=["nowhere/x"]), "'soon' is not a score"),
        (RunRequest(strategy="polca", agent="offline"), "the strategy polca has no agent"),
        (RunRequest(budget="dollars=1"), "nothing ends this run"),
        (RunRequest(backend="moon"), "moon"),
    ],
)
def test_a_request_that_cannot_be_is_refused_before_there_is_a_run(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: RunRequest, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=what):
        requested_run(task, request_)
    assert not (tmp_path / "runs").exists()


@dataclass(frozen=True)
class WithAgent(BestOfN):
    """A strategy of a person's own, with a setting that is called agent."""

    agent: str = "nobody"


def test_an_agent_is_a_setting_of_a_strategy_of_ones_own(task: Path, tmp_path: Path) -> None:
    name = f"{WithAgent.__module__}:WithAgent"
    plan = requested_run(task, RunRequest(strategy=name, agent="somebody", budget="5"))
    assert getattr(plan.strategy, "agent", "") == "somebody"
    path, _ = create_run(requested_run(task, RunRequest(budget="5")), tmp_path / "run")
    assert (
        getattr(requested_fork(path, RunRequest(strategy=name, agent="x")).strategy, "agent", "")
        == "x"
    )
    with pytest.raises(UserError, match="the strategy pedigree has no agent") as refused:
        requested_fork(path, RunRequest(agent="offline"))
    assert "--strategy cato" in refused.value.fix
    forked = requested_fork(path, RunRequest(agent="offline", strategy="cato"))
    from culmen.extensions.agents.cato import Cato

    assert isinstance(forked.strategy, Cato) and forked.strategy.agent == "offline"


def test_what_the_task_chooses_holds_where_the_request_does_not(task: Path) -> None:
    toml = task / "task.toml"
    toml.write_text(
        toml.read_text()
        + '\n[resources]\ncpu = 2\n[defaults]\nbudget = "30"\nseed = 5\nsettings = { most = 2 }\n'
        + '[presets.paper]\nstrategy = "polca"\nsettings = { epsilon = 0.5, batch = 3 }\nworkers = 3\n'
    )
    plan = requested_run(task, RunRequest())
    options = plan.options
    assert isinstance(plan.strategy, PedigreeSearch) and plan.strategy.most == 2
    assert (options.budget.evaluations, options.seed) == (30, 5)
    assert options.workers == usual_workers(None)
    assert options.backend == BackendChoice(needs=Needs(cpu=2))
    plan = requested_run(task, RunRequest(preset="paper", seed=6, settings=["batch=4"]))
    assert isinstance(plan.strategy, Polca) and (plan.strategy.epsilon, plan.strategy.batch) == (
        0.5,
        4,
    )
    assert (plan.options.budget.evaluations, plan.options.seed, plan.options.workers) == (30, 6, 3)


def test_a_model_of_a_task_needs_no_strategy_beside_it(
    task: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    toml = task / "task.toml"
    toml.write_text(toml.read_text() + '\n[defaults]\nmodel = "openai/gpt-5-mini"\n')
    assert requested_run(task, RunRequest(budget="5")).options.model == "openai/gpt-5-mini"
    asked = requested_run(task, RunRequest(budget="5", model=["offline"]))
    assert asked.options.model == "offline"


def test_python_and_the_command_line_plan_the_same_run(task: Path, tmp_path: Path) -> None:
    planned = requested_run(task, RunRequest(strategy="polca", budget="evaluations=7", seed=3))
    study = culmen.Study.create(
        task, "polca", run_dir=tmp_path / "run", budget=culmen.Budget(evaluations=7), random_seed=3
    )
    _, meta = create_run(planned, tmp_path / "other")
    assert study.meta.options == meta.options and study.meta.strategy == meta.strategy


def meta_with(backend: BackendChoice | None) -> RunMeta:
    return RunMeta("a", culmen.Task("number"), backend=backend)


def test_the_backend_of_a_session_is_the_runs_with_what_the_request_changes() -> None:
    old = BackendChoice(needs=Needs(2, memory=2**30), wait=3)
    words = "gpu=1,memory=2GB,custom.fpga=0.5,wait=9,retries=1,partition=big"
    found = session_keywords(meta_with(old), RunRequest(backend_set=words))["backend"]
    assert found == BackendChoice(
        needs=Needs(2, 1, 2 * 10**9, {"fpga": 0.5}), wait=9.0, retries=1, texts={"partition": "big"}
    )
    assert "backend" not in session_keywords(meta_with(None), RunRequest(backend="local"))
    again = session_keywords(meta_with(found), RunRequest(backend_set="custom.asic=1"))["backend"]
    assert again.needs.custom == {"fpga": 0.5, "asic": 1.0}


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (RunRequest(backend="moon"), "no backend 'moon'"),
        (RunRequest(backend_set="cpu"), "cannot read 'cpu'"),
        (RunRequest(backend_set="cpu=-1"), "not a number from 0"),
        (RunRequest(backend_set="memory=2 apples"), "is not a size"),
        (RunRequest(backend_set="x=1"), "no backend setting 'x'(.|\n)*custom.NAME, wait"),
        (RunRequest(backend="local", ray_address="auto2"), "the backend local has no address"),
    ],
)
def test_a_backend_that_cannot_be_meant_is_refused(request_: RunRequest, what: str) -> None:
    with pytest.raises(UserError, match=what):
        session_keywords(meta_with(None), request_)


def test_a_session_elsewhere_keeps_the_runs_backend_unless_another_is_named(
    task: Path, tmp_path: Path
) -> None:
    _, meta = create_run(requested_run(task, RunRequest(backend_set="cpu=2")), tmp_path / "run")
    assert "backend" not in session_keywords(meta, RunRequest())
    changed = session_keywords(meta, RunRequest(backend_set="cpu=1"))["backend"]
    assert isinstance(changed, BackendChoice) and changed.needs.cpu == 1
