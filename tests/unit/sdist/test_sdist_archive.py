"""Archives of projects, right and hostile: what is written lies inside, or nothing is built."""

import contextlib
import io
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hostile
from linkmaker import LEAVING, STAYING
from torchwheel.inspect import sdist as archive_
from torchwheel.inspect.sdist import unpack
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.inspect import budgets

KINDS = {
    "file": tarfile.REGTYPE,
    "folder": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
    "device": tarfile.CHRTYPE,
    "disk": tarfile.BLKTYPE,
    "pipe": tarfile.FIFOTYPE,
}


def tar(path: Path, *members: tuple[str, str, str], mode: int = 0o644) -> Path:
    """A tar of members (kind, name, content or what a link names)."""
    with tarfile.open(path, "w:gz") as archive:
        for kind, name, text in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = KINDS[kind], mode
            data = text.encode() if kind == "file" else b""
            info.size, info.linkname = len(data), "" if kind == "file" else text
            archive.addfile(info, io.BytesIO(data))
    return path


RIGHT = (("folder", "demo-1.0", ""), ("file", "demo-1.0/setup.py", "# setup"))


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "inner" / "target"
    folder.mkdir(parents=True)
    return folder


def test_a_right_archive_is_unpacked(tmp_path, target):
    links = (
        ("symlink", "demo-1.0/csrc/again.h", "../one.h"),
        ("hardlink", "demo-1.0/two.h", "demo-1.0/one.h"),
        ("file", "demo-1.0/one.h", "int one;"),
    )
    project = unpack(tar(tmp_path / "demo-1.0.tar.gz", *RIGHT, *links), target)
    assert project == target / "demo-1.0"
    for name in ("one.h", "two.h", "csrc/again.h"):
        path = project / name
        assert path.read_text() == "int one;"
        assert path.stat().st_nlink == 1
    assert str((project / "csrc/again.h").readlink()) == "../one.h"
    assert not (project / "two.h").is_symlink()


def test_a_symbolic_link_inside_stays_one(tmp_path, target):
    links = (("symlink", f"demo-1.0/{name}", text) for name, text in STAYING.items())
    file = ("file", "demo-1.0/csrc/deep/one.h", "int one;")
    project = unpack(tar(tmp_path / "demo-1.0.tar.gz", *links, file, *RIGHT), target)
    for name, text in STAYING.items():
        assert str((project / name).readlink()) == text
    assert (project / "headers/deep/one.h").read_text() == "int one;"
    assert (project / "csrc/round.py").read_text() == "# setup"


@pytest.mark.parametrize("case", LEAVING)
def test_a_symbolic_link_that_leads_out_is_refused(tmp_path, target, case):
    texts = {"folder": tmp_path, "name": "demo-1.0", "outside": "/outside"}
    links = [
        ("symlink", f"demo-1.0/{name}", text.format(**texts))
        for name, text in LEAVING[case].items()
    ]
    archive = tar(tmp_path / "demo-1.0.tar.gz", *RIGHT, *links)
    with pytest.raises(TorchwheelError, match=r"^demo-1\.0\.tar\.gz: member '.*' is a link to '"):
        unpack(archive, target)


def test_nothing_is_written_through_a_link(tmp_path, target):
    through = (("symlink", "demo-1.0/a", "b"), ("file", "demo-1.0/a/c", ""), *RIGHT)
    with pytest.raises(TorchwheelError, match=r'File exists: "demo-1\.0/a"'):
        unpack(tar(tmp_path / "demo-1.0.tar.gz", *through), target)


def test_hard_links_count_as_the_files_that_they_become(tmp_path, target, monkeypatch):
    monkeypatch.setattr(budgets, "UNPACKED_BYTES", 1 << 20)
    file = ("file", "demo/setup.py", "#" * (1 << 18))
    links = [("hardlink", f"demo/{number}", "demo/setup.py") for number in range(4)]
    unpack(tar(tmp_path / "demo.tar", file, *links[:3]), target)
    with pytest.raises(TorchwheelError, match="unpacks to more than 1048576 bytes"):
        unpack(tar(tmp_path / "bomb.tar", file, *links), target)


def test_of_its_mode_a_file_keeps_whether_it_can_be_run(tmp_path, target):
    archive = tar(tmp_path / "demo.tar.gz", ("file", "demo/setup.py", ""), mode=0o6777)
    made = unpack(archive, target) / "setup.py"
    assert stat.S_IMODE(made.stat().st_mode) == 0o755


def test_a_zip_is_unpacked_too(tmp_path, target):
    path = tmp_path / "demo-1.0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo-1.0/setup.py", "# setup")
    assert (unpack(path, target) / "setup.py").read_text() == "# setup"


@pytest.mark.parametrize(
    ("member", "says"),
    [
        (("file", "{absolute}/outside", ""), "leaves its folder"),
        (("file", "../outside", ""), "leaves its folder"),
        (("file", "demo-1.0/../../outside", ""), "leaves its folder"),
        (("symlink", "demo-1.0/passwd", "/etc/passwd"), "no file of the archive"),
        (("symlink", "demo-1.0/up", "../../../secret"), "no file of the archive"),
        (("symlink", "demo-1.0/folder", "../demo-1.0"), "no file of the archive"),
        (("symlink", "demo-1.0/empty", ""), "no file of the archive"),
        (("symlink", "demo-1.0/" + "x" * 300, "setup.py"), "is too deep or too long"),
        (("hardlink", "demo-1.0/passwd", "/etc/passwd"), "no file of the archive"),
        (("hardlink", "demo-1.0/up", "../secret"), "no file of the archive"),
        (("symlink", "../up", "demo-1.0/setup.py"), "leaves its folder"),
        (("device", "demo-1.0/null", ""), "is a special file"),
        (("disk", "demo-1.0/sda", ""), "is a special file"),
        (("pipe", "demo-1.0/pipe", ""), "is a special file"),
        (("file", "demo-1.0/setup.py", "other"), "is there twice"),
        (("file", "demo-1.0/./setup.py", "other"), "is there twice"),
        (("file", "demo-1.0/setup.py/more", ""), "setup.py"),
    ],
)
def test_a_hostile_member_is_refused_and_nothing_lies_outside(tmp_path, target, member, says):
    kind, name, text = member
    named = (kind, name.format(absolute=tmp_path), text)
    archive = tar(tmp_path / "demo-1.0.tar.gz", *RIGHT, named)
    with pytest.raises(TorchwheelError, match=says) as refused:
        unpack(archive, target)
    assert "\n" not in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo-1.0.tar.gz", "inner"]
    assert [path.name for path in target.parent.iterdir()] == ["target"]


@pytest.mark.parametrize("name", ["/abs.py", "../up.py", "demo/../../up.py"])
def test_a_hostile_zip_is_refused(tmp_path, target, name):
    path = tmp_path / "demo.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo/setup.py", "")
        archive.writestr(name, "")
    with pytest.raises(TorchwheelError, match=r"absolute name|leads out"):
        unpack(path, target)


def test_a_bomb_is_refused_before_it_goes_off(tmp_path, target, monkeypatch):
    monkeypatch.setattr(budgets, "RATIO_FROM", 1 << 16)
    zeros = ("file", "demo/zeros", "\0" * (4 << 20))
    with pytest.raises(TorchwheelError, match="more than 200 times"):
        unpack(tar(tmp_path / "demo.tar.gz", zeros), target)
    monkeypatch.setattr(budgets, "UNPACKED_BYTES", 1 << 20)
    with pytest.raises(TorchwheelError, match="more than 1048576 bytes"):
        unpack(tmp_path / "demo.tar.gz", target)
    assert not list(target.iterdir())


@pytest.mark.parametrize("bend", [lambda d: d[:-20], lambda d: d[: len(d) // 2], lambda _: b"no"])
def test_a_bent_archive_is_one_line(tmp_path, target, bend):
    archive = tar(
        tmp_path / "demo.tar.gz", *RIGHT, ("file", "demo-1.0/noise", str(os.urandom(999)))
    )
    archive.write_bytes(bend(archive.read_bytes()))
    with pytest.raises(TorchwheelError, match=r"demo\.tar\.gz: not a whole tar archive"):
        unpack(archive, target)


@pytest.mark.parametrize(
    "members",
    [(), (("file", "demo/readme", ""),), (*RIGHT, ("file", "other/setup.py", ""))],
)
def test_what_is_no_project_is_a_wrong_call(tmp_path, target, members):
    with pytest.raises(UsageError, match=r"one folder with pyproject\.toml or setup\.py expected"):
        unpack(tar(tmp_path / "demo.tar.gz", *members), target)


NAMES = st.lists(
    st.sampled_from(["..", ".", "", "a", "b", "setup.py", "nul\0", "\udcff", "x" * 300]),
    min_size=1,
    max_size=4,
).map("/".join)
MEMBERS = st.lists(st.tuples(st.sampled_from(list(KINDS)), NAMES, NAMES), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(members=MEMBERS)
def test_whatever_an_archive_holds_nothing_is_written_outside(tmp_path_factory, members):
    place = tmp_path_factory.mktemp("place")
    (place / "target").mkdir()
    archive = place / "demo.tar"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as made:
        for kind, name, text in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = KINDS[kind], text
            info.size = 3 if kind == "file" else 0
            made.addfile(info, io.BytesIO(b"abc"))
    taken = False
    with contextlib.suppress(TorchwheelError):
        archive_.unpack(archive, place / "target")
        taken = True
    assert sorted(path.name for path in place.iterdir()) == ["demo.tar", "target"]
    for path in (place / "target").rglob("*"):
        assert path.is_symlink() or path.is_file() or path.is_dir()
        if taken and path.is_symlink():
            real = os.path.realpath(path)
            assert real.startswith(os.path.realpath(place / "target"))


@pytest.mark.parametrize("name", ["two\nlines", "a\x1b[2Jb", "x" * 250, "a\u202eb"])
def test_what_an_archive_holds_is_told_in_one_line(tmp_path, target, name):
    path = tar(
        tmp_path / "demo-1.0.tar.gz", ("file", f"{name}/one.h", "x"), ("file", "b/two.h", "x")
    )
    with pytest.raises(UsageError, match="found ") as caught:
        unpack(path, target)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_what_tarfile_says_in_lines_is_told_in_one(tmp_path, target):
    path = tmp_path / "demo-1.0.tar.gz"
    path.write_bytes(b"no archive at all" * 100)
    with pytest.raises(TorchwheelError, match="not a whole tar archive: ") as caught:
        unpack(path, target)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_a_long_name_that_asks_for_much_memory_is_one_line(tmp_path):
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 4 << 30
    archive = tmp_path / "demo-1.0.tar"
    archive.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
    script = (
        "import resource, sys; from pathlib import Path;"
        "from torchwheel.inspect.sdist import unpack;"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30));"
        "unpack(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, archive, tmp_path],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1].endswith(
        "TorchwheelError: demo-1.0.tar: a header in it asks for too much memory"
    )


@pytest.mark.parametrize("name", hostile.SDISTS)
def test_a_small_archive_that_asks_for_much_is_one_line(tmp_path, target, name, monkeypatch):
    monkeypatch.setattr(budgets, "MEMBERS", 1000)
    path = tmp_path / "demo-1.0.tar.gz"
    path.write_bytes(hostile.sdist(name))
    with pytest.raises(TorchwheelError, match=hostile.SDISTS[name][1]) as caught:
        unpack(path, target)
    assert str(caught.value).isprintable()
    assert not list(target.iterdir())


def test_an_archive_that_takes_long_is_one_line(tmp_path, target, monkeypatch):
    monkeypatch.setattr(budgets, "INSPECT_SECONDS", -1)
    with pytest.raises(TorchwheelError, match="more than -1 s of processor time to unpack"):
        unpack(tar(tmp_path / "demo-1.0.tar.gz", *RIGHT), target)


def test_xz_takes_the_memory_that_its_author_likes(tmp_path, target):
    with pytest.raises(UsageError, match=r"expected \.tar\.gz or \.zip, found \.xz"):
        unpack(tmp_path / "demo-1.0.tar.xz", target)
