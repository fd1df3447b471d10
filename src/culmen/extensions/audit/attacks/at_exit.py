# title: Output at exit
# shows: What a program registers for its exit runs after the evaluator has finished in the same process.
# success: the score is the number that the exit handler printed
# fix: do not import candidates: write score(output) (form = call), or let culmen run evaluate(path) through its proxy
# cause: stdout
# needs: python
import atexit as audit_atexit


def audit_attack(result):
    line = {"score": AUDIT["forged"], "combined_score": AUDIT["forged"], "correct": True}
    audit_atexit.register(lambda: print(audit_json.dumps(line), flush=True))  # after what is printed until then
    return result
