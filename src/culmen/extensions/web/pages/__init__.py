"""One JSON document per page, made from one run, for the server and the report."""

from collections.abc import Mapping
from functools import cache

from culmen.extensions.web.pages.added import PageMaker, added_pages
from culmen.extensions.web.pages.candidates import candidate_detail_page, candidates_page
from culmen.extensions.web.pages.effects import calls_page, timeline_page
from culmen.extensions.web.pages.lineage import lineage_page
from culmen.extensions.web.pages.mechanism import mechanism_page
from culmen.extensions.web.pages.memory import memory_page
from culmen.extensions.web.pages.overview import factors_page, head_page, overview_page
from culmen.extensions.web.pages.report import report_page
from culmen.extensions.web.pages.trust import trust_page

_OWN: dict[str, PageMaker] = {
    "head": head_page,
    "overview": overview_page,
    "factors": factors_page,
    "candidates": candidates_page,
    "candidate": candidate_detail_page,
    "lineage": lineage_page,
    "memory": memory_page,
    "mechanism": mechanism_page,
    "calls": calls_page,
    "timeline": timeline_page,
    "trust": trust_page,
    "report": report_page,
}


@cache
def page_makers() -> Mapping[str, PageMaker]:
    """The makers of all pages by name, those of extensions included."""
    return {**_OWN, **{name: page.make for name, page in added_pages().items()}}
