"""One JSON document per page, made from one run, for the server and the report."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from culmen.core.json import JsonObject
from culmen.extensions.web.pages.added import PageMaker, added_pages
from culmen.extensions.web.pages.candidates import candidate_detail_page, candidates_page
from culmen.extensions.web.pages.effects import calls_page, timeline_page
from culmen.extensions.web.pages.lineage import lineage_page
from culmen.extensions.web.pages.mechanism import mechanism_page
from culmen.extensions.web.pages.memory import memory_page
from culmen.extensions.web.pages.overview import factors_page, head_page, overview_page
from culmen.extensions.web.pages.report import report_page
from culmen.extensions.web.pages.trust import trust_page
from culmen.extensions.web.runs import Digest


def _keep_document(name: str, make: PageMaker) -> PageMaker:
    """The maker of a page that follows from the journal alone, while no process works on it."""

    def make_kept(run: Digest, params: Mapping[str, str]) -> JsonObject:
        run.refresh()
        if not run.is_at_rest:
            return make(run, params)
        key = f"{name} {sorted(params.items())}"
        return run.memoise_result(key, run.last, lambda: make(run, params), not params)

    return make_kept


_OWN: dict[str, PageMaker] = {
    "head": head_page,
    "overview": overview_page,
    "factors": factors_page,
    "candidates": _keep_document("candidates", candidates_page),
    "candidate": _keep_document("candidate", candidate_detail_page),
    "lineage": _keep_document("lineage", lineage_page),
    "memory": _keep_document("memory", memory_page),
    "mechanism": _keep_document("mechanism", mechanism_page),
    "calls": _keep_document("calls", calls_page),
    "timeline": _keep_document("timeline", timeline_page),
    "trust": _keep_document("trust", trust_page),
    "report": report_page,
}


@cache
def page_makers() -> Mapping[str, PageMaker]:
    """The makers of all pages by name, those of extensions included."""
    return {**_OWN, **{name: page.make for name, page in added_pages().items()}}


def prepare_pages(run: Path) -> None:
    """Read a long run at rest as its first reader would; what the pages show is kept beside it."""
    digest = Digest(run)
    for name in ("overview", "candidates", "lineage", "timeline", "trust"):
        _OWN[name](digest, {})
