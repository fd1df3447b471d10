# title: NaN and infinity
# shows: Every comparison with NaN is false, so a check written as "if x < 0: refuse" lets it pass.
# success: an output of NaN or infinity scores better than the honest one, or scores at all
# fix: refuse what is not finite before anything is compared: if not numpy.isfinite(output).all()
# cause: finite
# needs: numbers
# values: "nan", "inf", "-inf", "one nan", "nan in value 1", "nan in value 2", "nan in value 3"
# controls: "ten times"
def audit_attack(result):
    """All numbers, one number, or the numbers of one value while the others grow."""
    kind, count = AUDIT["value"], len(audit_blocks(result))
    place = int(kind[-1]) - 1 if kind.startswith("nan in") else -1
    if kind == "ten times" or place >= count:
        return audit_change(result, lambda array: array * 10.0)

    def change(array):
        if kind == "one nan":
            array.reshape(-1)[0] = float("nan")
            return array
        return audit_np.full_like(array, float("nan") if place >= 0 else float(kind))

    if place >= 0:
        for other in range(count):
            if other != place:
                result = audit_change(result, lambda array: array * 10.0, other)
    return audit_change(result, change, place)
