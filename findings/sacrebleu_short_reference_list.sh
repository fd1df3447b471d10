#!/usr/bin/env bash
# sacrebleu 2.6.0
# corpus_bleu, corpus_chrf and corpus_ter compare as many outputs as the list of references is long: an output
# beyond it does not count, and nothing is said. A list per output instead of a list per reference, as other
# libraries want it, so scores the first output alone: 100, though the second is wrong.
. "$(dirname "$0")/environment.sh"
in_environment sacrebleu==2.6.0 <<'PYTHON'
import sacrebleu

outputs = ["the cat sat on the mat", "a wholly different line of words"]
first, second = "the cat sat on the mat", "birds sing in the tall old trees"
seen = {
    "a list per reference": sacrebleu.corpus_bleu(outputs, [[first, second]]).score,
    "a list per output": sacrebleu.corpus_bleu(outputs, [[first], [second]]).score,
    "one reference for two outputs": sacrebleu.corpus_bleu(outputs, [[first]]).score,
    "the same by TER, where 0 is best": sacrebleu.corpus_ter(outputs, [[first]]).score,
}
for name, score in seen.items():
    print(f"{name}: {score:.1f}")
assert seen["a list per reference"] < 60
assert [round(score) for score in list(seen.values())[1:]] == [100, 100, 0]
PYTHON
