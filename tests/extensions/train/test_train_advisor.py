"""culmen runs advisor: the trained advisor of a run, written and talked to."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'train' is not installed")
peft = pytest.importorskip("peft", reason="the extra 'train' is not installed")

from culmen.core.errors import UserError  # noqa: E402
from culmen.core.event import CustomRequest  # noqa: E402
from culmen.extensions.train import advisors  # noqa: E402
from culmen.extensions.train.advisors import policy_maker  # noqa: E402
from culmen.extensions.train.craft import TrainCraft  # noqa: E402
from culmen.extensions.train.models import load_tokenizer  # noqa: E402
from culmen.extensions.train.torch_engine import TorchEngine  # noqa: E402
from culmen.strategies.pacevolve.advisor import MENU  # noqa: E402
from tests.extensions.train.policies import write_chat_model  # noqa: E402

WORDS = ("system", "user", "assistant", "generate", "select", "failed", "hello", *MENU)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    torch.set_num_threads(1)
    return write_chat_model(tmp_path_factory.mktemp("model"), WORDS, seed=5)


def trained(run: Path, **payload) -> Path:
    """A run's folder with a policy that was updated twice, by the craft that every run uses."""
    craft = TrainCraft(run / "policy", policy_maker(lambda role, slots: ("generate", "failed")))

    async def perform():
        await craft.perform(CustomRequest("train.open", payload, 0))
        for version in range(2):
            slots = {"count": 2, "options": []}
            asked = [{"step": "generate", "slots": slots, "version": version}] * 3
            drawn = [
                await craft.perform(CustomRequest("train.sample", one, n))
                for n, one in enumerate(asked)
            ]
            batch = [
                {"sample": d.data["sample"], "advantage": a}
                for d, a in zip(drawn, (1.0, -1.0, 0.5), strict=True)
            ]
            update = {
                "version": version,
                "batch": batch,
                "rules": {"rate": 0.02},
                "plan": {"step": version},
            }
            await craft.perform(CustomRequest("train.update", update, version))
        await craft.close()

    asyncio.run(perform())
    return run


def opening(policy, **more):
    return {"policy": str(policy), "menu": MENU, "seed": 3, "rank": 4, "most": 5, **more}


def replies(engine):
    prompt = engine.encode("user generate assistant")
    return [engine.sample(prompt, seed, 4).response for seed in range(6)]


def test_an_exported_adapter_loads_with_peft(base, tmp_path):
    run = trained(tmp_path / "run", **opening(base))
    told = advisors.export_advisor(run, None, tmp_path / "out")
    assert (told["version"], told["form"], told["base"]) == (2, "adapter", str(base))
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= set(
        told["files"]
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    model, tokenizer = (
        peft.PeftModel.from_pretrained(model, tmp_path / "out"),
        load_tokenizer(str(tmp_path / "out")),
    )
    loaded = TorchEngine(model, tokenizer)
    assert (
        replies(loaded)
        == replies(advisors.open_policy(run))
        != replies(advisors.open_policy(run, 0))
    )
    with pytest.raises(UserError, match="exists already"):
        advisors.export_advisor(run, 1, tmp_path / "out")


def test_a_whole_model_is_exported_as_a_folder_of_transformers(tmp_path):
    run = trained(tmp_path / "run", **opening("tiny"))
    told = advisors.export_advisor(run, 1, tmp_path / "out")
    assert told["form"] == "model" and told["version"] == 1
    words = json.loads((tmp_path / "out" / "words.json").read_text())
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    engine = TorchEngine(loaded, advisors.open_policy(run, 1).tokenizer)
    assert replies(engine) == replies(advisors.open_policy(run, 1)) and words[3] == "generate"


def test_every_version_that_is_kept_can_be_opened(base, tmp_path):
    run = trained(tmp_path / "run", **opening(base))
    assert advisors.kept_versions(run) == [0, 1, 2]
    assert replies(advisors.open_policy(run, 0)) != replies(advisors.open_policy(run, 2))
    with pytest.raises(UserError, match="not kept"):
        advisors.open_policy(run, 7)
    with pytest.raises(UserError, match="does not train an advisor"):
        advisors.kept_versions(tmp_path) or advisors.policy_settings(tmp_path)


def test_a_checkpoint_of_other_settings_is_refused(base, tmp_path):
    run = trained(tmp_path / "run", **opening(base))
    plan = json.loads((run / "policy/00002/done.json").read_text())["plan"]
    assert plan == {"step": 1}
    (run / "policy/policy.json").write_text(json.dumps(opening(base, head=True)))
    with pytest.raises(UserError, match="other settings"):
        advisors.open_policy(run)


@pytest.mark.timeout(900)
def test_an_advisor_is_trained_and_exported_by_the_verbs(tmp_path):
    """A real run of the strategy, and the export, in a process."""
    task = tmp_path / "task"
    task.mkdir()
    (task / "task.toml").write_text(
        'name = "peak"\ngoal = "Return a number near 7."\ndeterministic = true\n[objective]\ntarget = 0.0\n'
        '[seed]\nparts = { "program.py" = "def run():\\n    return 3.0\\n" }\n'
    )
    (task / "evaluator.py").write_text("def score(output):\n    return -((output - 7.0) ** 2)\n")
    code = (
        "import sys\nfrom culmen.cli.main import main\n"
        "def do(*words):\n    code = main(list(words))\n    assert code == 0, words\n"
        "do('run', 'task', '--strategy', 'pacevolve_plus_plus', '--set', 'scaffold=pacevolve(islands=2)',\n"
        "   '--set', 'starts=puct', '--budget', 'evaluations=7', '--run-dir', 'runs/one', '--quiet')\n"
        "do('runs', 'advisor', 'export', 'one', '--out', 'out', '--version', '0')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "model.safetensors").is_file()
