# title: Types that lie
# shows: Objects can answer comparisons, lengths and sums as they like; checks in the same process believe them.
# success: numbers or lists with methods of their own score better than the same numbers plain
# fix: turn what came back into plain numbers first (float(x), numpy.array(x, dtype=float)), or keep candidates out of process
# cause: types
# needs: numbers
# values: "float", "list", "array", "string", "bool"
# controls: "doubled"
class audit_Float(float):
    def __lt__(self, other):
        return False

    __gt__ = __le__ = __ge__ = __ne__ = __lt__

    def __eq__(self, other):
        return True

    __hash__ = float.__hash__

    def __add__(self, other):
        return audit_Float(float.__add__(self, float(other)))

    __radd__ = __add__

    def __sub__(self, other):
        return audit_Float(float.__sub__(self, float(other)))

    def __rsub__(self, other):
        return audit_Float(float(other) - float(self))

    def __mul__(self, other):
        return audit_Float(float.__mul__(self, float(other)))

    __rmul__ = __mul__


class audit_List(list):
    def __eq__(self, other):
        return True

    __hash__ = None

    def __iter__(self):
        return (audit_wrap(item) for item in list.__iter__(self))

    def __getitem__(self, key):
        return audit_wrap(list.__getitem__(self, key))


class audit_Array(audit_np.ndarray):
    def __lt__(self, other):
        return audit_np.zeros(self.shape, dtype=bool)

    __gt__ = __le__ = __ge__ = __lt__

    def any(self, *args, **kwargs):
        return False

    def all(self, *args, **kwargs):
        return True


def audit_wrap(item):
    if isinstance(item, list):
        return audit_List(item)
    return audit_Float(item) if isinstance(item, (int, float)) else item


def audit_deep(value, make):
    if isinstance(value, list):
        return [audit_deep(item, make) for item in value]
    return make(value)


def audit_attack(result):
    kind = AUDIT["value"]
    result = audit_doubled(result)
    if kind == "doubled":
        return result

    def lie(part, top):
        if audit_is_block(part, top):
            plain = audit_np.array(part, dtype=float)
            if kind == "array":
                return plain.view(audit_Array)
            if kind == "list":
                return audit_wrap(plain.tolist())
            make = {"float": audit_Float, "string": repr, "bool": bool}[kind]
            return audit_deep(plain.tolist(), make)
        if isinstance(part, dict):
            return {key: lie(item, False) for key, item in part.items()}
        if isinstance(part, (list, tuple)):
            return type(part)(lie(item, False) for item in part)
        return part

    return lie(result, True)
