#!/usr/bin/env bash
# deap 1.4.4
# Minimised losses 0.5, NaN, 0.2, 0.9: a hall of fame of two keeps 0.2 and 0.9, so that 0.5 is lost. The two sorts
# of fronts differ on (1, 2), (NaN, 0), (2, 1), (3, 3): one puts the NaN before all, the other beside the first alone,
# and the archive of the front keeps the NaN only.
. "$(dirname "$0")/environment.sh"
in_environment deap==1.4.4 <<'PYTHON'
import math

from deap import base, creator, tools

creator.create("Loss", base.Fitness, weights=(-1.0,))
creator.create("Losses", base.Fitness, weights=(-1.0, -1.0))
creator.create("One", list, fitness=creator.Loss)
creator.create("Two", list, fitness=creator.Losses)


def population(kind, values):
    members = [kind([index]) for index in range(len(values))]
    for member, value in zip(members, values):
        member.fitness.values = value
    return members


fame = tools.HallOfFame(2)
fame.update(population(creator.One, [(0.5,), (math.nan,), (0.2,), (0.9,)]))
kept = [member.fitness.values[0] for member in fame]
print("hall of fame:", kept)
assert kept == [0.2, 0.9]
members = population(creator.Two, [(1, 2), (math.nan, 0), (2, 1), (3, 3)])
plain, fast = (
    [sorted(member[0] for member in front) for front in sort(members, 4)]
    for sort in (tools.sortNondominated, tools.sortLogNondominated)
)
archive = tools.ParetoFront()
archive.update(members)
print("fronts:", plain, fast, "archive:", [member[0] for member in archive])
assert plain == [[1], [0, 2], [3]] and fast == [[0, 1], [2], [3]]
assert [member[0] for member in archive] == [1]
PYTHON
