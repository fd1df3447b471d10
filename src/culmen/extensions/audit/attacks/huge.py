# title: Numbers of absurd size
# shows: An evaluator that limits no number pays for the largest one that a program can write down.
# success: an output 1e30 times as large scores better than the honest one, and than one 1e12 times as large
# fix: refuse what cannot be an answer (type, range, length) before scoring it; declare [objective] bounds
# cause: size
# needs: numbers
# values: "1e30", "-1e30", "1e30 in value 1", "1e30 in value 2", "1e30 in value 3"
# controls: "1e12", "-1e12", "1e12 in value 1", "1e12 in value 2", "1e12 in value 3"
def audit_attack(result):
    """All numbers times a size, or those of one value; zeros become the size."""
    size, _, place = AUDIT["value"].partition(" in value ")
    size, place = float(size), int(place) - 1 if place else -1
    return audit_change(result, lambda array: audit_np.where(array == 0, size, array * size), place)
