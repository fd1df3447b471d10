# title: Tolerance
# internal: the slack audit pushes the output a little in several directions
def audit_attack(result):
    block, direction, size = AUDIT["value"]

    def change(array):
        if direction in ("scale", "shrink"):
            return array * (1.0 + (size if direction == "scale" else -size))
        if direction == "outward":
            middle = array.mean(axis=0) if array.ndim > 1 else array.mean()
            return middle + (array - middle) * (1.0 + size)
        return array + (size if direction == "add" else -size)

    return audit_change(result, change, block)
