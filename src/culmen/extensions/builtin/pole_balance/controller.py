"""Pushes the cart towards the side to which the pole leans."""


# EVOLVE-BLOCK-START
def act(state):
    position, speed, angle, spin = state
    return 6.0 if angle > 0 else -6.0
# EVOLVE-BLOCK-END
