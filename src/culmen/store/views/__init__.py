"""Read models of a run: plain data for the command line, the report and the web.

Each function opens the run (`run` is its folder) for reading, sees one consistent snapshot, and
closes it again. These functions never make the writer wait and create no file. They raise
`UserError` if there is no run and `JournalDamaged` if it cannot be read.
"""

from culmen.store.views.candidates import (
    CandidateDetail,
    CandidateRow,
    Front,
    Step,
    candidate,
    candidates,
    find_candidate,
    front,
    lineage,
)
from culmen.store.views.course import (
    FINE,
    LISTED,
    ROUGH,
    LeaderCourse,
    LeaderPoint,
    ProgressPoint,
    SeenScore,
    course,
    evaluations,
    progress,
)
from culmen.store.views.events import (
    EffectCost,
    EffectMark,
    EmbeddedCandidates,
    FamilyNode,
    JournalPiece,
    StrategyNote,
    costs,
    effect_marks,
    effect_results,
    embeddings,
    evaluated,
    family,
    in_flight,
    last_seq,
    log,
    notes,
    number_of,
    observations,
    partial_faults,
    pieces,
    seq_at,
    strategy_notes,
    subjects,
)
from culmen.store.views.integrity import (
    Integrity,
    IntegrityFinding,
    Prose,
    ScoreChange,
    case_means,
    integrity,
    phase_means,
    prose,
    score_changes,
    verdict,
)
from culmen.store.views.listing import (
    LOOKED_UP,
    SORTS,
    CandidatePage,
    CandidateQuery,
    Facets,
    ListedCandidate,
    facets,
    table,
)
from culmen.store.views.run import (
    Agents,
    CallCosts,
    RunLine,
    RunStatus,
    Spent,
    Training,
    best,
    calls,
    find_run,
    meta,
    run_lines,
    runs,
    status,
    step_law,
)
