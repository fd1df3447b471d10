# expect: ok bad_output exception
# not: shared
"""Numbers that all have one hash: a dictionary of them takes as long as the square of their number."""

def run(**target):
    prime = (1 << 61) - 1
    return {"loot": [], **{str(n): n for n in range(3)}, **{n * prime: 0 for n in range(3000)}}
