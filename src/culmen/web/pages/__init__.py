"""One JSON document per page, made from one run, for the server and the report."""

from culmen.web.pages.candidates import candidate, candidates, lineage
from culmen.web.pages.compare import compare
from culmen.web.pages.effects import calls, timeline
from culmen.web.pages.mechanism import mechanism
from culmen.web.pages.memory import memory
from culmen.web.pages.overview import head, overview
from culmen.web.pages.sessions import sessions
from culmen.web.pages.trust import trust

PAGES = {
    "head": head,
    "overview": overview,
    "candidates": candidates,
    "candidate": candidate,
    "lineage": lineage,
    "memory": memory,
    "mechanism": mechanism,
    "sessions": sessions,
    "calls": calls,
    "timeline": timeline,
    "trust": trust,
}
"""Page name -> function of (digest, parameters) that returns its document."""

__all__ = ["PAGES", "compare"]
