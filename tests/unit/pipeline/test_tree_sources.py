"""The files of a checkout are listed, and nothing that its configuration names is started.

A link that leads out of the folder is refused by every reader of its files.
"""

import hashlib
import os
import socket
import struct
from pathlib import Path

import pytest

from gitmaker import git as run_git
from gitmaker import repository
from linkmaker import KEY, LEAVING, STAYING, plant
from torchwheel.pipeline import git
from torchwheel.pipeline.bundled import build_pure
from torchwheel.pipeline.sources import copy_files, source_digest, source_files, stage
from torchwheel_runtime.errors import TorchwheelError, UsageError

ROOT = Path(__file__).parents[3]
PROGRAMS = """
[core]
    fsmonitor = {program}
    hooksPath = {hooks}
    sshCommand = {program}
    pager = {program}
    editor = {program}
[filter "planted"]
    clean = {program}
    process = {program}
[diff]
    external = {program}
[extensions]
    partialClone = origin
[remote "origin"]
    url = ext::{program} %S
    uploadpack = {program}
    promisor = true
[protocol "ext"]
    allow = always
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose configuration starts a program wherever git lets it."""
    folder = tmp_path / "checkout"
    (folder / "csrc").mkdir(parents=True)
    for name in ("setup.py", "csrc/one.cu"):
        (folder / name).write_text("text")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / ".gitattributes").write_text("* filter=planted diff=planted\n")

    run_git(folder, "init", "--quiet")
    run_git(folder, "add", "--all")
    (folder / "new.py").write_text("not added yet")
    (folder / "build.log").write_text("ignored")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for program in (tmp_path / "program", hooks / "post-index-change", hooks / "pre-commit"):
        program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\ncat\n")
        program.chmod(0o755)
    with (folder / ".git/config").open("a") as config:
        config.write(PROGRAMS.format(program=tmp_path / "program", hooks=hooks))
    return folder


@pytest.mark.parametrize("tracked", [False, True])
def test_listing_a_checkout_starts_no_program_of_its_configuration(checkout, tracked):
    names = {
        path.relative_to(checkout).as_posix() for path in source_files(checkout, tracked=tracked)
    }
    expected = {".gitattributes", ".gitignore", "setup.py", "csrc/one.cu"}
    assert names == (expected if tracked else expected | {"new.py"})
    assert not (checkout.parent / "started").exists()


def test_staging_a_checkout_starts_none_either(checkout, tmp_path):
    stage(checkout, tmp_path / "copy")
    assert (tmp_path / "copy/csrc/one.cu").read_text() == "text"
    assert not (checkout.parent / "started").exists()


def excludes_file(checkout):
    run_git(checkout, "config", "core.excludesFile", checkout / "pipe")
    return checkout / "pipe"


def gitignore_of_a_folder(checkout):
    return checkout / "csrc/.gitignore"


@pytest.mark.parametrize("place", [excludes_file, gitignore_of_a_folder])
def test_a_pipe_that_git_waits_for_is_one_line(checkout, place, monkeypatch):
    os.mkfifo(place(checkout))
    monkeypatch.setattr(git, "_GIT_SECONDS", 1)
    with pytest.raises(TorchwheelError) as error:
        source_files(checkout)
    assert str(error.value) == (
        f"{checkout}: git ls-files: expected an answer in 1 s, found none; look for a pipe or a "
        "slow disk among .gitignore and the files that .git/config names"
    )
    assert source_files(checkout, tracked=True)


def test_the_users_own_file_of_patterns_hides_files(checkout):
    patterns = checkout.parent / "patterns"
    patterns.write_text("new.*\n")
    run_git(checkout, "config", "core.excludesFile", patterns)
    assert checkout / "new.py" not in source_files(checkout)


def test_without_git_hidden_folders_are_sources_but_for_those_of_tools(tmp_path):
    for name in (".torchwheel/build_backend.py", ".git/config", "csrc/.venv/a.py", "dist/a.whl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    assert source_files(tmp_path) == [tmp_path / ".torchwheel" / "build_backend.py"]


@pytest.fixture(params=["checkout", "folder"])
def project(request, tmp_path):
    """The folder of a project, with git and without."""
    if request.param == "checkout":
        return request.getfixturevalue("checkout")
    return tmp_path / "folder"


@pytest.mark.parametrize("case", LEAVING)
def test_a_link_that_leads_out_is_refused_by_its_name(project, tmp_path, case):
    text = plant(project, LEAVING[case])
    bad = "b.h" if case == "a chain" else next(iter(LEAVING[case]))
    readers = (
        source_files,
        source_digest,
        lambda folder: stage(folder, tmp_path / "copy"),
        lambda folder: build_pure(folder, tmp_path / "out", tmp_path / "log"),
    )
    for read in readers:
        with pytest.raises(UsageError) as refused:
            read(project)
        found = str(refused.value)
        assert found.endswith(f"expected a link that stays in {project}, {found.split(', ', 1)[1]}")
        if case != "a chain":  # both of its links lead out
            assert found == (
                f"{project / bad}: expected a link that stays in {project}, found one to {text}; "
                "replace it by the file"
            )
    assert not (tmp_path / "copy").exists()


def test_a_link_inside_stays_a_link(project, tmp_path):
    plant(project, STAYING)
    stage(project, tmp_path / "copy")
    for name, text in STAYING.items():
        assert str((tmp_path / "copy" / name).readlink()) == text
    assert (tmp_path / "copy/chain.py").read_text() == "text"


def test_a_link_in_the_place_of_a_tools_folder_is_no_source(checkout, tmp_path):
    before = source_files(checkout)
    for name in (".venv", ".nox", "dist"):  # `.venv/` of .gitignore would ignore folders alone
        (checkout / name).symlink_to(tmp_path)
    assert source_files(checkout) == before
    (checkout / "src").mkdir()
    (checkout / "src" / "dist").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="src/dist: expected a link that stays"):
        source_files(checkout)


def test_a_folder_that_is_reached_through_a_link_is_no_matter(project, tmp_path):
    plant(project, STAYING)
    (tmp_path / "linked").symlink_to(project)
    stage(tmp_path / "linked", tmp_path / "copy")
    assert (tmp_path / "copy/chain.py").read_text() == "text"
    assert source_digest(tmp_path / "linked") == source_digest(project)


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("where", ["/etc", "../outside", "csrc"])
def test_a_file_that_git_lists_behind_a_link_is_the_link(checkout, tmp_path, where, tracked):
    plant(checkout, {})
    (checkout / "sub").mkdir()
    for name in ("passwd", "key", "one.cu"):
        (checkout / "sub" / name).write_text("own")
    run_git(checkout, "-c", "filter.planted.process=", "-c", "filter.planted.clean=", "add", "sub")
    for path in (checkout / "sub").iterdir():
        path.unlink()
    (checkout / "sub").rmdir()
    (checkout / "sub").symlink_to(where)
    if where == "csrc":
        stage(checkout, tmp_path / "copy", tracked=tracked)
        assert str((tmp_path / "copy/sub").readlink()) == "csrc"
    else:
        with pytest.raises(UsageError, match=f"/sub: expected a link .* found one to {where};"):
            stage(checkout, tmp_path / "copy", tracked=tracked)


@pytest.mark.parametrize("name", ["../outside/key", "{outside}/key", "csrc/../../outside/key"])
def test_a_forged_index_of_git_names_no_file_outside(checkout, name):
    plant(checkout, {})
    forged = name.format(outside=checkout.with_name("outside")).encode()
    numbers = struct.pack(">10I20xH", *([0] * 6), 0o100644, 0, 0, 0, len(forged))
    entry = numbers + forged
    content = b"DIRC" + struct.pack(">II", 2, 1) + entry + bytes(8 - len(entry) % 8)
    (checkout / ".git/index").write_bytes(content + hashlib.sha1(content).digest())  # noqa: S324 - git's
    with pytest.raises(UsageError, match="expected the names of its own files, found "):
        source_digest(checkout)


def test_a_link_counts_by_what_it_names(project):
    plant(project, {"again.py": "setup.py"})
    before = source_digest(project)
    (project / "setup.py").chmod(0o600)
    assert source_digest(project) == before
    (project / "again.py").unlink()
    (project / "again.py").symlink_to("csrc/../setup.py")
    other = source_digest(project)
    (project / "again.py").unlink()
    (project / "again.py").write_text("text")
    assert len({before, other, source_digest(project)}) == 3


def test_without_links_the_digest_is_that_of_earlier_releases(tmp_path):
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/one.cu").write_text("text")
    (tmp_path / "setup.py").write_text("text")
    (tmp_path / "setup.py").chmod(0o755)
    assert (
        source_digest(tmp_path)
        == "cd7f0b6b4de9b6ea399e4725385dbef6a285ad638a9caa585c1e658e1a4257c9"
    )


def test_pipes_and_sockets_are_no_sources(project, tmp_path, monkeypatch):
    plant(project, {"to-pipe": "pipe"})
    os.mkfifo(project / "pipe")
    monkeypatch.chdir(project)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    stage(project, tmp_path / "copy")
    assert str((tmp_path / "copy/to-pipe").readlink()) == "pipe"
    assert not (tmp_path / "copy/pipe").exists()
    assert not (tmp_path / "copy/socket").exists()


def test_another_list_of_files_is_copied_by_the_same_rule(checkout, tmp_path):
    plant(checkout, STAYING)
    (checkout / "empty").mkdir()
    (checkout / "build.log").chmod(0o750)
    os.utime(checkout / "build.log", (1, 1))
    copy_files(checkout, tmp_path / "copy", checkout.rglob("*"))
    copied = (tmp_path / "copy/build.log").stat()
    assert (copied.st_mode & 0o777, copied.st_mtime) == (0o750, 1)
    assert (tmp_path / "copy/empty").is_dir()
    assert (tmp_path / "copy/.git/config").is_file()
    assert str((tmp_path / "copy/headers").readlink()) == "csrc"
    (checkout / "build.log").unlink()
    (checkout / "build.log").symlink_to("/proc/self/environ")
    with pytest.raises(UsageError, match=r"build\.log: expected a link that stays in "):
        copy_files(checkout, tmp_path / "other", checkout.rglob("*"))
    assert KEY not in "".join(p.read_text() for p in tmp_path.glob("other/*.log"))


def test_no_link_of_this_repository_leads_out_of_its_distribution():
    assert ROOT / "LICENSE" in source_files(ROOT)
    assert (ROOT / "pkg/torchwheel/LICENSE").read_text() == (ROOT / "LICENSE").read_text()


SCM = "from setuptools import setup\nsetup(name='demo', use_scm_version=True)\n"


@pytest.mark.parametrize(
    ("tags", "version"),
    [
        (["v0.4.0"], "0.4.0"),
        (["v1.0+cu12"], "1.0"),
        (["conv-1.0rc1"], "1.0rc1"),
        (["v0.4.0", "", ""], "0.4.1.dev2"),
        (["v1.0rc1", ""], "1.0rc2.dev1"),
        (["latest"], git.NO_TAG),
        ([""], git.NO_TAG),
    ],
)
def test_a_copy_without_git_knows_the_version_of_its_tags(tmp_path, tags, version):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "setup.py").write_text(SCM)
    repository(folder, *tags)
    first = source_digest(folder)
    copy = stage(folder, tmp_path / "copy")
    assert f"\nVersion: {version}\n" in (copy / "PKG-INFO").read_text()
    assert not (copy / ".git").exists()
    assert not (folder / "PKG-INFO").exists()
    # What has another version is another wheel.
    repository(folder, "", "v9")
    assert source_digest(folder) != first


@pytest.mark.parametrize("without", ["a tool", "git", "a version to give: an sdist"])
def test_other_projects_are_copied_as_they_are(tmp_path, without):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "setup.py").write_text(SCM if without != "a tool" else "setup(version='1')\n")
    if without.startswith("a version"):
        (folder / "PKG-INFO").write_text("Version: 3.0\n")
    if without != "git":
        repository(folder, "v1")
    copy = stage(folder, tmp_path / "copy")
    names = {path.name for path in folder.iterdir()} - {".git"}
    assert {path.name for path in copy.iterdir()} == names


def test_the_files_of_submodules_are_sources(tmp_path):
    inner, folder = tmp_path / "cutlass", tmp_path / "project"
    for one, name in ((inner, "cute.h"), (folder, "setup.py")):
        one.mkdir()
        (one / name).touch()
        repository(one, "")
    command = ("-c", "protocol.file.allow=always", "submodule", "--quiet")
    run_git(folder, *command, "add", inner, "csrc/cutlass")
    repository(folder, "")
    for tracked in (False, True):
        stage(folder, tmp_path / f"copy-{tracked}", tracked=tracked)
        assert (tmp_path / f"copy-{tracked}" / "csrc/cutlass/cute.h").is_file()
    assert git.empty_submodules(folder) == []
    run_git(folder, *command, "deinit", "--force", "--all")
    assert git.empty_submodules(folder) == ["csrc/cutlass"]
    (folder / "csrc/cutlass").rmdir()
    assert git.empty_submodules(folder) == ["csrc/cutlass"]


def test_a_project_in_a_subfolder_is_copied_with_what_lies_beside_it(tmp_path):
    tree = tmp_path / "tree"
    for name in ("hopper/setup.py", "csrc/a.h"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    copy = stage(tree / "hopper", tmp_path / "copy", tree=tree)
    assert copy == tmp_path / "copy" / "hopper"
    assert (copy / "../csrc/a.h").is_file()
    first = source_digest(tree / "hopper", tree=tree)
    (tree / "csrc/a.h").write_text("// changed")
    assert source_digest(tree / "hopper", tree=tree) != first
