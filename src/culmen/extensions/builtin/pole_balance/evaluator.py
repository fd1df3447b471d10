"""Drives a controller through a simulated run: the simulator is here, the program sees one state at a time.

A cart of 1 kg carries a pole of 0.1 kg and half length 0.5 m (the usual equations of the cart and pole, explicit Euler
steps of 0.02 s). The start and the gusts are drawn from the evaluation's seed, so scores are noisy.
"""

import math
import random

STEPS, DT = 300, 0.02
GRAVITY, CART, POLE, HALF = 9.8, 1.0, 0.1, 0.5
FAR, STEEP, STRONGEST = 2.4, 0.25, 10.0
GUST = 0.4  # standard deviation of the angular acceleration by gusts, rad/s^2


def score(call, seed):
    rng = random.Random(seed)
    state = [rng.uniform(-0.5, 0.5), 0.0, rng.uniform(-0.1, 0.1), 0.0]
    gained = 0.0
    for step in range(STEPS):
        force = call(list(state))
        if type(force) not in (int, float) or not -math.inf < force < math.inf:
            return {"score": None, "feedback": f"step {step}: act() must return a finite number, not {force!r:.80}"}
        state = move(state, max(-STRONGEST, min(STRONGEST, force)), rng.gauss(0, GUST))
        if abs(state[0]) > FAR or abs(state[2]) > STEEP:
            why = "the cart ran too far" if abs(state[0]) > FAR else "the pole fell"
            return result(gained, step + 1, f"{why} after {step + 1} steps, at state {shown(state)}")
        gained += 1 - abs(state[0]) / FAR
    return result(gained, STEPS, f"the pole stood for all {STEPS} steps, at the end {shown(state)}")


def move(state, force, gust):
    x, v, angle, spin = state
    total = CART + POLE
    push = (force + POLE * HALF * spin**2 * math.sin(angle)) / total
    pull = GRAVITY * math.sin(angle) - math.cos(angle) * push
    turn = pull / (HALF * (4 / 3 - POLE * math.cos(angle) ** 2 / total)) + gust
    drive = push - POLE * HALF * turn * math.cos(angle) / total
    return [x + DT * v, v + DT * drive, angle + DT * spin, spin + DT * turn]


def result(gained, steps, feedback):
    return {"score": gained / STEPS, "metrics": {"steps": steps}, "feedback": feedback}


def shown(state):
    return "[" + ", ".join(f"{value:.3f}" for value in state) + "]"
