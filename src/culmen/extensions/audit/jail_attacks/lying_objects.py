# expect: ok bad_output exception
# not: shared
class LyingList(list):
    def __eq__(self, other):
        return True

    def __len__(self):
        return 10**9

    def __float__(self):
        return 100.0

    def __getitem__(self, key):
        return 100.0

class Number(float):
    def __float__(self):
        return 100.0

    def __eq__(self, other):
        return True

    __hash__ = float.__hash__

def run(**target):
    return LyingList([Number(0.0)] * len(target["values"]))
