"""Trust: the evidence for the reported score, and its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from culmen.core.evaluation import MEANINGS, SIGNS, meets_trust_level
from culmen.core.json import JsonObject
from culmen.core.result import RunResult
from culmen.extensions.web.pages.candidates import candidate_statistics
from culmen.extensions.web.runs import Digest, fields_of
from culmen.report.facts import result_facts
from culmen.report.figures import join_nonempty, margin_decimals, number_text, traces_line
from culmen.report.sentences import (
    end_reason,
    noise_sentence,
    reported_score_text,
    run_verdict,
    say,
)
from culmen.store import views
from culmen.store.views import RunStatus

_FINALISTS = 16  # finalists that are listed

ISOLATION = {
    "namespaces": (
        "Own file system, processes, users and no network: bubblewrap, Landlock, seccomp and "
        "limits."
    ),
    "container": (
        "A container without network, with a read-only root, and in it users of their own and "
        "limits."
    ),
    "restricted": "Landlock, seccomp and limits, for machines that allow no user namespaces.",
    "limits": "Time, memory and counts only: files and network are open to candidates.",
    "seatbelt": "macOS's sandbox-exec and limits; not tested against attacks yet.",
    "portable": (
        "Time and memory only, on systems other than Linux: everything else is open to candidates."
    ),
    "none": "Candidates run in this process: a function of the program that made the run.",
    "not needed": "Candidates are texts that a model gets: nothing of them is run.",
}


def trust_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """Isolation in force, trust of all scores, noise, final choice, and findings.

    `gap` is the fresh score of the winner minus the search's estimate, as rewards: below zero, the
    search was too optimistic. `noise.sd` is the standard deviation of repeated scores of one
    candidate on one case, pooled over all.
    """
    now, about = views.run_status(run.run), run.meta
    integrity = views.run_integrity(run.run, 200)
    noise = integrity.noise if now.best is None else now.best.noise
    winner = _winner_verdict(now)
    return {
        "isolation": {"level": now.isolation, "meaning": ISOLATION.get(now.isolation, "")},
        "form": about.task.evaluator.form,
        "verifier": bool(about.task.evaluator.verifier),
        "levels": [
            {"level": name, "count": n, "meaning": MEANINGS[name]}
            for name, n in integrity.levels.items()
        ],
        "noise": {
            "told": noise_sentence(noise),
            "traces": traces_line(now),
            "sd": noise.sd or None,
            "exact": noise.exact,
            "repeats": noise.repeats,
            "repeated": integrity.repeated,
            "deterministic": bool(about.task.deterministic),
            "unstable": integrity.unstable,
        },
        "best": None if now.best is None else msgspec.to_builtins(now.best),
        "score": "" if now.best is None else reported_score_text(now.best),
        "looks": say("basis", result_facts(run.run, now)),
        "winner": winner,
        "gap": _optimism_gap(winner, now.direction),
        "gap_note": _gap_note(winner, now.direction),
        "finalists": _finalist_rows(run, now),
        "split": winner.get("split", "") if winner else "",
        **fields_of(now, "statuses", "failures", "direction", "state"),
        "signs": _sign_rows(integrity),
        "signed": {
            "all": integrity.signs,
            "read": len({each.seq for each in integrity.findings}),
            "counted": bool(integrity.kinds),
        },
        "limits": msgspec.to_builtins(about.task.limits),
        "bounds": list(about.task.objective.bounds),
        "known": getattr(about.task.objective, "known", None),
        "ended": end_reason(now),
    }


def _winner_verdict(now: RunStatus) -> JsonObject | None:
    return views.final_choice(now.path)


def _optimism_gap(winner: JsonObject | None, direction: str) -> float | None:
    """Fresh score minus the search's estimate, as rewards; None without a fresh score."""
    if not winner or not winner.get("confirmed") or winner.get("search_score") is None:
        return None
    gap = winner["score"] - winner["search_score"]
    return gap if direction == "max" else -gap


def _gap_note(winner: JsonObject | None, direction: str) -> str:
    """The gap in words; "" without one."""
    gap = _optimism_gap(winner, direction)
    if gap is None or winner is None:
        return ""
    if gap == 0.0:
        return "The two are equal."
    if not winner.get("se") or abs(gap) <= 2.0 * _gap_error(winner):
        return "The difference is within noise."
    if gap < 0:
        return "The search was too hopeful by more than noise explains."
    return "The fresh score is better than the search believed."


def belief_marks(run: Digest, now: RunStatus) -> list[JsonObject]:
    """Sentences for and against the reported score, each `healthy` or not."""
    best = now.best
    if best is None:
        return []
    doubts = run_verdict(result_facts(run.run, now)).doubts
    marks = [_choice_mark(run, now, best), _apart_mark(now, best)]
    marks += [(False, text) for text in doubts]
    if best.tolerance.startswith(("held", "rounding", "not checked")):
        word = best.tolerance.partition(":")[0]
        marks.append((not word.startswith("not"), f"tolerance {word}"))
    lost = {name: many for name, many in best.failed.items() if many and name != "candidate"}
    named = {"scorer": "evaluator"}
    causes = join_nonempty(
        f"{many:,} by the {named.get(name, name)}" for name, many in lost.items()
    )
    whole = "no evaluation was lost by the evaluator or the machine"
    marks.append((not lost, f"evaluations lost: {causes}" if lost else whole))
    if not now.findings:
        marks.append((True, "no grave sign of gaming"))
    return [{"healthy": healthy, "text": text} for healthy, text in marks]


def _choice_mark(run: Digest, now: RunStatus, best: RunResult) -> tuple[bool, str]:
    """The fresh score beside the search's own, or how the score was measured."""
    winner = _winner_verdict(now)
    note = _gap_note(winner, now.direction)
    if not best.confirmed or best.front or not note or best.search_score is None:
        return best.confirmed, say("basis", result_facts(run.run, now))
    digits = margin_decimals(best.margin) if best.margin else None if best.noise.exact else 3
    fresh = f"fresh {number_text(best.score, digits)} over {best.count:,}"
    text = f"{fresh}, search {number_text(best.search_score, digits)} over {best.search_count:,}"
    return not note.startswith("The search"), f"{text}: {note[0].lower()}{note[1:].rstrip('.')}"


def _apart_mark(now: RunStatus, best: RunResult) -> tuple[bool, str]:
    """The mark on the isolation of the evaluator from candidates."""
    if not meets_trust_level(best.trust, "verified"):
        return False, MEANINGS.get(best.trust, MEANINGS["self-reported"])
    how = f", isolation {now.isolation}" if now.isolation else ""
    return True, f"scored apart{how}"


def _gap_error(winner: JsonObject) -> float:
    """Standard error of the gap: of the fresh mean and of the search's own, which had luck, too."""
    sd = max(winner.get("noise", {}).get("sd", 0.0), winner["se"] * math.sqrt(winner["count"]))
    return math.hypot(winner["se"], sd / math.sqrt(winner.get("search_count") or 1))


def _finalist_rows(run: Digest, now: RunStatus) -> list[JsonObject]:
    """The finalists with all their scores; before the final choice, the leading candidates."""
    winner = _winner_verdict(now) or {}
    names = list(winner.get("finalists") or ())
    if not names:
        leading = views.candidate_rows(run.run, limit=5)
        return [
            candidate_statistics(each, run.meta.task.objective) | {"fresh": None}
            for each in leading
        ]
    fresh = views.phase_means(run.run, "final", names[:_FINALISTS])
    rows: list[JsonObject] = []
    for name in names[:_FINALISTS]:
        row = views.candidate_detail(run.run, name, observations=0, children=0).row
        rows.append(
            {**candidate_statistics(row, run.meta.task.objective), "fresh": fresh.get(name)}
        )
    return rows


def _sign_rows(integrity: views.Integrity) -> list[JsonObject]:
    """Signs by kind, the grave ones first, then the most frequent.

    `count` is the number of evaluations that showed the sign (without `kinds`: among those read),
    `examples` has one for each candidate, the newest first.
    """
    groups: dict[str, list[views.IntegrityFinding]] = {}
    for each in integrity.findings:
        groups.setdefault(each.sign, []).append(each)
    rows: list[JsonObject] = []
    for name, each in groups.items():
        alone = list({finding.candidate: finding for finding in reversed(each)}.values())[::-1]
        shown = [msgspec.to_builtins(finding) for finding in alone[:8]]  # candidates of each sign
        about = {"sign": name, "grave": each[0].grave, "meaning": SIGNS.get(name, (False, ""))[1]}
        rows.append(
            {
                **about,
                "count": integrity.kinds.get(name, len({finding.seq for finding in each})),
                "examples": shown,
            }
        )
    return sorted(rows, key=lambda group: (not group["grave"], -group["count"], group["sign"]))
