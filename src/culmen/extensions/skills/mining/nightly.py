"""One night: mine new sessions, search on the confirmed cases, stage a better skill.

It needs no terminal and asks nothing. A second one in the same folder is refused while the first
runs. A search that was made once, of the same skill on the same cases with the same settings, is
not made again.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from culmen.core.errors import UserError
from culmen.core.result import RunResult
from culmen.core.task import Task, digest_pieces
from culmen.extensions.skills.mining.proposals import (
    LEAST,
    MiningReport,
    hold_folder,
    mine_sessions,
    read_record,
    write_record,
)
from culmen.extensions.skills.mining.staging import (
    SkillCheckout,
    Staged,
    find_checkout,
    stage_skill,
)
from culmen.extensions.skills.rollouts.form import is_skill_folder, skill_path, tasks_path
from culmen.report.sentences import result_sentence
from culmen.run.plan import requested_run
from culmen.run.request import RunRequest
from culmen.run.study import ReportedCandidate, Study
from culmen.strategies import catalog

STAGED = "staged"


class NightReport(msgspec.Struct):
    """The outcome of a night.

    `outcome` is staged | no better skill | no confirmed cases | nothing new, `why` a sentence;
    `run` is the search's folder, "" without one.
    """

    outcome: str
    why: str
    mining: MiningReport
    run: str = ""
    result: RunResult | None = None
    staged: Staged | None = None


def spend_night(
    folder: Path, places: Sequence[Path], request: RunRequest, least: int = LEAST
) -> NightReport:
    """Mine, search and stage for a folder with a table [skill]; raise UserError, RunLocked."""
    if not is_skill_folder(folder):
        raise UserError(
            "a night needs a folder whose task.toml names the skill",
            where=str(folder),
            fix="write task.toml: [skill] with path and agent, and [defaults] with budget",
        )
    with hold_folder(folder):
        mining = mine_sessions(places, folder, least)
        if not any(tasks_path(folder).glob("**/task.toml")):
            why = "confirm a proposed fault: culmen skill mine --accept"
            return NightReport("no confirmed cases", why, mining)
        return _search_and_stage(folder, request, mining)


def _search_and_stage(folder: Path, request: RunRequest, mining: MiningReport) -> NightReport:
    plan = requested_run(folder, request)
    options = plan.options
    method = msgspec.json.encode(catalog.strategy_config(plan.strategy)).decode()
    settings = (options.budget, options.model, options.seed, method)
    asked = digest_pieces(plan.task.digest, *map(str, settings))
    record = read_record(folder)
    if record.searched == asked:
        why = "the same skill was searched on the same cases: --seed N searches again"
        return NightReport("nothing new", why, mining)
    before = plan.task.seeds[0]
    checkout = find_checkout(skill_path(folder), before)
    _require_place(folder / STAGED)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    study = Study.from_plan(plan, folder / "runs" / f"night-{stamp}")
    study.run(progress=False)
    best = study.best
    why = reason_against(best)
    if why or best is None:
        _note_search(folder, asked)
        return NightReport("no better skill", why, mining, str(study.path), best)
    name = (
        f"{re.sub(r'[^A-Za-z0-9.-]+', '-', folder.resolve().name).strip('.-') or 'skill'}-{stamp}"
    )
    staged = _stage(folder, checkout, plan.task, best, study.path, name)
    _note_search(folder, asked)
    return NightReport(STAGED, best.result, mining, str(study.path), best, staged)


def _require_place(patches: Path) -> None:
    """Raise `UserError` before anything is spent if patches cannot be written there."""
    if patches.exists() and not patches.is_dir():
        raise UserError(
            "a file is where the folder of patches is to be",
            where=str(patches),
            fix=f"mv {shlex.quote(str(patches))} {shlex.quote(f'{patches}.old')}",
        )


def _note_search(folder: Path, asked: str) -> None:
    """Record a search that is not to be made again; faults may have been confirmed meanwhile."""
    write_record(folder, msgspec.structs.replace(read_record(folder), searched=asked))


def reason_against(best: RunResult | None) -> str:
    """The reason that a result is not to be staged, "" if the test cases show a gain."""
    if best is None:
        return "no rollout gave a score"
    if best.split != "test" or not best.confirmed:
        return "the gain cannot be shown: no test cases were evaluated"
    if best.kept_initial or best.gain is None or best.initial is None:
        return "no skill was shown to be better than the present one"
    if best.gain - (best.gain_margin or 0.0) <= 0.0:
        return result_sentence(best)
    return ""


def _stage(
    folder: Path,
    checkout: SkillCheckout | None,
    task: Task,
    best: ReportedCandidate,
    run: Path,
    name: str,
) -> Staged:
    cases = [each for each in read_record(folder).faults if each.state == "confirmed"]
    message = "\n".join(
        [
            f"{task.name}: {result_sentence(best)}",
            "",
            f"Measured on {best.cases} test cases that the search had not used, by {best.count}",
            f"rollouts of this skill. Gain {best.gain:+.3g} ± {best.gain_margin or 0:.2g} (95 %).",
            "",
            "The confirmed cases, recurring faults of past sessions among them:",
            *(f"- `{each.use}`, not `{each.avoid}`: {each.sessions} sessions" for each in cases),
            "",
            f"Proposed by culmen skill nightly, for a person to adopt. Run: {run.name}",
            "",
        ]
    )
    now = int(time.time())
    return stage_skill(checkout, task.seeds[0], best.parts, message, name, now, folder / STAGED)
