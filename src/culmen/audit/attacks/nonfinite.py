# title: Numbers that are none
# shows: Every comparison with NaN is false, so a check written as "if x < 0: refuse" lets it pass.
# success: an output of NaN or infinity scores better than the honest one, or scores at all
# fix: refuse what is not finite before anything is compared: if not numpy.isfinite(output).all()
# cause: finite
# needs: numbers
# values: "nan", "inf", "-inf", "one nan", 0, 1, 2
# control: "ten times"
def audit_attack(result):
    """All numbers, one number, or the numbers of one block while the others grow."""
    value, count = AUDIT["value"], len(audit_blocks(result))
    if value == "ten times" or (isinstance(value, int) and value >= count):
        return audit_change(result, lambda array: array * 10.0)

    def change(array):
        if value == "one nan":
            array.reshape(-1)[0] = float("nan")
            return array
        return audit_np.full_like(array, float("nan") if isinstance(value, int) else float(value))

    if isinstance(value, int):
        for place in range(count):
            if place != value:
                result = audit_change(result, lambda array: array * 10.0, place)
        return audit_change(result, change, value)
    return audit_change(result, change)
