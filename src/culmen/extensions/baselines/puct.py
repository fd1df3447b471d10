"""PUCT state reuse: a search that restarts from old programs, chosen as in a game tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.extensions.baselines.tree import Tree, TreeNode
from culmen.strategies.judging import Known
from culmen.strategies.settings import About, Cases, Format, Proposals, WorkerLanes, check


@dataclass(frozen=True)
class PuctSearch:
    """State reuse of TTT-Discover: each attempt starts from an archived program.

    It is the program with the highest Q(s) + c * scale * P(s) * sqrt(1 + T) / (1 + n(s)): Q is the
    best reward among the children of s (its own while it has none), P a prior that falls linearly
    with the rank of its reward, n counts expansions of s and of its descendants, T all expansions,
    and scale is the range of rewards seen. Unlike in games Q is a maximum, not a mean: one good
    child is enough for a discovery.

    Each expansion asks for `proposals` children and keeps the best `children` of them. The training
    of the model between expansions, the other half of that paper, is not part of this strategy.
    Lanes run side by side; a lane passes over ancestors and descendants of programs that another is
    working on.
    """

    paper = "Learning to Discover at Test Time (Yuksekgonul et al., 2026): reuse of states by PUCT"

    c: Annotated[float, About("weight of exploration", least=0)] = 1.0
    proposals: Proposals = 4
    children: Annotated[int, About("programs kept of one expansion", least=1)] = 2
    most: Annotated[int, About("programs kept in all; initial programs always are", least=2)] = 1000
    format: Format = "auto"
    batch: Cases = None
    lanes: WorkerLanes = None

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        states = lab.restored
        if not isinstance(states, _States):
            states = _States(Tree(self.most, self.children), Known())
            fresh = states.known.take_unknown(lab.seeds)
            for rollout, reward in await self.evaluate_programs(lab, fresh):
                states.tree.add_root(rollout, reward)
        await lab.gather(*(self.run_lane(lab, states) for _ in range(self.lanes or lab.workers)))

    async def run_lane(self, lab: Lab, states: _States) -> None:
        """Select a state, expand it, add the children; every turn awaits a proposal."""
        tree, known = states
        while True:
            await lab.checkpoint(states)
            node = tree.take_node(self.c)
            answer = await lab.propose(self.children_brief(lab, node))
            children = await self.evaluate_programs(lab, known.take_unknown(answer.candidates))
            for rollout, reward in await self.evaluate_programs(
                lab, known.take_unknown(lab.handed())
            ):  # a person's candidates are new roots
                tree.add_root(rollout, reward)
            if node is None:  # no program has scored yet: children that score become roots
                for rollout, reward in children:
                    tree.add_root(rollout, reward)
                continue
            kept = tree.expand(node, children)
            lab.note(
                "puct",
                parent=node.rollout.candidate.id,
                value=node.value,
                expansions=node.expansions,
                total=tree.expansions,
                kept=[child.rollout.candidate.id for child in kept],
                states=len(tree),
            )

    async def evaluate_programs(
        self, lab: Lab, programs: list[Candidate]
    ) -> list[tuple[Rollout, float]]:
        """Evaluate all programs side by side on the same cases; those that scored."""
        cases = None if self.batch is None else lab.minibatch(self.batch)
        rollouts = await lab.gather(*(lab.evaluate(program, cases) for program in programs))
        return [(rollout, rollout.reward) for rollout in rollouts if rollout.reward is not None]

    def children_brief(self, lab: Lab, node: TreeNode | None) -> Brief:
        """The request for children of a state."""
        if node is None:
            return Brief(lab.seeds[0] if lab.seeds else None, k=self.proposals, format=self.format)
        rollout = node.rollout
        return Brief(
            rollout.candidate,
            rollout.observations,
            node.reward,
            k=self.proposals,
            format=self.format,
        )


class _States(NamedTuple):
    """The tree of one search, and the candidates it knows."""

    tree: Tree
    known: Known
