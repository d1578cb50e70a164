"""Files are read once and laid out so that a build goes by what they hold, not by their times."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.jit.content import SourceFiles, read_sources, write_sources


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "a.cu").write_bytes(b"a")
    (folder / "kernels" / "a.h").write_bytes(b"h")
    (folder / "notes.txt").write_bytes(b"no part of it")
    return folder


def test_what_globs_name_is_read_with_paths_below_the_folder(project):
    content = read_sources(project, ["kernels/*.cu", "**/*.h", "kernels/a.*"])
    assert content == SourceFiles(project, {"kernels/a.cu": b"a", "kernels/a.h": b"h"})


def test_a_glob_that_names_no_file_is_a_mistake(project):
    with pytest.raises(UsageError, match=r"project: no file matches 'kernels/\*\.hip'"):
        read_sources(project, ["kernels/*.hip"])


def test_a_file_that_cannot_be_read_is_one_line(project, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(TorchwheelError, match=r"^\S*a\.cu: Permission denied$"):
        read_sources(project, ["kernels/*.cu"])


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


NAMES = st.sampled_from(["a", "a/b", "a/b/c", "b", "b/c", "d"])
TREES = st.dictionaries(NAMES, st.binary(max_size=3), max_size=4).filter(
    lambda files: not any(f"{one}/" in other for one in files for other in files)
)


@given(st.lists(TREES, min_size=1, max_size=4))
def test_after_any_content_only_the_last_is_there(tmp_path_factory, trees):
    folder = tmp_path_factory.mktemp("laid-out")
    for files in trees:
        write_sources(SourceFiles(Path("/project"), files), folder)
        assert tree(folder) == files


def test_a_file_that_is_the_same_keeps_its_time_and_an_older_version_gets_a_new_one(tmp_path):
    def times():
        return {name: (tmp_path / name).stat().st_mtime_ns for name in ("same", "changed")}

    write_sources(SourceFiles(Path("/v2"), {"same": b"1", "changed": b"2"}), tmp_path)
    for name in ("same", "changed"):
        os.utime(tmp_path / name, (1, 1))
    write_sources(SourceFiles(Path("/v1"), {"same": b"1", "changed": b"1"}), tmp_path)
    assert times()["same"] == 1_000_000_000
    assert times()["changed"] > 1_000_000_000


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    write_sources(SourceFiles(Path("/project"), {"a": b"1"}), folder)
    assert tree(folder) == {"a": b"1"}
    assert (outside / "file").exists()
