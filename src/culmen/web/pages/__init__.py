"""One JSON document per page, made from one run, for the server and the report."""

from culmen.agents.page import sessions_page
from culmen.bench.page import compare_page
from culmen.web.pages.candidates import candidate_detail_page, candidates_page, lineage_page
from culmen.web.pages.effects import calls_page, timeline_page
from culmen.web.pages.mechanism import mechanism_page
from culmen.web.pages.memory import memory_page
from culmen.web.pages.overview import head_page, overview_page
from culmen.web.pages.trust import trust_page

PAGES = {
    "head": head_page,
    "overview": overview_page,
    "candidates": candidates_page,
    "candidate": candidate_detail_page,
    "lineage": lineage_page,
    "memory": memory_page,
    "mechanism": mechanism_page,
    "sessions": sessions_page,
    "calls": calls_page,
    "timeline": timeline_page,
    "trust": trust_page,
}
"""Page name -> function of (digest, parameters) that returns its document."""

__all__ = ["PAGES", "compare_page"]
