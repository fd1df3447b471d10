# expect: ok bad_output exception
# not: shared
import numpy

class LyingArray(numpy.ndarray):
    def __eq__(self, other):
        return True

    def sum(self, *args, **kwargs):
        return 100.0

    def __array__(self, *args, **kwargs):
        return numpy.full(3, 100.0)

def run(**target):
    return numpy.zeros(3).view(LyingArray)
