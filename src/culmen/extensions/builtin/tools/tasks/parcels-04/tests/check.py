"""Prints how close prices are to those that were paid: 1 / (1 + 5 e) for a mean relative error e of at most 1."""

import sys
from pathlib import Path

path = Path(sys.argv[1])
try:
    found = [float(line) for line in path.read_text().split()] if not path.is_symlink() else []
except (OSError, ValueError):
    found = []
right = [float(line) for line in Path(__file__).with_name("expected.txt").read_text().split()]
if len(found) != len(right):
    print("there are not as many prices as parcels", file=sys.stderr)
    print(0)
else:
    error = sum(min(1, abs(one - other) / other) for one, other in zip(found, right)) / len(right)
    print(f"mean relative error {error:.3f}", file=sys.stderr)
    print(1 / (1 + 5 * error))
