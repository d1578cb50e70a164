"""What an author has to commit after `torchwheel adopt`, wherever the project lies."""

import ast
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import torchwheel.scaffold
from foreign_project import write_foreign_project
from torchwheel.cli import main
from torchwheel.evidence.policy import CALLER
from torchwheel.matrix.load import load
from torchwheel.scaffold.adopt import PLACEHOLDER

COMMIT = f"owner/torchwheel@{'0123456789' * 4}"
OURS = {CALLER, "matrix.yaml", "noxfile.py", "yanked.yaml", ".gitignore"}


def git(folder, *arguments):
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    allowed = ("-c", "protocol.file.allow=always")
    command = ["git", *own, *allowed, "-C", str(folder), *arguments]
    subprocess.run(command, check=True, capture_output=True)


def commit(folder):
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "a")


@pytest.fixture
def foreign(tmp_path):
    return write_foreign_project(tmp_path / "top" / "foreign")


def files_in(folder):
    paths = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


def adopted(capsys, folder, *arguments):
    """What `torchwheel adopt` says, and its lines by their first word."""
    assert main(["adopt", str(folder), *arguments]) == 0
    said = capsys.readouterr().out
    return said, dict(re.findall(r"^(\S+) +(.*)$", said, re.MULTILINE))


def test_an_author_commits_few_lines_and_nothing_binary(foreign, capsys, monkeypatch):
    before = files_in(foreign)
    said, _ = adopted(capsys, foreign, "--workflows", COMMIT)
    written = {path: text for path, text in files_in(foreign).items() if before.get(path) != text}
    assert set(written) == OURS
    assert sum(text.count("\n") for text in written.values()) <= 250
    assert f"uses: {COMMIT.replace('@', '/.github/workflows/project.yml@')}\n" in written[CALLER]
    assert said.endswith(f"Next:\n  cd {foreign}\n  torchwheel matrix\n")
    monkeypatch.chdir(foreign)
    said, _ = adopted(capsys, Path(), "--workflows", COMMIT)
    assert said.endswith("Next:\n  torchwheel matrix\n")
    workflows = load(foreign / "matrix.yaml").evidence.workflows
    assert workflows.release == ".github/workflows/project.yml"
    assert adopted(capsys, foreign, "--workflows", COMMIT)[0].count("unchanged") == 4


def test_one_sentence_says_which_line_is_to_be_set(foreign, capsys):
    said, _ = adopted(capsys, foreign)
    text = (foreign / CALLER).read_text()
    owner, _, commit = PLACEHOLDER.partition("@")
    assert [line for line in text.splitlines() if owner in line or commit in line] == [
        f"    uses: {owner}/.github/workflows/project.yml@{commit}"
    ]
    (line,) = [line for line in said.splitlines() if PLACEHOLDER in line]
    assert f"in the line `uses:` of {foreign / CALLER}" in line


@pytest.mark.parametrize("text", ["owner/torchwheel@main", "torchwheel", "a/b@v1", "a/b@0123", "@"])
def test_workflows_are_named_by_their_commit(foreign, capsys, text):
    assert main(["adopt", str(foreign), "--workflows", text]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--workflows: expected OWNER/NAME@COMMIT with 40 hexadecimal digits" in line
    assert not (foreign / "matrix.yaml").exists()


RELEASE = ".github/workflows/release.yml"


@pytest.mark.parametrize(
    ("on", "starts"),
    [
        ('{push: {tags: ["v*"], branches: [main]}}', True),
        ("{push: {branches: [main], tags: [nightly]}, schedule: ['v*']}", False),
        ('\n  push:\n    tags: ["v*"]', True),
        ("\n  push:\n    tags:\n      - 'v[0-9]+.[0-9]+'\n      - '*rc*'", True),
        ("\n  push:\n    tags: '**'", True),
        ("\n  push:\n    tags: [nightly-*]\n    branches: [v2]", False),
        ("\n  push:\n    branches: [main]", False),
    ],
)
def test_an_own_release_and_noxfile_stay(foreign, capsys, on, starts):
    (foreign / RELEASE).parent.mkdir(parents=True)
    for name, text in (("noxfile.py", "mine\n"), (RELEASE, f"on: {on}\n")):
        (foreign / name).write_text(text)
    _, rows = adopted(capsys, foreign)
    assert (foreign / "noxfile.py").read_text() == "mine\n"
    assert rows["noxfile.py"] == "is yours and stays; `torchwheel` itself does without it"
    assert (foreign / RELEASE).read_text() == f"on: {on}\n"
    assert ("release.yml" in rows) == starts
    adopted(capsys, foreign, "--replace", "noxfile.py")
    assert "torchwheel" in (foreign / "noxfile.py").read_text()


def test_a_project_in_a_subfolder_has_its_files_at_the_top(foreign, capsys):
    """A forge reads no workflow in a subfolder."""
    commit(foreign.parent)
    before = files_in(foreign)
    _, rows = adopted(capsys, foreign)
    assert rows["folder"] == "foreign of its repository, whose top gets the files"
    assert files_in(foreign) == before
    assert set(files_in(foreign.parent)) >= OURS
    assert load(foreign.parent / "matrix.yaml").project.source == "foreign"


def test_the_next_command_is_one_for_a_shell(tmp_path, capsys):
    foreign = write_foreign_project(tmp_path / "my $op's folder")
    said, _ = adopted(capsys, foreign)
    assert f"Next:\n  cd {shlex.quote(str(foreign))}\n" in said


def test_what_git_does_not_know_is_no_part_of_a_repository(foreign, capsys):
    git(foreign.parent, "init", "--quiet")
    _, rows = adopted(capsys, foreign)
    assert "folder" not in rows
    assert set(files_in(foreign)) >= OURS


def test_submodules_and_versions_of_tags_are_said(foreign, tmp_path, capsys):
    inner = tmp_path / "cutlass"
    inner.mkdir()
    (inner / "cute.h").touch()
    commit(inner)
    text = (foreign / "setup.py").read_text().replace("setup(", "setup(use_scm_version=True, ", 1)
    (foreign / "setup.py").write_text(text)
    git(foreign, "init", "--quiet")
    git(foreign, "submodule", "add", "--quiet", inner, "csrc/cutlass")
    commit(foreign)
    git(foreign, "tag", "v0.4.0")
    _, rows = adopted(capsys, foreign)
    assert "submodules" not in rows
    assert rows["version"] == "of git's tags, now 0.4.0; builds get it by a PKG-INFO"
    git(foreign, "submodule", "deinit", "--force", "--all")
    _, rows = adopted(capsys, foreign)
    assert rows["submodules"].startswith("no files of csrc/cutlass; `git submodule update --init")


def test_the_workflow_is_one_that_a_forge_takes(foreign, capsys):
    adopted(capsys, foreign)
    document = yaml.safe_load((foreign / CALLER).read_text())
    assert document["permissions"] == {}
    assert [set(job) for job in document["jobs"].values()] == [
        {"name", "permissions", "uses", "with"}
    ]


def test_vendored_files_are_installed_in_an_environment_of_their_own(foreign, capsys):
    """nox by its hash brings its own packaging: the user's environment keeps its."""
    said, _ = adopted(capsys, foreign, "--vendor")
    commands = [line.strip() for line in said.partition("Next:\n")[2].splitlines()]
    assert commands[1:] == [
        "python -m venv .nox/nox",
        ".nox/nox/bin/pip install --require-hashes -r .github/actions/nox/requirements.txt",
        ".nox/nox/bin/nox -s matrix",
    ]
    assert (foreign / ".torchwheel" / "requirements.txt").is_file()
    assert not (foreign / CALLER).exists()


TEMPLATES = Path(torchwheel.scaffold.__file__).parent / "templates"
NOXFILES = (
    TEMPLATES / "caller/noxfile.py.in",
    TEMPLATES / "shared/noxfile.py.in",
    Path(__file__).parents[3] / "noxfile.py",
)


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_exit_status_of_a_wrong_call_comes_through_nox(tmp_path, status):
    program = tmp_path / "torchwheel"
    program.write_text("#!/bin/sh\nexit $2\n")
    program.chmod(0o755)
    shutil.copyfile(NOXFILES[0], tmp_path / "noxfile.py")
    if not (nox := shutil.which("nox")):
        pytest.skip("no nox on PATH")
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    call = [nox, "-s", "matrix", "--", str(status)]
    done = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert done.returncode == status


def test_every_noxfile_keeps_that_status():
    """The other two install torchwheel, which takes a network."""
    trees = [ast.walk(ast.parse(path.read_text())) for path in NOXFILES]
    handlers = [
        [ast.unparse(node.handlers[0]) for node in tree if isinstance(node, ast.Try)]
        for tree in trees
    ]
    assert handlers == [handlers[0]] * 3
    assert len(handlers[0]) == 1
