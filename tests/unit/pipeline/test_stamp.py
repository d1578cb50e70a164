import dataclasses
import zipfile

import pytest

from torchwheel.inspect.wheel import read_wheel
from torchwheel.pipeline.repair import _metadata, pack, repack, stamp
from torchwheel_runtime.claims import LibraryFlags
from torchwheel_runtime.errors import TorchwheelError
from wheelmaker import stable

CLAIMS = stable(archs=("9.0+PTX",))
METADATA = """\
Metadata-Version: 2.4
Name: ext
Version: 1.2
Requires-Dist: torch>=2.6
Requires-Dist: torchvision
Requires-Dist: numpy

Version: 9 of the description, Requires-Dist: torch
"""


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "ext-1.2-py3-none-linux_x86_64.whl"
    members = {
        "ext/__init__.py": b"",
        "ext/a,b.txt": b"comma",
        "ext/_lib/x.so": b"\x7fELF",
        "ext-1.2.dist-info/METADATA": METADATA.encode(),
        "ext-1.2.dist-info/WHEEL": b"Generator: setuptools (1)\n"
        b"Root-Is-Purelib: false\nTag: py3-none-linux_x86_64\n",
    }
    pack(members, "ext-1.2.dist-info/RECORD", path)
    return path


def test_claims_enter_the_name_and_the_metadata(wheel, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    made = stamp(wheel, CLAIMS, out)
    assert made.name == "ext-1.2+cu130-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(made) as archive:
        text = archive.read("ext-1.2+cu130.dist-info/METADATA").decode()
        wheel_file = archive.read("ext-1.2+cu130.dist-info/WHEEL").decode().splitlines()
        assert "ext-1.2+cu130.dist-info/torchwheel.json" in archive.namelist()
        assert not any(name.startswith("ext-1.2.dist-info") for name in archive.namelist())
        assert archive.namelist()[-1] == "ext-1.2+cu130.dist-info/RECORD"
    head, _, body = text.partition("\n\n")
    assert "Version: 1.2+cu130" in head.splitlines()
    assert wheel_file[0].startswith("Generator: torchwheel (")
    assert wheel_file[1:] == ["Root-Is-Purelib: false", "Tag: py3-none-linux_x86_64"]
    requirements = [line for line in head.splitlines() if line.startswith("Requires-Dist")]
    assert requirements == [
        "Requires-Dist: torchvision",
        "Requires-Dist: numpy",
        "Requires-Dist: torch>=2.11",
    ]
    assert body == "Version: 9 of the description, Requires-Dist: torch\n"


def test_metadata_without_a_description_stays_one_block():
    head = _metadata(METADATA.partition("\n\n")[0] + "\n", "1.2+cu130", ">=2.11")
    assert head.endswith("\nRequires-Dist: torch>=2.11\n")
    assert "\n\n" not in head


def test_the_same_claims_give_the_same_bytes(wheel, tmp_path):
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(stamp(wheel, CLAIMS, tmp_path / name))
    assert made[0].read_bytes() == made[1].read_bytes()
    with zipfile.ZipFile(made[0]) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_wheel_that_claims_nothing_is_packed_the_same_way(wheel, tmp_path):
    other = tmp_path / "other" / wheel.name
    other.parent.mkdir()
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(other, "w") as target:
        for name in reversed(source.namelist()):
            data = source.read(name).replace(b"setuptools (1)", b"setuptools (2)")
            target.writestr(zipfile.ZipInfo(name, (2026, 11, 20, 1, 2, 4)), data)
    made = []
    for source_wheel in (wheel, other):
        out = tmp_path / f"out-{len(made)}"
        out.mkdir()
        made.append(repack(source_wheel, out))
        assert made[-1].name == wheel.name
        assert read_wheel(made[-1]).claims is None
    assert made[0].read_bytes() == made[1].read_bytes()


def test_a_local_version_of_the_project_is_refused_unless_it_is_claimed(wheel, tmp_path):
    renamed = wheel.rename(tmp_path / "ext-1.2+mine-py3-none-linux_x86_64.whl")
    with pytest.raises(TorchwheelError, match="has the local version 'mine' already"):
        stamp(renamed, CLAIMS, tmp_path)
    # That of an ordinary project comes before ours.
    (tmp_path / "out").mkdir()
    made = stamp(renamed, dataclasses.replace(CLAIMS, project_local="mine"), tmp_path / "out")
    assert made.name == "ext-1.2+mine.cu130-py3-none-linux_x86_64.whl"


def with_flags(wheel, text: bytes):
    """The same wheel as a build with flags leaves it."""
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    record = "ext-1.2.dist-info/RECORD"
    del members[record]
    pack({**members, "ext/_lib/x.so.flags.json": text}, record, wheel)


def test_the_flags_of_a_build_move_into_the_claims(wheel, tmp_path):
    with_flags(wheel, b'["cuda: --use_fast_math", "operator off: gemm"]')
    made = read_wheel(stamp(wheel, CLAIMS, tmp_path))
    assert "ext/_lib/x.so.flags.json" not in made.members
    assert made.claims is not None
    assert made.claims.flags == (
        LibraryFlags("ext/_lib/x.so", ("cuda: --use_fast_math", "operator off: gemm")),
    )


def test_malformed_flags_of_a_build_are_one_line(wheel, tmp_path):
    with_flags(wheel, b'["cuda: -x", 3]')
    with pytest.raises(TorchwheelError) as error:
        stamp(wheel, CLAIMS, tmp_path)
    assert str(error.value) == "ext/_lib/x.so.flags.json: [1]: expected text, found 3"
