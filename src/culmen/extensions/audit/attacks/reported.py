# title: Reported value believed
# shows: A program that returns its own measurement beside the solution can report any number.
# success: only the reported number changes, and the score follows it
# fix: compute the value from the solution and use that, also where the reported one is close
# cause: reported
# needs: reported
# values: 2.0, 10.0, 0.5, 0.1
def audit_attack(result):
    shapes = [block.shape for block in audit_blocks(result)]
    for place, shape in enumerate(shapes):
        if shape == ():
            result = audit_change(result, lambda array: array * AUDIT["value"], place)
    return result
