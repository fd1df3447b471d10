# title: Chosen randomness
# shows: A candidate that shares the evaluator's process sets the random numbers it will be tested with.
# success: the score depends on how the program left the random generators, and the best of many seeds beats the mean
# fix: draw from a generator of the evaluator's own: rng = numpy.random.default_rng(seed), made before the candidate runs
# cause: random
# needs: function
# values: 0, 1, 2, 3, 4, 5, 6, 7
# effect: random
import random as audit_random


def audit_attack(result):
    audit_random.seed(AUDIT["value"])
    audit_np.random.seed(AUDIT["value"])
    return result
