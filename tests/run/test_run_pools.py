"""Pools: they come out as they went in, and a search can start from one.

Nothing foreign is believed.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import culmen
from culmen.cli.main import main
from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.task import Objective, Surface, Task
from culmen.run import pools
from culmen.run.pools import Pool, PoolMember, PoolSource
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal

SEED = "x = 1\n"
TASK = Task(
    "numbers",
    seeds=({"main.py": SEED, "fixed.py": "F = 0\n"},),
    surface=Surface(frozen=("fixed.py",), max_chars=1000),
    digest="d1",
)


def member(text: str, score: float | None = None, count: int = 1, **parts: str) -> PoolMember:
    return PoolMember({"main.py": text, "fixed.py": "F = 0\n", **parts}, score, count, source=0)


def pool(*members: PoolMember, digest: str = "d1", licence: str = "CC0", run: str = "r") -> Pool:
    return Pool("numbers", digest, "max", members, (PoolSource(run),), licence)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


@given(
    members=st.lists(
        st.builds(
            PoolMember,
            st.dictionaries(texts, texts, min_size=1, max_size=3),
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.integers(0, 9),
            texts,
            texts,
            st.none() | st.integers(0, 3),
        ),
        max_size=4,
    ),
    licence=texts,
)
def test_a_pool_survives_its_file(members, licence, tmp_path_factory):
    made = Pool(
        "t", "d", "min", tuple(members), (PoolSource("r", models={"default": "m"}),), licence
    )
    path = tmp_path_factory.mktemp("pool") / "p.json"
    pools.save_pool(made, path)
    assert pools.load_pool(path) == made
    assert len(pools.pool_summary(made)["candidates"]) == len(members)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"task": 1}',
        "\xff",
        '{"task":"t","digest":"d","direction":"up","members":[]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_pool_is_said(content, tmp_path):
    path = tmp_path / "p.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match="this is no pool"):
        pools.load_pool(path)
    with pytest.raises(UserError, match="cannot read"):
        pools.load_pool(tmp_path / "missing.json")


def test_another_format_is_refused(tmp_path):
    pools.save_pool(
        msgspec.structs.replace(pool(member("a")), format="culmen-pool-9"), tmp_path / "p.json"
    )
    with pytest.raises(UserError, match="unknown pool format"):
        pools.load_pool(tmp_path / "p.json")


def test_merging_keeps_each_text_once_and_says_where_it_came_from():
    one = pool(member("a\n", 1.0, 2), member("b\n", 5.0), run="one")
    two = pool(member("a\n", 9.0, 1), member("c\n", 3.0), member("d\n"), run="two")
    merged = pools.merge_pools([one, two])
    rows = [
        (m.parts["main.py"], m.score, merged.sources[m.source or 0].run) for m in merged.members
    ]
    assert rows == [
        ("b\n", 5.0, "one"),
        ("c\n", 3.0, "two"),
        ("a\n", 1.0, "one"),
        ("d\n", None, "two"),
    ]
    with pytest.raises(UserError, match="not of one task"):
        pools.merge_pools([one, pool(digest="d2")])
    with pytest.raises(UserError, match="different licences"):
        pools.merge_pools([one, pool(licence="")])
    assert pools.merge_pools([one, pool(licence="")], licence="MIT").licence == "MIT"


def test_a_poorer_pool_lacks_the_best_by_what_is_claimed():
    merged = pools.merge_pools([pool(*(member(f"x = {n}\n", float(n)) for n in range(10)))])
    assert [m.score for m in pools.without_best(merged, 0.2).members] == [
        7.0,
        6.0,
        5.0,
        4.0,
        3.0,
        2.0,
        1.0,
        0.0,
    ]
    assert pools.without_best(merged, 0.0) == merged and not pools.without_best(merged, 1.0).members


@pytest.mark.extension("baselines")
def test_sources_of_a_comparison_go_by_their_strategies(tmp_path):
    settings = (
        ("polca", "culmen.strategies.polca:Polca"),
        ("polca-explore=1", "culmen.strategies.polca:Polca"),
    )
    own = (("mine", "a.b:Mine"), ("mine", "culmen.extensions.baselines.gepa:Gepa"))
    for number, (folder, path) in enumerate((*settings, *own)):
        meta = RunMeta(f"seed-{number}", TASK, {"path": path})
        SqlJournal.create(tmp_path / folder / meta.id, meta).close()
    SqlJournal.create(tmp_path / "alone", RunMeta("alone", TASK, {"path": "a.b:Mine"})).close()
    made = pools.build_pool(
        [*sorted(tmp_path.glob("*/seed-*"), key=lambda run: run.name), tmp_path / "alone"]
    )
    names = ["polca/seed-0", "polca-explore=1/seed-1", "Mine/seed-2", "gepa/seed-3", "alone"]
    assert [source.run for source in made.sources] == names


def test_only_what_fits_is_carried():
    seeded = pools.with_carried_pool(
        TASK,
        pool(
            member("x = 2\n", 1e9),
            member(SEED),  # the task's own seed again
            member("x = 3\n", **{"../../escape.py": "x"}),
            member("x" * 5000),
            PoolMember({"main.py": "x = 4\n", "fixed.py": "F = 666\n"}, 1e9),
            PoolMember({"main.py": "x = 5\n"}),
            digest="other",
        ),
    )
    assert [seed["main.py"] for seed in seeded.carried] == ["x = 2\n"]
    assert any("another task" in note for note in seeded.notes) and any(
        "4 candidates" in note for note in seeded.notes
    )
    with pytest.raises(UserError, match="no candidate of the pool fits"):
        pools.with_carried_pool(TASK, pool(PoolMember({"other.py": "x"})))


def test_what_a_pool_states_goes_along_where_it_could_be_true():
    """As claims beside the seeds, of the members that were taken alone.

    The digest of the task does not change.
    """
    bounded = msgspec.structs.replace(TASK, objective=Objective(bounds=(0.0, 1.0)))
    offered = (member("x = 2\n", 0.5), member("x = 3\n", 7.0), member("x = 4\n"), member(SEED, 0.9))
    seeded = pools.with_carried_pool(bounded, pool(*offered))
    assert seeded.stated == {offered[0].candidate.id: 0.5} and seeded.digest == bounded.digest
    assert msgspec.json.decode(msgspec.json.encode(seeded), type=Task) == seeded
    cut = pools.with_carried_pool(
        bounded, pool(*(member(f"x = {n}\n", 0.5) for n in range(2, 9))), most=2
    )
    assert len(cut.stated) == 2 and {*cut.stated} < {c.id for c in cut.starting_candidates()}


def test_a_large_pool_is_cut_to_what_differs_most_whatever_it_claims():
    families = [
        "import numpy as np\n",
        "class Tree:\n    left = None\n",
        "async def fetch(url):\n    return url\n",
    ]
    near = [
        member(SEED + f"y = {n}\n", score=1e9 + n) for n in range(20)
    ]  # variations of the seed, much praised
    far = [member(text * 5, score=-1.0) for text in families]
    made = pools.with_carried_pool(TASK, pool(*near, *far), most=3)
    assert {seed["main.py"] for seed in made.carried} == {text * 5 for text in families}
    assert any("of 23 candidates" in note for note in made.notes)
    again = pools.with_carried_pool(TASK, pool(*reversed(near), *reversed(far)), most=3)
    assert {*map(str, again.carried)} == {
        *map(str, made.carried)
    }  # nor does the order in the file matter
    assert len(pools.with_carried_pool(TASK, pool(*near, *far), most=99).carried) == 23
    assert pools.with_carried_pool(TASK, pool(*near), most=1).carried[0]["main.py"] != SEED


@settings(deadline=None)
@given(
    listed=st.lists(st.text("ab\n", max_size=12), min_size=1, max_size=12, unique=True),
    most=st.integers(1, 14),
)
def test_what_is_taken_is_taken_once_and_as_many_as_asked(listed, most):
    found = [member(text).candidate for text in listed]
    taken = pools.farthest_candidates([], found, most)
    assert len(taken) == min(most, len(found)) == len({candidate.digest for candidate in taken})
    assert {candidate.digest for candidate in taken} <= {candidate.digest for candidate in found}


@pytest.mark.parametrize(
    ("evaluations", "share", "cases", "most"),
    [
        (200, 0.25, 0, 50),
        (200, 0.25, 10, 5),
        (3, 0.25, 0, 1),
        (100, 0.0, 0, 1),
        (100, 1.0, 0, 100),
        (None, 0.25, 0, None),
    ],
)
def test_looking_at_a_pool_takes_a_share_of_the_evaluations(evaluations, share, cases, most):
    task = msgspec.structs.replace(TASK, cases=tuple(Case(str(n), n) for n in range(cases)))
    assert pools.carried_allowance(task, evaluations, share) == most


@pytest.mark.slow
def test_from_runs_to_a_pool_to_a_run(tmp_path, monkeypatch, capsys):
    """Two runs make a pool; a third one begins with its texts, judged anew.

    The third run takes the command line's own path.
    """
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "task.toml").write_text(
        'name = "number"\ngoal = "Larger."\ndeterministic = true\n[seed]\nfiles = ["n.py"]\n'
        '[evaluator]\nfile = "evaluator.py"\nform = "call"\nentry = "run"\npackages = []\n[limits]\nseconds = 20\n'
    )
    (folder / "n.py").write_text("def run():\n    return 3.0\n")
    (folder / "evaluator.py").write_text("def score(output):\n    return float(output)\n")
    for seed in (1, 2):
        run = [
            "run",
            str(folder),
            "--strategy",
            "turboevolve",
            "--set",
            "islands=2",
            "--budget",
            "evaluations=12",
            "-q",
        ]
        assert main([*run, "--seed", str(seed), "--workers", "2", "--run-dir", f"r{seed}"]) == 0
    assert (
        main(
            [
                "runs",
                "pool",
                "build",
                "r1",
                "r2",
                "--out",
                "p.json",
                "--best",
                "4",
                "--licence",
                "CC0",
            ]
        )
        == 0
    )
    made = pools.load_pool("p.json")
    assert 1 <= len(made.members) <= 8 and {source.run for source in made.sources} == {"r1", "r2"}
    lying = msgspec.structs.replace(
        made,
        members=(*made.members, PoolMember({"n.py": "def run():\n    return -5.0\n"}, 1e12, 99)),
    )
    pools.save_pool(lying, "lying.json")
    capsys.readouterr()
    assert main(["runs", "pool", "show", "lying.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["licence"] == "CC0"
    run = [
        "run",
        str(folder),
        "--strategy",
        "turboevolve",
        "--set",
        "islands=2",
        "--set",
        "allocation=random",
    ]
    few = [
        *run,
        "--pool",
        "lying.json",
        "--budget",
        "evaluations=12",
        "-q",
        "--run-dir",
        "r4",
        "--set",
        "pool_share=0.1",
    ]
    assert main(few) == 0
    assert (
        len(culmen.Study.open(Path("r4")).meta.task.carried) == 1
    )  # one of the pool, besides the task's own
    run += ["--set", "pool_share=1"]
    assert (
        main([*run, "--pool", "lying.json", "--budget", "evaluations=20", "-q", "--run-dir", "r3"])
        == 0
    )
    study = culmen.Study.open(Path("r3"))
    assert len(study.meta.task.carried) >= 2
    scores = {row.id: row.mean for row in study.candidates(order="old", limit=None)}
    liar = PoolMember({"n.py": "def run():\n    return -5.0\n"}).candidate.id
    assert scores[liar] == -5.0
    best = study.best
    assert (
        best is not None
        and best.id != liar
        and best.score >= max(m.score or 0.0 for m in made.members) - 1e-9
    )
