"""Scores an awk program by its length, if what it printed is exactly right."""


def score(output, case, parts):
    wanted = case.info.splitlines()
    found = output.splitlines()
    if output != case.info:
        wrong = next((i for i, (a, b) in enumerate(zip(wanted, found)) if a != b), min(len(wanted), len(found)))
        want = wanted[wrong] if wrong < len(wanted) else "nothing more"
        got = found[wrong] if wrong < len(found) else "nothing more"
        return {"score": None, "feedback": f"line {wrong + 1} of the output should be {want!r}, not {got!r}"}
    length = len(parts["report.awk"].encode())
    return {"score": length, "feedback": f"right, with {length} bytes"}
