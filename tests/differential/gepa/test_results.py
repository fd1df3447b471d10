"""The result's attributes beside those of a state with the same candidates and scores."""

from __future__ import annotations

from typing import Any

from gepa.core.result import GEPAResult
from gepa.core.state import GEPAState, ValsetEvaluation
from hypothesis import given
from hypothesis import strategies as st

from culmen.extensions.compat.gepa_evaluators import STRING_PART
from culmen.extensions.compat.gepa_result import GepaMember, GepaResult
from tests.differential.comparing import inputs, same

NUMBERS = st.floats(-4, 4, allow_subnormal=False).map(lambda x: round(x, 1))
FIELDS = (
    *("candidates", "parents", "val_aggregate_scores", "val_subscores", "best_idx"),
    *("per_val_instance_best_candidates", "discovery_eval_counts", "val_aggregate_subscores"),
    *("per_objective_best_candidates", "objective_pareto_front", "best_outputs_valset"),
    *("num_candidates", "num_val_instances", "best_candidate", "best_refiner_prompt"),
    *("total_metric_calls", "num_full_val_evals", "run_dir", "seed"),
)


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[GepaMember], bool]:
    """Candidates with scores and objectives on the same examples, and if they are texts."""
    is_text, examples = draw(st.booleans()), draw(st.integers(1, 4))
    parts = [STRING_PART] if is_text else draw(st.sampled_from((["a"], ["a", "refiner_prompt"])))
    objectives = draw(st.lists(st.sampled_from("xyz"), unique=True, max_size=3))
    members = []
    for place in range(draw(st.integers(1, 6))):
        earlier = st.lists(st.integers(0, place - 1), min_size=1, max_size=2, unique=True)
        members.append(
            GepaMember(
                {part: draw(st.text(max_size=4)) for part in parts},
                draw(earlier) if place else [None],
                {example: draw(NUMBERS) for example in range(examples)},
                {
                    example: {name: draw(NUMBERS) for name in objectives}
                    for example in range(examples)
                },
                draw(st.integers(0, 99)) if place else 0,
            )
        )
    return members, is_text


def evaluation_of(member: GepaMember) -> ValsetEvaluation[Any, int]:
    scores = dict(member.scores)
    objectives = {example: dict(row) for example, row in member.metrics.items()}
    return ValsetEvaluation(dict.fromkeys(scores, "output"), scores, objectives)


def package_result(members: list[GepaMember], is_text: bool) -> GEPAResult[Any, int]:
    state: GEPAState[Any, int] = GEPAState(dict(members[0].parts), evaluation_of(members[0]))
    for member in members[1:]:
        state.update_state_with_new_program(
            list(member.parents), dict(member.parts), evaluation_of(member), None, member.discovered
        )
    state.total_num_evals, state.num_full_ds_evals = 40, len(members)
    return GEPAResult.from_state(state, "out", 3, STRING_PART if is_text else None)


@inputs(1000)
@given(pools())
def test_every_attribute(pool: tuple[list[GepaMember], bool]) -> None:
    members, is_text = pool
    package = package_result(members, is_text)
    study: Any = None  # not asked for anything here
    mine = GepaResult(
        members, package.best_idx, study, is_text, 40, len(members), run_dir="out", seed=3
    )
    same(
        "results: every attribute",
        {name: getattr(package, name) for name in FIELDS},
        {name: getattr(mine, name) for name in FIELDS},
        pool,
    )
    same("results: to_dict", package.to_dict(), mine.to_dict(), pool)
    assert GEPAResult.from_dict(mine.to_dict()) == package
    assert mine.candidate_tree_dot() == package.candidate_tree_dot()
