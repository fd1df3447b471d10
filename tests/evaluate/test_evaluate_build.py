"""Compiled programs: built once a candidate, in the jail; a failed build is a value."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import Status
from culmen.evaluate.local import LocalBackend, require_compiler
from culmen.models.offline import source
from culmen.models.offline.tools import vary_candidate
from culmen.tasks import write_new
from culmen.tasks.languages import LANGUAGES
from culmen.tasks.loading import load

needs_gcc = pytest.mark.skipif(not shutil.which("gcc", path="/usr/bin"), reason="needs gcc")


async def evaluate_all(task, texts, times=1):
    backend = LocalBackend(task, 2, None)
    await backend.start()
    try:
        part = next(iter(task.seeds[0]))
        candidates = [Candidate.of({part: text}) for text in texts]
        return await asyncio.gather(
            *(backend.evaluate(each, None, n) for each in candidates for n in range(times))
        )
    finally:
        await backend.close()


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_new_task_in_each_language_scores(tmp_path, language):
    if not shutil.which(LANGUAGES[language].build[0], path="/usr/local/bin:/usr/bin"):
        pytest.skip("no compiler")
    write_new(tmp_path / "task", language=language)
    task = load(tmp_path / "task")
    (seen,) = asyncio.run(evaluate_all(task, [LANGUAGES[language].program]))
    assert seen.status is Status.OK, seen.feedback
    assert seen.score == pytest.approx(-1.4205, abs=1e-3)
    assert task.surface.language == language


def test_a_candidate_is_built_once_for_all_its_evaluations(tmp_path):
    write_new(tmp_path / "task", language="c")
    toml = tmp_path / "task" / "task.toml"
    made = LANGUAGES["c"]
    lines = toml.read_text().splitlines()
    stamp = """build = ["sh", "-c", "date +%N | sed 's/^/0./; s/$/ 1/' > point"]"""
    lines = [stamp if line.startswith("build") else line for line in lines]
    lines = ['command = ["cat", "point"]' if line.startswith("command") else line for line in lines]
    toml.write_text("\n".join(lines))
    seen = asyncio.run(
        evaluate_all(load(tmp_path / "task"), [made.program, made.program + "// 2"], times=3)
    )
    assert all(each.ok for each in seen)
    assert len({each.score for each in seen[:3]}) == len({each.score for each in seen[3:]}) == 1
    assert seen[0].score != seen[3].score


@needs_gcc
def test_an_error_of_the_compiler_is_the_feedback(tmp_path):
    write_new(tmp_path / "task", language="c")
    broken = "int main(void) { return nothing; }\n"
    (seen,) = asyncio.run(evaluate_all(load(tmp_path / "task"), [broken]))
    assert (seen.status, seen.reason) == (Status.ERROR, "build")
    assert seen.feedback.startswith("program.c: In function")
    assert "program.c:1" in seen.last_words
    assert "undeclared" in seen.last_words


@needs_gcc
def test_a_program_gets_no_more_than_its_limits(tmp_path):
    write_new(tmp_path / "task", language="c")
    toml = tmp_path / "task" / "task.toml"
    toml.write_text(toml.read_text().replace("seconds = 5 ", "seconds = 1\noutput_kb = 4 "))
    endless = "int main(void) { for (;;) {} }\n"
    wordy = '#include <stdio.h>\nint main(void) { for (int i = 0; i < 9999; i++) puts("a"); }\n'
    first, second = asyncio.run(evaluate_all(load(tmp_path / "task"), [endless, wordy]))
    assert first.status is Status.TIMEOUT
    assert (second.status, second.reason) == (Status.REJECTED, "output_limit")


def test_a_compiler_that_is_missing_is_named_with_its_package(tmp_path, monkeypatch):
    write_new(tmp_path / "task", language="go")
    task = load(tmp_path / "task")
    monkeypatch.setattr("culmen.evaluate.local.SEARCH_PATH", str(tmp_path))
    with pytest.raises(TaskError, match=r"(?s)'go'.*apt install golang-go"):
        require_compiler(task, ("namespaces",))
    require_compiler(task, ("container",))


def test_mistakes_are_told(tmp_path):
    with pytest.raises(UserError, match=r"(?s)'fortran'.*javascript"):
        write_new(tmp_path / "a", language="fortran")
    write_new(tmp_path / "b", language="c")
    toml = tmp_path / "b" / "task.toml"
    toml.write_text(toml.read_text().replace("{program.c}", "{other.c}"))
    with pytest.raises(TaskError, match=r"no part is called 'other\.c'"):
        load(tmp_path / "b")


CODE = """\
#include <vector>
// 1 + 2 < 3
int main() { const char *s = "4 + 5"; double x = 1.5f; int n = a[10] + 0x1F; x *= 2.0; return n < 3; }
"""


def test_numbers_and_operators_are_found_in_code_alone():
    found = [CODE[slice(*span)] for span in source.numeral_spans(CODE, ".cpp")]
    assert found == ["1.5", "10", "2.0", "3"]
    rust = "let a: [f64; 3] = [1.0, 2.5e-3, 7f64]; for i in 0..20 { t.0 += 1_usize; let c = 'x'; f::<'a>(4) }"
    found = [rust[slice(*span)] for span in source.numeral_spans(rust, ".rs")]
    assert found == ["3", "1.0", "2.5e-3", "7", "0", "20", "1", "4"]
    changed = [CODE[slice(*span)] for span, _ in source.operator_changes("x = a + b;\n", ".c")]
    assert len(changed) == 1
    assert not list(source.operator_changes('s = "a" + b;\nvector<int> v; int *p;\n', ".cpp"))


@pytest.mark.parametrize("language", sorted(LANGUAGES))
@pytest.mark.parametrize("operator", ["numbers", "operators", "lines", "crossover"])
def test_edits_keep_texts_comments_and_pairs_of_brackets(language, operator):
    made = LANGUAGES[language]
    parent = Candidate.of({made.file: made.program})
    mate = Candidate.of({made.file: made.program.replace("100", "300")})
    suffix, changed = Path(made.file).suffix, set()
    for seed in range(20):
        edits = vary_candidate(
            (parent, mate), {"weights": {operator: 1.0}, "count": 1}, Random(seed)
        )
        for parts in edits.parts:
            text = parts[made.file]
            changed.add(text)
            assert source.has_balanced_brackets(text, suffix)
            if language != "javascript" and operator in ("numbers", "operators"):
                assert "%.9f %.9f" in text or "{:.9} {:.9}" in text
    assert changed
