#!/usr/bin/env bash
# math-verify 0.9.0 (latex2sympy2_extended 1.11.0, sympy 1.14.0)
# Outside LaTeX a number with an exponent is read up to its e, a time up to its colon, a date up to its
# year, a complex number up to its sign: such numbers count as equal if those beginnings are, and one
# written as Python prints it is not equal to itself written out.
. "$(dirname "$0")/environment.sh"
in_environment math-verify==0.9.0 latex2sympy2_extended==1.11.0 sympy==1.14.0 <<'PYTHON'
from math_verify import parse, verify


def agree(gold, answer):
    return verify(parse(gold), parse(answer))


equal = [(str(1.5e20), str(1.5e-7)), ("12:30", "12:45"), ("2024-01-05", "2024-02-05"), ("3+4i", "3-4i"), ("1 1/2", "1 1/3"), ("1, 2, 3", "4, 5, 3")]
for gold, answer in equal:
    print(f"{gold} and {answer}:", agree(gold, answer))
    assert agree(gold, answer)
different = [("150000000000000000000", str(1.5e20)), ("-5", "- 5"), ("$1500$", "$1.5e3$")]
for gold, answer in different:
    print(f"{gold} and {answer}:", agree(gold, answer))
    assert not agree(gold, answer)
assert agree("$1500$", r"$1.5 \times 10^3$") and not agree(r"$1.5 \times 10^3$", r"$1.5 \times 10^5$")
PYTHON
