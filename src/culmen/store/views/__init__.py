"""Read models of a run: plain data for the command line, the report and the web.

Each function opens the run (`run` is its folder) for reading, sees one consistent snapshot, and
closes it again. These functions never make the writer wait and create no file. They raise
`UserError` if there is no run and `JournalDamaged` if it cannot be read.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from culmen.store.views.ascent import (
        Ancestor,
        FamilyNode,
        TriedCandidate,
        ascent_to,
        family_tree,
        tried_candidates,
    )
    from culmen.store.views.candidates import (
        CandidateDetail,
        CandidateRow,
        Front,
        Step,
        candidate_detail,
        candidate_rows,
        find_candidate,
        first_score_of,
        lineage_steps,
        pareto_front,
    )
    from culmen.store.views.course import (
        FINE,
        LISTED,
        ROUGH,
        LeaderCourse,
        LeaderPoint,
        ProgressPoint,
        SeenScore,
        StrategyNote,
        event_count,
        last_seq,
        leader_course,
        log_events,
        note_events,
        progress_points,
        search_evaluations,
        strategy_notes,
    )
    from culmen.store.views.effects import (
        EffectCost,
        EffectMark,
        EmbeddedCandidates,
        candidate_embeddings,
        costs_of_events,
        cut_off_evaluations,
        effect_costs,
        effect_marks,
        effect_results,
        effect_subjects,
        in_flight,
        spending_by_event,
    )
    from culmen.store.views.evaluations import (
        EvaluationMark,
        evaluation_mark,
        evaluation_seqs,
        failure_causes,
        newest_observations,
        stream_observations,
    )
    from culmen.store.views.integrity import (
        Integrity,
        IntegrityFinding,
        Prose,
        ScoreChange,
        case_counts,
        case_means,
        final_choice,
        phase_means,
        run_integrity,
        score_changes,
        stream_prose,
    )
    from culmen.store.views.listing import (
        LOOKED_UP,
        SORTS,
        CandidatePage,
        CandidateQuery,
        Facets,
        ListedCandidate,
        SearchResult,
        TextMatch,
        candidate_facets,
        candidate_page,
        search_candidates,
    )
    from culmen.store.views.run import (
        Agents,
        CallCosts,
        RunLine,
        RunStatus,
        Spent,
        Training,
        best_result,
        call_costs,
        find_run,
        initial_program,
        list_runs,
        model_lessons,
        run_lines,
        run_meta,
        run_status,
        step_law,
    )

_PARTS = (
    "run",
    "course",
    "candidates",
    "ascent",
    "effects",
    "evaluations",
    "integrity",
    "listing",
)
"""Modules of views, those of every command first: they are loaded until one has the name."""


def __getattr__(name: str) -> object:
    if name.startswith("_") or name in _PARTS:
        raise AttributeError(name)
    for part in _PARTS:
        found = getattr(import_module(f"{__name__}.{part}"), name, None)
        if found is not None:
            globals()[name] = found
            return found
    raise AttributeError(name)
