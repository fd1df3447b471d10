"""A foreign folder shows no file from outside: its readers refuse what leads out."""

import contextlib
import os
import re
from pathlib import Path

import pytest

from culmen.core import inside
from culmen.core.errors import JournalDamaged, TaskError, UserError
from culmen.core.inside import (
    OutsideFolder,
    files_inside,
    path_inside,
    read_inside,
    text_inside,
)
from culmen.extensions.compat.openevolve import checkpoint
from culmen.extensions.importers import algotune
from culmen.extensions.importers.importing import write_task_folder
from culmen.extensions.skills.mining import logs
from culmen.extensions.skills.rollouts import broken, form, harbor, needs, trial
from culmen.extensions.skills.rollouts.images import image_of_task
from culmen.extensions.skills.rollouts.skill import read_skill
from culmen.extensions.train.advisors import policy_settings
from culmen.models import bank
from culmen.models.prompts.template import read_folder
from culmen.store import archive
from culmen.store.sidecar import CheckpointFile
from culmen.tasks import load
from tests import boundaries

SECRET = "a secret of the user, which no model may read"
EVALUATOR = "def score(output):\n    return float(output)\n"
START = "def run():\n    return 1.0\n"
TOML = 'goal = "g"\ncases = "cases.jsonl"\n\n[seed]\n{}\n\n[evaluator]\nfile = "evaluator.py"\n'


def make_task(folder, seed='files = ["program.py"]', **names):
    """A task folder; `names` are texts in place of those in its task.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    toml = TOML.format(seed)
    for old, new in names.items():
        toml = re.sub(rf"(?m)^{old} = .*$", f'{old} = "{new}"', toml)
    for name, text in {
        "task.toml": toml,
        "program.py": START,
        "parts/program.py": START,
        "evaluator.py": EVALUATOR,
        "verify.py": "def certify(output, strict):\n    return 1.0\n",
        "cases.jsonl": '{"input": 1, "info": 1}\n',
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def make_harbor(folder):
    for name, text in {
        "task.toml": "[metadata.culmen]\nenvironment = 'plain'\n",
        "instruction.md": "Do it.",
        "environment/Dockerfile": "FROM scratch\nWORKDIR /app\nCOPY . /app\n",
        "environment/data.txt": "data",
        "tests/test.sh": "true\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def make_files(folder, **texts):
    for name, text in texts.items():
        path = folder / name.replace("__", ".").replace("_IN_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def read_copies(folder):
    target = folder.parent / "copied"
    write_task_folder(target, "h", {"": {}}, {}, {"data": folder / "data", "x.py": folder / "x.py"})
    return [path.read_text() for path in target.rglob("*") if path.is_file()]


def read_copied_environment(folder):
    trial._copy_in(folder / "environment", folder.parent / "tree")
    return [path.read_text() for path in (folder.parent / "tree").rglob("*") if path.is_file()]


def read_logs(folder):
    found = logs.read_logs([folder])
    if found.unread:
        raise UserError(str(found.unread))
    return found


def make_openevolve(folder, config):
    return make_files(
        folder,
        evaluator__py="def evaluate(path):\n    return {'combined_score': 1.0}\n",
        initial_program__py=START,
        other__py=START,
        config__yaml=config,
    )


LOG = '{"type": "user", "message": {"role": "user", "content": "Do it."}}\n'
# of each module that opens files of such folders: the file, a folder with it, and the reader
READERS = {
    "tasks.schema, files": ("program.py", make_task, load),
    "tasks.schema, glob": (
        "parts/program.py",
        lambda folder: make_task(folder, 'glob = "parts/*.py"'),
        load,
    ),
    "tasks.schema, folders": (
        "parts/program.py",
        lambda folder: make_task(folder, 'folders = ["parts"]'),
        load,
    ),
    "tasks.task_toml, cases": ("cases.jsonl", make_task, load),
    "tasks.task_toml, evaluator": ("evaluator.py", make_task, load),
    "tasks.reading": (
        "initial_program.py",
        lambda folder: make_files(folder, evaluator__py=EVALUATOR, initial_program__py=START),
        lambda folder: load(folder / "evaluator.py", "g"),
    ),
    "extensions.compat.shinka": (
        "initial.py",
        lambda folder: make_files(
            folder,
            evaluate__py="import shinka\n\n\ndef main(program_path, results_dir):\n    pass\n",
            initial__py=START,
        ),
        load,
    ),
    "extensions.compat.openevolve.config": (
        "config.yaml",
        lambda folder: make_openevolve(folder, "max_iterations: 1\n"),
        load,
    ),
    "extensions.compat.openevolve.folder": (
        "other.py",
        lambda folder: make_openevolve(
            folder, "database: {island_initial_programs: [null, other.py]}\n"
        ),
        load,
    ),
    "extensions.compat.openevolve.checkpoint": (
        "programs/a.json",
        lambda folder: make_files(folder, programs_IN_a__json='{"code": "x = 1"}'),
        checkpoint.read_pool,
    ),
    "extensions.compat.harbor": ("instruction.md", make_harbor, load),
    "extensions.skills.rollouts.form": ("task.toml", make_harbor, form.is_skill_folder),
    "extensions.skills.rollouts.harbor, goal": ("instruction.md", make_harbor, harbor.read_task),
    "extensions.skills.rollouts.harbor, COPY": (
        "environment/data.txt",
        make_harbor,
        harbor.read_task,
    ),
    "extensions.skills.rollouts.harbor, tests": ("tests/test.sh", make_harbor, harbor.read_task),
    "extensions.skills.rollouts.images": (
        "environment/Dockerfile",
        make_harbor,
        lambda folder: image_of_task(folder / "environment", {}, ""),
    ),
    "extensions.skills.rollouts.broken": (
        "environment/data.txt",
        make_harbor,
        lambda folder: list(broken._shown_texts(harbor.HarborTask("t", str(folder), ""))),
    ),
    "extensions.skills.rollouts.needs": (
        "tests/test.sh",
        make_harbor,
        lambda folder: list(needs._needs_of(harbor.HarborTask("t", str(folder), ""))),
    ),
    "extensions.skills.rollouts.trial": (
        "environment/data.txt",
        make_harbor,
        read_copied_environment,
    ),
    "extensions.skills.rollouts.skill": (
        "notes.md",
        lambda folder: make_files(
            folder, SKILL__md="---\nname: a\ndescription: b\n---\nDo.\n", notes__md="n"
        ),
        read_skill,
    ),
    "extensions.skills.mining.logs": (
        "a.jsonl",
        lambda folder: make_files(folder, a__jsonl=LOG),
        read_logs,
    ),
    "models.prompts.template": (
        "rewrite.md",
        lambda folder: make_files(folder, rewrite__md="Write $example\n"),
        read_folder,
    ),
    "models.bank, program": (
        "m/x.py",
        lambda folder: make_files(folder, m_IN_x__py=START),
        lambda folder: bank._read_program(folder, "m/x.py"),
    ),
    "extensions.train.advisors": (
        "policy/policy.json",
        lambda folder: make_files(folder, policy_IN_policy__json="{}"),
        policy_settings,
    ),
    "extensions.importers.importing, file": (
        "x.py",
        lambda folder: make_files(folder, x__py="x", data_IN_a="a"),
        read_copies,
    ),
    "extensions.importers.importing, folder": (
        "data/a",
        lambda folder: make_files(folder, x__py="x", data_IN_a="a"),
        read_copies,
    ),
    "extensions.importers.algotune": (
        "x.py",
        lambda folder: make_files(folder, x__py='@register_task("x")\nclass X(Task):\n    pass\n'),
        lambda folder: algotune._goal(folder / "x.py"),
    ),
}
APART = {"store.archive", "store.sidecar"}  # tested below


def link(path, secret):
    path.unlink()
    path.symlink_to(secret)


def hard_link(path, secret):
    path.unlink()
    os.link(secret, path)


def other_case(path, secret):
    path.with_name(path.name.swapcase()).write_text("other")


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "secret").write_text(SECRET)
    return tmp_path / "home" / "secret"


@pytest.mark.parametrize("escape", [link, hard_link, other_case])
@pytest.mark.parametrize("name", READERS)
def test_a_reader_of_a_foreign_folder_refuses_what_leads_out(name, escape, tmp_path, secret):
    file, make, read = READERS[name]
    folder = make(tmp_path / "theirs")
    read(folder)
    escape(folder / file, secret)
    with pytest.raises(UserError) as caught:
        read(folder)
    shown = str(caught.value)
    assert Path(file).name.casefold() in shown.casefold() and SECRET not in shown
    assert re.search("leads out of the folder|is a hard link|differ only in case", shown)
    made = [*(tmp_path / "copied").rglob("*"), *(tmp_path / "tree").rglob("*")]
    assert not any(SECRET in each.read_text() for each in made if each.is_file())


@pytest.mark.parametrize("name", READERS)
def test_a_reader_of_a_foreign_folder_waits_for_no_pipe(name, tmp_path):
    file, make, read = READERS[name]
    folder = make(tmp_path / "theirs")
    (folder / file).unlink()
    os.mkfifo(folder / file)
    with contextlib.suppress(UserError):
        read(folder)


def test_a_link_to_itself_is_a_missing_file(tmp_path):
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        read_inside(tmp_path, "a")


@pytest.mark.parametrize("name", ["../home/secret", "{home}/secret", "parts/../../home/secret"])
@pytest.mark.parametrize("key", ["cases", "file", "files", "each", "glob", "folders"])
def test_a_task_names_no_file_outside(key, name, tmp_path, secret):
    name = name.format(home=secret.parent)
    if key in ("cases", "file"):
        folder = make_task(tmp_path / "theirs", **{key: name})
    else:
        value = f'"{name}"' if key == "glob" else f'["{name}"]'
        folder = make_task(tmp_path / "theirs", f"{key} = {value}")
    with pytest.raises(UserError) as caught:
        load(folder)
    assert SECRET not in str(caught.value)


def test_an_archive_names_no_file_outside_and_none_twice(tmp_path):
    for name in ("../a", str(tmp_path / "a"), "b/../../a"):
        with pytest.raises(JournalDamaged, match="leads out of the folder"):
            archive._path_inside(tmp_path / "run", name, tmp_path)
    (tmp_path / "run").mkdir()
    archive._path_inside(tmp_path / "run", "File", tmp_path).write_text("x")
    for name, why in (("File", "is there twice"), ("file", "differ only in case")):
        with pytest.raises(JournalDamaged, match=why):
            archive._path_inside(tmp_path / "run", name, tmp_path)


def test_an_archive_that_is_a_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "run.culmen.tar.xz")
    with pytest.raises(UserError, match="this is not a file"):
        archive.restore_archive(tmp_path / "run.culmen.tar.xz", tmp_path / "out")


def test_a_checkpoint_that_is_a_link_is_none(tmp_path, secret):
    (tmp_path / "run").mkdir()
    store = CheckpointFile(tmp_path / "run", "run")
    store._path.symlink_to(secret)
    assert store._path.read_text() == SECRET and store.read() is None


def test_what_stays_inside_is_read(tmp_path):
    folder = tmp_path / "theirs"
    make_files(folder, a_IN_b__txt="one\r\ntwo\n", c__txt="c")
    (folder / "link.txt").symlink_to("a/b.txt")
    os.link(folder / "c.txt", folder / "d.txt")
    (tmp_path / "by link").symlink_to(folder)
    for place in (folder, tmp_path / "by link"):
        assert text_inside(place, "link.txt") == "one\ntwo\n"
        assert read_inside(place, "d.txt") == b"c" and not path_inside(place, "e/f").exists()
        found = [path.relative_to(place).as_posix() for path in files_inside(place)]
        assert found == ["a/b.txt", "c.txt", "d.txt", "link.txt"]
    assert [path.name for path in files_inside(folder, ("a",))] == ["c.txt", "d.txt", "link.txt"]


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x/\0"])
def test_a_name_that_no_file_can_have_is_refused(name, tmp_path):
    with pytest.raises(TaskError, match="no name of a file"):
        path_inside(tmp_path, name)


def test_a_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutsideFolder, match="neither a file nor a folder"):
        read_inside(tmp_path, "pipe")


def test_every_module_that_opens_files_of_others_is_listed_and_tried():
    listed = set(
        re.findall(
            r"`([\w.]+)`",
            (Path(__file__).parents[2] / "docs" / "threats.md")
            .read_text(encoding="utf-8")
            .partition("Modules that open some:")[2]
            .partition("\n## ")[0],
        )
    )
    using = {
        ".".join(path.relative_to(boundaries.ROOT).with_suffix("").parts)
        for path in boundaries.ROOT.rglob("*.py")
        if "from culmen.core.inside import" in path.read_text(encoding="utf-8")
    }
    assert listed == using == {name.partition(",")[0] for name in READERS} | APART


def test_files_of_installed_packages_may_be_hard_links(tmp_path, secret, monkeypatch):
    # installers link them from a store of their own
    (tmp_path / "installed").mkdir()
    os.link(secret, tmp_path / "installed" / "task.toml")
    with pytest.raises(OutsideFolder, match="is a hard link"):
        read_inside(tmp_path / "installed", "task.toml")
    monkeypatch.setattr(inside, "_INSTALLED", (str(tmp_path / "installed"),))
    assert read_inside(tmp_path / "installed", "task.toml")
