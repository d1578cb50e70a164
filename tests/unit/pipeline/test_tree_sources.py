"""The files of a checkout are listed, and nothing that its configuration names is started."""

import os
import subprocess

import pytest

from torchwheel.errors import TorchwheelError
from torchwheel.pipeline import sources
from torchwheel.pipeline.sources import source_files, stage

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

    def git(*arguments):
        subprocess.run(["git", "-C", folder, *arguments], check=True)

    git("init", "--quiet")
    git("add", "--all")
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
    subprocess.run(
        ["git", "-C", checkout, "config", "core.excludesFile", checkout / "pipe"], check=True
    )
    return checkout / "pipe"


def gitignore_of_a_folder(checkout):
    return checkout / "csrc/.gitignore"


@pytest.mark.parametrize("place", [excludes_file, gitignore_of_a_folder])
def test_a_pipe_that_git_waits_for_is_one_line(checkout, place, monkeypatch):
    os.mkfifo(place(checkout))
    monkeypatch.setattr(sources, "_GIT_SECONDS", 1)
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
    subprocess.run(["git", "-C", checkout, "config", "core.excludesFile", patterns], check=True)
    assert checkout / "new.py" not in source_files(checkout)


def test_without_git_hidden_folders_are_sources_but_for_those_of_tools(tmp_path):
    for name in (".torchwheel/build_backend.py", ".git/config", "csrc/.venv/a.py", "dist/a.whl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    assert source_files(tmp_path) == [tmp_path / ".torchwheel" / "build_backend.py"]
