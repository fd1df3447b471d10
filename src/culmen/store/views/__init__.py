"""Read models of a run: plain data for the command line, the report and the web.

Each function opens the run for reading, sees one moment of it, and closes it again. They never make the writer wait
and create no file. `run` is a folder.
Raises `UserError` where there is no run and `JournalDamaged` where it cannot be read.
"""

from culmen.store.views.activity import (
    Cost,
    Embedded,
    Mark,
    Node,
    Remark,
    costs,
    embeddings,
    evaluated,
    family,
    in_flight,
    marks,
    pulse,
    remarks,
    results,
)
from culmen.store.views.agents import Agents
from culmen.store.views.best import Best
from culmen.store.views.candidates import (
    Detail,
    Row,
    candidate,
    candidates,
    find_candidate,
)
from culmen.store.views.events import Point, log, notes, observations, progress
from culmen.store.views.evidence import Moved, Prose, moved, prose
from culmen.store.views.integrity import Finding, Integrity, case_means, integrity, phase_means, verdict
from culmen.store.views.lineage import Step, lineage
from culmen.store.views.run import Calls, Spent, Status, best, calls, meta, status
from culmen.store.views.runs import RunLine, find_run, run_lines, runs
from culmen.store.views.table import Facets, Listed, Page, Query, facets, table
from culmen.store.views.training import Training

__all__ = [
    "Agents",
    "Best",
    "Calls",
    "Cost",
    "Detail",
    "Embedded",
    "Facets",
    "Finding",
    "Integrity",
    "Listed",
    "Mark",
    "Moved",
    "Node",
    "Page",
    "Point",
    "Prose",
    "Query",
    "Remark",
    "Row",
    "RunLine",
    "Spent",
    "Status",
    "Step",
    "Training",
    "best",
    "calls",
    "candidate",
    "candidates",
    "case_means",
    "costs",
    "embeddings",
    "evaluated",
    "facets",
    "family",
    "find_candidate",
    "find_run",
    "in_flight",
    "integrity",
    "lineage",
    "log",
    "marks",
    "meta",
    "moved",
    "notes",
    "observations",
    "phase_means",
    "progress",
    "prose",
    "pulse",
    "remarks",
    "results",
    "run_lines",
    "runs",
    "status",
    "table",
    "verdict",
]
