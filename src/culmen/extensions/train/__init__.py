"""Training of advisors during a search (PACEvolve++); only `torch_engine` needs torch."""

from typing import Literal, get_args

Objective = Literal["none", "grpo", "dr_grpo", "entropic", "max_at_k", "pkpo", "phase_adaptive"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
