"""Tasks whose candidate is a skill or tools: their folders, and a backend of rollouts.

A folder's task.toml has a table [skill] or [tools] (`SkillTable`); `culmen run
--skill DIR --tasks DIR --agent NAME` does without a file. Each Harbor task is a case, one
evaluation is one rollout.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from culmen.core.asking import ASKER, AskingFailed, Loan
from culmen.core.candidate import Candidate, skill_names
from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import TRAJECTORY, Case, Observation, Scoring, Status
from culmen.core.inside import text_inside
from culmen.core.json import JsonObject
from culmen.core.ports import Backend
from culmen.core.task import Evaluator, Limits, Objective, Surface, Task
from culmen.core.usage import Budget, Usage
from culmen.evaluate.integrity.guard import EvaluatorSeal
from culmen.extensions.agents.adapters import catalog, native, programs
from culmen.extensions.agents.sandbox import confinement
from culmen.extensions.agents.sandbox.settings import SandboxSettings
from culmen.extensions.compat.harbor_task import score_of
from culmen.extensions.skills.rollouts import harbor, needs, trajectory
from culmen.extensions.skills.rollouts.boxes import BoxTrialRunner
from culmen.extensions.skills.rollouts.broken import FirstRollouts
from culmen.extensions.skills.rollouts.harbor import HarborTask
from culmen.extensions.skills.rollouts.skill import (
    CHARACTERS_PER_TOKEN,
    Skill,
    read_skill,
    token_count,
)
from culmen.extensions.skills.rollouts.tools import (
    count_uses,
    find_server,
    split_command,
    uses_text,
)
from culmen.extensions.skills.rollouts.toolset import tools_fault
from culmen.extensions.skills.rollouts.trial import Access, RolloutTrial, TrialRunner
from culmen.jail import probes
from culmen.jail.wire import storable_text
from culmen.tasks import reading, schema, task_toml

if TYPE_CHECKING:
    from culmen.extensions.agents.gateway.metering import Metering
    from culmen.models.spec import ModelSpec

FORM, ROLE = "rollout", "agent"
_REWARDS = (0.0, 1.0)  # bounds of rewards, unless [objective] has others
_NAMED = 5  # tasks named in a note
_AGENT = "agent"  # among the generators that an evaluation drew from


class SkillTable(msgspec.Struct, frozen=True):
    """The table [skill] or [tools].

    path          the folder with SKILL.md, or a folder of such folders, or one file (AGENTS.md,
                  CLAUDE.md, a system prompt, a harness in Python); of tools: the folder with
                  tools.json or tools.toml, Python files, or both
    tasks         the folder of Harbor tasks
    agent         as `--agent`; {folder} is the folder of task.toml
    environment   plain: no task needs its container
    max_tokens    longest candidate, at 4 characters a token
    max_skills    most skills of a set
    frontmatter   free: the YAML at the head of SKILL.md may change, too
    calls, tokens limits of the agent's model in one rollout
    server        of tools: the command of the MCP server that has them
    names         of tools: free if tools and arguments may be renamed, and tools dropped
    frozen        files of the candidate that stay as they are
    """

    path: str = "skill"
    tasks: str = "tasks"
    agent: str = ""
    environment: Literal["", "plain"] = ""
    max_tokens: int = 5_000
    max_skills: int = 12
    frontmatter: Literal["frozen", "free"] = "frozen"
    calls: int = 100
    tokens: int = 500_000
    server: str = ""
    names: Literal["frozen", "free"] = "frozen"
    frozen: tuple[str, ...] = ()


class ToolsTable(SkillTable, frozen=True):
    """The table [tools]."""

    path: str = "tools"


_TABLES = {"skill": SkillTable, "tools": ToolsTable}


def is_skill_folder(folder: Path) -> bool:
    """True if the folder's task.toml has a table [skill] or [tools]."""
    return bool(_table_name(folder))


def _table_name(folder: Path) -> str:
    """The first of the tables skill and tools in a folder's task.toml, "" without one."""
    try:
        lines = text_inside(folder, "task.toml").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    heads = [line.partition("#")[0].strip() for line in lines]
    return next((head[1:-1] for head in heads if head in ("[skill]", "[tools]")), "")


def _read_table(folder: Path) -> tuple[schema.TaskToml, SkillTable]:
    name = _table_name(folder) or "skill"
    source = schema.read_toml(folder / "task.toml", (name, _TABLES[name]))
    return source, source.more


def read_skill_folder(folder: Path, goal: str = "") -> Task:
    """The task of such a folder; raise `TaskError` if it cannot be read."""
    source, table = _read_table(folder)
    objective = task_toml.build_objective(source)
    if objective == Objective():
        objective = Objective(bounds=_REWARDS)
    task = _build_task(
        folder / table.path,
        folder / table.tasks,
        table,
        objective,
        folder,
    )
    return replace(
        task,
        name=source.table.name or folder.name,
        goal=goal or source.table.goal.strip() or task.goal,
        system=source.table.system.strip(),
        defaults=task_toml.run_defaults(source),
        root=str(folder),
    )


class SkillFolders:
    """See `tasks.loading.FolderAdapter`."""

    EVALUATOR = ""
    READS_TASK_TOML = True
    can_read_folder = staticmethod(is_skill_folder)
    read_folder = staticmethod(read_skill_folder)


FOLDERS = SkillFolders()


def _build_task(
    skill_path: Path, tasks_path: Path, table: SkillTable, objective: Objective, folder: Path
) -> Task:
    """The task of a skill and a folder of Harbor tasks."""
    skill = read_skill(skill_path, isinstance(table, ToolsTable))
    found = harbor.read_tasks(tasks_path, table.environment)
    usable = [each for each in found if not each.gaps]
    if not usable:
        raise TaskError(
            f"none of the tasks can run here: {_named_gaps(found)}",
            where=str(tasks_path),
            fix='write environment = "plain" into [skill] of task.toml if they need no container'
            if any("container" in gap for each in found for gap in each.gaps)
            else "give the tasks what they lack, or name another folder",
        )
    size = token_count(skill.parts)
    if size > table.max_tokens:
        raise TaskError(
            f"the skill has about {size} tokens, more than max_tokens = {table.max_tokens}",
            where=str(skill_path),
            fix="shorten it, or raise max_tokens",
        )
    most = _most_skills(skill, skill_path, table)
    seconds = max(each.agent_seconds + each.verifier_seconds for each in usable)
    task = Task(
        name=skill.name,
        goal=_TOOLS_GOAL if skill.is_tools else _GOAL,
        seeds=(skill.parts,),
        evaluator=_rollout_evaluator(skill, usable, tasks_path, table, folder),
        cases=tuple(Case(each.name, input=each.instruction, split=each.split) for each in usable),
        objective=objective,
        surface=Surface(
            frozen=table.frozen,
            language=_language(skill),
            max_chars=table.max_tokens * CHARACTERS_PER_TOKEN,
            frontmatter=table.frontmatter,
            skills=most,
            tools=table.names if skill.is_tools else "",
        ),
        limits=Limits(seconds=seconds, scorer_seconds=seconds),
        notes=tuple(_notes(skill, found, usable, tasks_path)),
        root=str(tasks_path.resolve()),
    )
    return reading.with_digest(task)


def _language(skill: Skill) -> str:
    """The language of a candidate's parts."""
    suffixes = {Path(name).suffix for name in skill.parts}
    if ".py" in suffixes and (skill.is_tools or not skill.is_skill):
        return "python"
    return sorted(suffixes)[0].lstrip(".") if skill.is_tools else "markdown"


def _most_skills(skill: Skill, path: Path, table: SkillTable) -> int:
    """The limit of a set of skills, 0 for any other candidate."""
    count = len(skill_names(skill.parts))
    if not skill.is_set:
        return 0
    if count > table.max_skills:
        raise TaskError(
            f"there are {count} skills, more than max_skills = {table.max_skills}",
            where=str(path),
            fix="write max_skills into [skill] of task.toml, or leave some out",
        )
    return table.max_skills


def _rollout_evaluator(
    skill: Skill,
    usable: Sequence[HarborTask],
    tasks_path: Path,
    table: SkillTable,
    folder: Path,
) -> Evaluator:
    """The evaluator of a skill on these tasks; its folders are relative to the first task."""
    anchor = Path(usable[0].folder) / "task.toml"
    files = {
        os.path.relpath(file, anchor.parent): reading.file_sha256(file)
        for each in usable
        for file in harbor.task_files(each)
    }
    for file in _server_files(table.server, folder):
        files[os.path.relpath(file, anchor.parent)] = reading.file_sha256(file)
    evaluator = Evaluator(
        form=FORM,
        path=str(anchor),
        entry="",
        packages=(),
        files=files,
        digest=reading.evaluator_digest(files),
        tolerances=False,
        options={
            "agent": table.agent,
            "skill": skill.name,
            "is_skill": skill.is_skill,
            **({"is_set": True} if skill.is_set else {}),
            **({"is_tools": True, "server": table.server} if skill.is_tools else {}),
            **({"images": images} if (images := _image_ids(usable)) else {}),
            "tasks": os.path.relpath(tasks_path.resolve(), anchor.parent),
            "folder": os.path.relpath(folder.resolve(), anchor.parent),
            "environment": table.environment,
            "calls": table.calls,
            "tokens": table.tokens,
            "uses": [],
        },
    )
    return with_agent_roles(evaluator)


def _server_files(command: str, folder: Path) -> Iterable[Path]:
    """The files that the command of the tools' server names, which shape rewards, too."""
    words = split_command(command.replace("{folder}", str(folder.resolve())))
    return [Path(word) for word in words[1:] if Path(word).is_file()]


def _image_ids(tasks: Iterable[HarborTask]) -> dict[str, str]:
    """Ids by name of the images that tasks have or build upon."""
    found = [task.image.bases for task in tasks if task.image is not None]
    return {name: bases[name] for bases in found for name in sorted(bases)}


_GOAL = (
    "Improve the instructions that a coding agent reads before it works, so that its work passes "
    "more of the tasks' tests. The candidate is text for the agent, in general terms: what holds "
    "for tasks of this kind, not answers to single tasks. The agent sees neither tests nor rewards."
)
_TOOLS_GOAL = (
    "Improve the tools that a coding agent is served, so that its work passes more of the tasks' "
    "tests: what it reads of them, and what they do. They hold for tasks of this kind, with no "
    "answers to single tasks. The agent sees neither tests nor rewards."
)


def with_agent_roles(evaluator: Evaluator) -> Evaluator:
    """The evaluator with the models that its agent needs."""
    agent = str(evaluator.options["agent"])
    needs = bool(agent) and not isinstance(catalog.adapter_by_name(agent), native.AnyCommand)
    options = {name: each for name, each in evaluator.options.items() if name != "roles"}
    return replace(evaluator, options={**options, **({"roles": [ROLE]} if needs else {})})


def _named_gaps(tasks: Iterable[HarborTask]) -> str:
    counted = Counter(gap for task in tasks for gap in task.gaps)
    return "; ".join(f"{gap} ({count})" for gap, count in counted.most_common(_NAMED))


def _notes(
    skill: Skill, found: Iterable[HarborTask], usable: list[HarborTask], tasks_path: Path
) -> Iterable[str]:
    left = [task for task in found if task.gaps]
    if left:
        names = ", ".join(task.name for task in left[:_NAMED])
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        yield f"{len(left)} tasks are left out ({names}{more}), for they need {_named_gaps(left)}"
    ignored = Counter(each for task in usable for each in task.ignored)
    if ignored:
        yield f"without effect in the tasks: {', '.join(sorted(ignored))}"
    if missing := needs.missing_note(usable, tasks_path):
        yield missing
    stricter = Counter(each for task in usable for each in task.stricter)
    if stricter:
        yield f"stricter than Harbor: {'; '.join(sorted(stricter))}"
    if skill.faults:
        yield f"skills-ref, the reference library, refuses the skill: {'; '.join(skill.faults)}"


@dataclass(frozen=True)
class RolloutForm:
    """See `jail.forms.EvaluatorForm`: rollouts use no evaluator inside a jail."""

    jail_functions: ClassVar[Mapping[str, str]] = {}
    evaluator_requests: ClassVar[tuple[str, ...]] = ()
    jail_modules: ClassVar[tuple[str, ...]] = ()
    jail_sources: ClassVar[tuple[str, ...]] = ()
    backend: ClassVar[str] = "culmen.extensions.skills.rollouts.form:RolloutBackend"

    def contract_of(self, module: reading.Module) -> str | None:
        """None: no Python file is an evaluator of this form."""
        return None

    def check_module(self, module: reading.Module, path: Path) -> None:
        """Raise `TaskError`."""
        raise TaskError(
            "form = rollout has no evaluator in Python",
            where=str(path),
            fix="write a table [skill]",
        )

    def task_from_files(
        self, program: Path | None, evaluator: Path, config: Path | None, goal: str
    ) -> Task:
        """The task of a skill (`program`) and a folder of Harbor tasks (`evaluator`)."""
        assert program is not None
        table = SkillTable(environment="plain")
        objective = Objective(bounds=_REWARDS)
        task = _build_task(program, evaluator, table, objective, evaluator.parent)
        return replace(task, goal=goal or task.goal)

    def with_agent(self, task: Task, agent: str) -> Task:
        """The task with this agent, whose files are those of the current folder.

        Raises UserError if there is no such agent, or a file of its command.
        """
        agent = catalog.agent_with_paths(agent, Path.cwd())
        _require_scripts(agent, task)
        options = {**task.evaluator.options, "agent": agent}
        evaluator = replace(task.evaluator, options=options)
        return reading.with_digest(replace(task, evaluator=with_agent_roles(evaluator)))

    def new_runner(self, host: object) -> Any:
        """Never called: the form brings a backend."""
        raise NotImplementedError(FORM)

    tools_fault = staticmethod(tools_fault)


ROLLOUT = RolloutForm()


class RolloutBackend(Backend):
    """Evaluates a candidate by rollouts, `workers` at once."""

    attempts = 1
    scoring = Scoring("verified")

    def __init__(self, task: Task, workers: int, require: str | None = None) -> None:
        self.task, self.workers, self._require = task, max(1, workers), require
        self._seal = EvaluatorSeal(task.evaluator)
        self._options: JsonObject = task.evaluator.options
        self._tasks: dict[str, HarborTask] = {}
        self._folder, self._gateway = "", None
        self._runner: TrialRunner | None = None  # of plain tasks
        self._boxes: BoxTrialRunner | None = None  # of tasks with an image
        self._first = FirstRollouts("", 0.0)
        self._opening = asyncio.Lock()
        self._slots = list(reversed(range(self.workers)))
        self._free = asyncio.Semaphore(self.workers)

    async def start(self) -> str:
        """Find a sandbox that holds; raise IsolationError without one, UserError for the agent."""
        agent = str(self._options["agent"])
        if not agent:
            raise UserError(
                "no agent is named that is to use the skill",
                where=f"task {self.task.name}",
                fix="--agent claude, codex, opencode, acp:... or 'cmd: ...'",
            )
        self._seal.require_unchanged()
        anchor = Path(self.task.evaluator.path).parent
        root, folder = ((anchor / self._options[name]).resolve() for name in ("tasks", "folder"))
        known = await asyncio.to_thread(harbor.read_tasks, root, str(self._options["environment"]))
        cases = {case.id for case in self.task.cases}
        self._tasks = {each.name: each for each in known if each.name in cases}
        _require_images(self._tasks.values(), self._options.get("images", {}))
        boxed = [task for task in self._tasks.values() if task.image is not None]
        level = "container" if boxed else probes.LEVELS[0]
        probes.require_level(level, self._require, {})
        self._folder = tempfile.mkdtemp(prefix=f"culmen-rollouts-{os.getpid()}-")
        place, hidden = Path(self._folder), (str(root),)
        agent = catalog.agent_with_paths(agent.replace("{folder}", str(folder)), folder)
        adapter = catalog.adapter_by_name(agent)
        self._first = FirstRollouts(agent, self.task.objective.floor or 0.0)
        programs.find_program(adapter.program, f"install it, or correct --agent '{agent}'")
        server = find_server(str(self._options.get("server", "")).replace("{folder}", str(folder)))
        if len(boxed) < len(self._tasks):
            method = await asyncio.to_thread(confinement.choose_method, SandboxSettings())
            venv = needs.venv_of(root)
            packages = None if venv is None else programs.find_program(str(venv / "bin" / "python"))
            self._runner = TrialRunner(place, method, adapter, hidden, server, packages)
        if boxed:
            self._boxes = boxes = BoxTrialRunner(place, adapter, hidden, server)
            for task in boxed:
                await asyncio.to_thread(boxes.prepare_task, task)
        if self._options.get("is_tools"):
            await self._check_tools(boxed)
        return level

    async def _check_tools(self, boxed: Sequence[HarborTask]) -> None:
        """Start the tools' server once in each kind of world; raise `UserError` if it fails."""
        skill = self._skill(self.task.seeds[0])
        if self._runner is not None:
            plain = next(task for task in self._tasks.values() if task.image is None)
            await self._runner.check_tools(plain, skill)
        for task in {str(task.image): task for task in boxed}.values():
            assert self._boxes is not None
            await self._boxes.check_tools(task, skill)

    def _skill(self, parts: dict[str, str]) -> Skill:
        options = self._options
        kinds = (options["is_skill"], options.get("is_set"), options.get("is_tools"))
        return Skill(str(options["skill"]), parts, *map(bool, kinds))

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, *, certify: bool = False
    ) -> Observation:
        """One rollout. Raises EvaluatorChanged if a file of a task changed.

        Raises `BrokenRollouts` if the agent or the tests do not work at all.
        """
        assert case is not None
        async with self._free:
            slot = self._slots.pop()
            try:
                self._seal.require_unchanged()
                return await self._roll_out(candidate, case, seed, slot)
            except AskingFailed as error:
                return self._observation(
                    candidate, case, seed, Status.LOST, error.reason, str(error)
                )
            finally:
                self._slots.append(slot)

    async def _roll_out(
        self, candidate: Candidate, case: Case, seed: int, slot: int
    ) -> Observation:
        """The observation of a rollout; one of the first that shows nothing is made again."""
        harbor_task = self._tasks[case.id]
        is_initial = candidate.id in {each.id for each in self.task.initial_candidates()}
        while True:
            found = await self._try_rollout(harbor_task, candidate, case, seed, slot)
            if isinstance(found, Observation):
                return found
            trial, spent = found
            if not self._first.must_repeat(harbor_task, trial, is_initial):
                return self._judge(candidate, case, seed, trial, spent)

    async def _try_rollout(
        self, harbor_task: HarborTask, candidate: Candidate, case: Case, seed: int, slot: int
    ) -> Observation | tuple[RolloutTrial, Usage]:
        """A rollout and what its agent's model used; an observation if no model answered."""
        runner = self._runner if harbor_task.image is None else self._boxes
        assert runner is not None
        skill = self._skill(candidate.parts)
        loan = await self._lend_model()
        access, token, spent = Access(), "", Usage()
        gateway = None if loan is None else await self._open_gateway()
        try:
            if loan is not None and gateway is not None:
                budget = Budget(
                    calls=loan.most.calls, tokens=loan.most.tokens, dollars=loan.most.dollars
                )
                token = gateway.open(slot, budget=budget, models={"*": loan.model})
                socket, opened = Path(self._folder) / "gateway", token
                access = Access(loan.model.model, token, socket, lambda: gateway.exhausted(opened))
            trial = await runner.run(harbor_task, skill, slot, seed, access)
        finally:
            if gateway is not None and token:
                gateway.close(token)
                spent = await gateway.settled(token)
            if loan is not None:
                loan.settle(spent, spent.calls)
        if spent.calls:
            trial.trajectory["final_metrics"] = trajectory.with_usage(trial.trajectory, spent)
        report = gateway.report(token) if gateway is not None and token else None
        failed = sum(report.failed.values()) if report is not None else 0
        failure = report.last_failure if report is not None else ""
        unanswered = trial.ended == "crashed" or (trial.ended == "finished" and failure)
        if trial.ended == "unavailable" or (unanswered and failed > spent.calls):
            why = f"the agent's model did not answer: {trial.why or failure}"
            return self._observation(candidate, case, seed, Status.LOST, "provider_away", why)
        return trial, spent

    async def _lend_model(self) -> Loan | None:
        """The agent's model, None if the run has none for it."""
        asker = ASKER.get()
        if asker is None:
            return None
        needed = bool(self._options.get("roles"))
        try:
            return await asker.lend(ROLE, self._largest_cost)
        except UserError:
            if needed:
                raise
            return None

    def _largest_cost(self, model: ModelSpec) -> Usage:
        from culmen.extensions.agents.gateway.exchange import max_request_cost
        from culmen.extensions.agents.gateway.formats import RequestRefused

        tokens = int(self._options["tokens"])
        try:
            costs = [max_request_cost(model, 3 * tokens, 0), max_request_cost(model, 0, tokens)]
        except RequestRefused as error:
            raise UserError(error.message, where=f"--model {ROLE}={model.name}") from None
        return Usage(
            calls=int(self._options["calls"]),
            input_tokens=tokens,
            dollars=max(cost.dollars for cost in costs),
        )

    async def _open_gateway(self) -> Metering:
        from culmen.extensions.agents.gateway.metering import Metering

        async with self._opening:
            if self._gateway is None:
                socket = Path(self._folder) / "gateway"
                folder = Path(self._folder) / "calls"
                self._gateway = await Metering({}, folder, port=None, socket=socket).__aenter__()
                socket.chmod(0o666)  # its folder is closed to other users
            return self._gateway

    def _judge(
        self, candidate: Candidate, case: Case, seed: int, trial: RolloutTrial, spent: Usage
    ) -> Observation:
        """The observation of a finished rollout."""
        is_set = bool(self._options.get("is_set"))
        rewards = trial.rewards
        score = None
        if rewards:
            score = score_of(rewards)
        fault = trial.fault or self.task.objective.score_fault(score)
        status = Status.OK
        if fault:
            status = Status.TIMEOUT if fault == "tests_timeout" else Status.INVALID
        calls = trajectory.count_calls(trial.trajectory)
        text = storable_text(
            msgspec.json.encode(trial.trajectory).decode()[: trajectory.LONGEST],
            trajectory.LONGEST,
        )
        return replace(
            self._observation(candidate, case, seed, status, fault, _feedback(trial, score)),
            score=None if fault else score,
            metrics={
                **rewards,
                "skill_tokens": float(token_count(candidate.parts)),
                **({"skills": float(len(skill_names(candidate.parts)))} if is_set else {}),
                "agent_tokens": float(spent.tokens),
                "agent_steps": float(len(trajectory.all_steps(trial.trajectory)) - 1),
                "tool_calls": float(calls),
                **({} if trial.uses is None else {"served_calls": float(count_uses(trial.uses))}),
            },
            seconds=trial.seconds,
            trust=self.scoring.trust,
            artifacts={TRAJECTORY: text},
            drew=(_AGENT,),  # no two rollouts of an agent need be alike
        )

    def _observation(
        self,
        candidate: Candidate,
        case: Case,
        seed: int,
        status: Status,
        reason: str = "",
        feedback: str = "",
    ) -> Observation:
        return Observation(
            candidate=candidate.id,
            status=status,
            case=case.id,
            reason=reason,
            feedback=storable_text(feedback, 6_000),  # characters
            seed=seed,
            evaluator=self.task.evaluator.digest,
        )

    async def close(self) -> None:
        """Stop the gateway and remove every file."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.__aexit__(None, None, None)
        folder, self._folder = self._folder, ""
        if folder:
            await asyncio.to_thread(shutil.rmtree, folder, True)


def _require_scripts(agent: str, task: Task) -> None:
    """Raise `UserError` for a script of the agent's command that is nowhere.

    Scripts of the tasks themselves are looked for in their folders; an image may have any.
    """
    root = Path(task.evaluator.path).parent / str(task.evaluator.options["tasks"])
    known = harbor.read_tasks(root.resolve(), str(task.evaluator.options["environment"]))
    if any(each.image is not None for each in known):
        return
    for word in catalog.missing_scripts(agent):
        if not any(harbor.has_file(each, word) for each in known):
            raise UserError(
                f"the agent's command names '{word}', which is no file in {Path.cwd()}",
                where=f"--agent '{agent}'",
                fix="correct the path; the agent itself starts in the folder of a task",
            )


def _require_images(tasks: Iterable[HarborTask], expected: dict[str, str]) -> None:
    """Raise `UserError` if an image is gone, or is not the one of the task as it was read."""
    listed = list(tasks)
    gaps = [gap for task in listed for gap in task.gaps]
    changed = [name for name, key in _image_ids(listed).items() if expected.get(name) != key]
    if gaps or changed:
        raise UserError(
            gaps[0] if gaps else f"the image {changed[0]} has changed since the task was read",
            where="the images of the tasks",
            fix="put the image back, or begin a new run",
        )


_FAULTS = {
    "tests_timeout": "the tests did not end in time",
    "no_reward": "the tests wrote no reward",
    "bad_reward": "the reward file cannot be read, or is one of two where the tests name one",
    "too_much_left": "the agent left more files than the task's storage holds",
    "unreadable": "the agent left a folder that cannot be read",
}


def _feedback(trial: RolloutTrial, score: float | None) -> str:
    """Feedback for the proposer: one line for a success, what matters for a failure."""
    about = f"the agent {trial.ended}" + (f" ({trial.why})" if trial.why else "")
    if not trial.fault and score is not None and score >= 1.0:
        return f"passed; {about}"
    first = _FAULTS.get(trial.fault) or f"reward {score:g}"
    first += f" (exit code {trial.code} of test.sh)" if trial.fault and trial.code else ""
    pieces = [f"{first}; {about}"] + ([] if trial.uses is None else [uses_text(trial.uses)])
    if steps := trajectory.last_steps(trial.trajectory):
        pieces += ["What it did last:", steps]
    if trial.tests.strip():
        pieces += ["What the tests printed last:", trial.tests.strip()[-1_500:]]
    return "\n".join(pieces)
