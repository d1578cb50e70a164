"""What one reader takes for an archive: zipfile, which pip uses, finds the same in it."""

import contextlib
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchwheel.inspect.archive import Archive, open_archive
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.window import WheelError
from zipmaker import STORED, Entry, make_zip, zip64_extra

FILES = {"demo/__init__.py": b"answer = 42\n" * 50, "demo/b.bin": bytes(range(256)), "c": b""}
ENTRIES = [Entry(name, data) for name, data in FILES.items()]


def contents(archive: Archive) -> dict[str, bytes]:
    return {name: archive.read(member) for name, member in archive.members.items()}


def written(folder: Path, data: bytes) -> Path:
    path = folder / "demo.whl"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("comment", [b"", b"a1b2c3"])
def test_a_right_archive(tmp_path: Path, zip64: bool, comment: bytes) -> None:
    entries = [Entry("demo/", b"", STORED, mode=0o40755), *ENTRIES, Entry("d.txt", b"d", STORED)]
    with open_archive(written(tmp_path, make_zip(entries, zip64=zip64, comment=comment))) as found:
        assert contents(found) == {"demo/": b"", **FILES, "d.txt": b"d"}
        assert [member.name for member in found.files] == [*FILES, "d.txt"]
        assert found.starts_with(found.members["demo/__init__.py"], b"answer")
        assert not found.starts_with(found.members["c"], b"a")


def test_sizes_of_zip64_in_one_header_alone(tmp_path: Path) -> None:
    """As zipfile writes a member of unknown size."""
    path = tmp_path / "demo.whl"
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("a.txt", "w", force_zip64=True) as member:
            member.write(b"text")
        archive.mkdir("demo")
        archive.writestr("é.txt", b"name")
    with open_archive(path) as found:
        assert contents(found) == {"a.txt": b"text", "demo/": b"", "é.txt": b"name"}


def test_sizes_that_the_zip64_field_lacks(tmp_path: Path) -> None:
    bent = {"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF, "extra": zip64_extra(4)}
    path = written(tmp_path, make_zip([Entry("a", b"text", local=bent, central=bent)]))
    with pytest.raises(WheelError, match="its zip64 field is malformed"), open_archive(path):
        pass


def test_an_archive_is_a_file_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="no such file"), open_archive(tmp_path / "gone"):
        pass


@given(data=st.data())
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_accepted_zipfile_reads_the_same(tmp_path: Path, data: st.DataObject) -> None:
    bent = bytearray(make_zip(ENTRIES, zip64=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(bent) - 1))
        new = data.draw(st.binary(max_size=4))
        bent[at : at + data.draw(st.integers(0, 4))] = new
    path = written(tmp_path, bytes(bent))
    with contextlib.suppress(WheelError), open_archive(path) as found:
        ours = contents(found)
        with zipfile.ZipFile(path) as archive:
            assert ours == {info.orig_filename: archive.read(info) for info in archive.infolist()}


def test_folders_that_members_name_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "MEMBERS", 10)
    path = written(tmp_path, make_zip([Entry("a/b/c/d/e/f/g/h/i/j", b"")]))
    with open_archive(path) as found:
        assert len(found.files) == 1
    path = written(tmp_path, make_zip([Entry("a/b/c/d/e/f/g/h/i/j/k", b"")]))
    with pytest.raises(WheelError, match="more than 10 files and folders"), open_archive(path):
        pass
