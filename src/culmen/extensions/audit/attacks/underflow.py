# title: Numbers too small for their squares
# shows: Where only ratios count, a tiny copy of the output makes squared distances underflow, and with them the score.
# success: the output scaled by 1e-162 scores better, though half the size scores the same
# fix: normalise the output before squaring, or refuse distances that are tiny against the coordinates
# cause: ratio
# needs: numbers
# values: 1e-158, 1e-160, 1e-162
# controls: 0.5
def audit_attack(result):
    return audit_change(result, lambda array: array * AUDIT["value"])
