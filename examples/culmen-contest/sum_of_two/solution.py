import sys

for line in sys.stdin:
    first, second = line.split()
    print(int(first) - int(second))
