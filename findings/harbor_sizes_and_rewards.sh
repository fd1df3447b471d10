#!/usr/bin/env bash
# harbor 0.26.0
# memory = "512K" becomes memory_mb 0.
# reward.txt may hold 1_000 or digits of any script; reward.json may hold no reward at all.
. "$(dirname "$0")/environment.sh"
in_environment harbor==0.26.0 <<'PYTHON'
from pathlib import Path
from types import SimpleNamespace

from harbor.models.task.config import TaskConfig
from harbor.models.verifier.result import VerifierResult
from harbor.verifier.verifier import Verifier

world = TaskConfig.model_validate_toml('[environment]\nmemory = "512K"\nstorage = "1023K"\n').environment
print("memory 512K, storage 1023K:", world.memory_mb, world.storage_mb)
assert (world.memory_mb, world.storage_mb) == (0, 0)

paths = SimpleNamespace(reward_text_path=Path("reward.txt"), reward_json_path=Path("reward.json"))
reader = SimpleNamespace(trial_paths=paths)
for text, expected in (("1_000", 1000.0), ("\u0661", 1.0)):  # the second is an Arabic-Indic digit
    paths.reward_text_path.write_text(text)
    found = Verifier._parse_reward_text(reader)
    print("reward.txt", ascii(text), found)
    assert found == {"reward": expected}
paths.reward_json_path.write_text("{}")
rewards = VerifierResult(rewards=Verifier._parse_reward_json(reader)).rewards
print("reward.json {}:", rewards)
assert rewards == {}
PYTHON
