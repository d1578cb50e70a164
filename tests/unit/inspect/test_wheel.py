"""read_wheel: a right wheel gives its facts, a broken one a line that names the fact."""

import contextlib
import dataclasses
import stat
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates
from torchwheel.inspect.wheel import (
    OpenWheel,
    open_wheel,
    parse_file_name,
    read_bundled,
    read_wheel,
)
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.window import WheelError
from wheelmaker import PURE, make_wheel, metadata

INFO = "demo-1.0.0.dist-info"
ELF = b"\x7fELF and not much more"


def test_facts_of_a_right_wheel(tmp_path: Path) -> None:
    wheel = read_wheel(make_wheel(tmp_path))
    assert (wheel.name, wheel.version) == ("demo", Version("1.0.0"))
    assert (
        {str(tag) for tag in wheel.tags} == {"py3-none-any"} == {str(t) for t in wheel.wheel_tags}
    )
    assert [str(r) for r in wheel.metadata.requires_dist or []] == ["torch>=2.6"]
    assert wheel.metadata_bytes == metadata("demo", "1.0.0", ["torch>=2.6"])
    assert wheel.root_is_purelib
    assert wheel.claims == PURE
    assert "demo/__init__.py" in wheel.members
    assert wheel.size == wheel.path.stat().st_size


def test_a_wheel_without_claims_has_none(tmp_path: Path) -> None:
    assert read_wheel(make_wheel(tmp_path, claims=None)).claims is None


def broken(path: Path) -> str:
    with pytest.raises(WheelError) as caught:
        read_wheel(path)
    text = str(caught.value)
    assert "\n" not in text
    assert path.name in text
    return text


def test_no_such_file(tmp_path: Path) -> None:
    assert "no such file" in broken(tmp_path / "demo-1.0.0-py3-none-any.whl")


@pytest.mark.parametrize(
    "name",
    [
        "demo.whl",
        "demo-1.0.0-py3-none-any\n.whl",
        "demo-1.0.0-py3-none-a\nforged: ok\x1b[2J.whl",
        "demo-1.0.0\n-py3-none-any.whl",
        "demo-1.0.0-1\u202e-py3-none-any.whl",
        f"demo-{'9' * 5000}-py3-none-any.whl",
    ],
)
def test_not_a_wheel_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(WheelError, match="not a wheel's file name: ") as caught:
        read_wheel(tmp_path / name)
    assert str(caught.value).isprintable()
    with pytest.raises(WheelError, match=r"^not a wheel's file name: ") as caught:
        parse_file_name(name)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.99])
def test_truncated(tmp_path: Path, part: float) -> None:
    path = make_wheel(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    assert "not a whole zip archive (cut short?)" in broken(path)


def test_a_byte_turned(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, files={"demo/a.bin": bytes(range(256)) * 40})
    data = bytearray(path.read_bytes())
    data[120] ^= 0xFF
    path.write_bytes(data)
    broken(path)


def append(path: Path, member: zipfile.ZipInfo | str, data: bytes = b"x") -> Path:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(member, data)
    return path


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("../evil.py", "leads out of the archive"),
        ("demo/../../evil.py", "leads out of the archive"),
        ("/etc/evil", "absolute"),
        ("C:/evil", "absolute"),
        ("demo\\evil.py", "not a portable name"),
        ("demo/__init__.py", "twice"),
        ("demo//__init__.py", "not a name in its shortest form"),
    ],
)
def test_names_that_lead_elsewhere(tmp_path: Path, name: str, fact: str) -> None:
    text = broken(append(make_wheel(tmp_path), name))
    assert fact in text
    assert repr(name) in text


def test_symbolic_link(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("demo/link.so")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "'demo/link.so' is a symbolic link" in broken(append(make_wheel(tmp_path), link))


def test_bomb(tmp_path: Path) -> None:
    assert "zip bomb" in broken(append(make_wheel(tmp_path), "demo/zeros", bytes(17 << 20)))


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "UNPACKED_BYTES", 100)
    assert "the limit is 100" in broken(make_wheel(tmp_path))


@pytest.mark.parametrize("name", ["METADATA", "WHEEL"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    path = make_wheel(tmp_path, bend=lambda members: members.pop(f"{INFO}/{name}") and None)
    assert f"no {INFO}/{name} in it" in broken(path)


def test_missing_record(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0.0-py3-none-any.whl"
    append(path, f"{INFO}/METADATA", metadata("demo", "1.0.0", []))
    assert f"no {INFO}/RECORD in it" in broken(path)


def test_no_dist_info(tmp_path: Path) -> None:
    path = append(tmp_path / "demo-1.0.0-py3-none-any.whl", "demo/__init__.py")
    assert "one .dist-info folder expected, got none" in broken(path)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda text: text.replace("sha256=", "sha256=A"), "does not have RECORD's hash"),
        (lambda text: text.replace("sha256=", "sha256=\x1b[2J\u202e"), r"sha256=\u001b[2J\u202e"),
        (lambda text: text.replace(",12\n", ",13\n"), "RECORD says 13 bytes, got 12"),
        (lambda text: text.replace("sha256=", "md5="), "no sha256"),
        (lambda text: text + "demo/gone.py,sha256=abc,3\n", "which is not in the wheel"),
        (lambda text: text.replace("demo/__init__.py,", "demo/x.py,"), "not in the wheel"),
        (lambda text: text.split("\n", 1)[1], "'demo/__init__.py' is not listed in RECORD"),
        (lambda text: text + text, "is listed twice"),
        (lambda text: text + "a,b\n", "3 fields expected, got 2"),
        (lambda text: text + 'a,b,"c', "not CSV"),
        (lambda text: text + "a,b,-1\n", "'-1' is not a size"),
    ],
)
def test_record_that_does_not_hold(tmp_path: Path, change: object, fact: str) -> None:
    assert fact in broken(make_wheel(tmp_path, bend_record=change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("file", "data", "fact"),
    [
        ("METADATA", b"Metadata-Version: 2.1\nVersion: 1.0.0\n", "METADATA is not valid: name"),
        ("METADATA", b"Metadata-Version: 2.1\nName: demo\nVersion: one\n", "version"),
        ("WHEEL", b"Wheel-Version: 1.0\nTag: py3-none-any\n", "Root-Is-Purelib must be"),
        ("WHEEL", b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n", "names no Tag"),
        ("WHEEL", b"Root-Is-Purelib: true\nTag: py3\n", "'py3' is not a tag"),
        ("WHEEL", b"Root-Is-Purelib: true\nTag: py3-none-any\x1b[2J\n", "is not a tag"),
        ("WHEEL", b"\xff\xfe", "WHEEL is not UTF-8"),
        ("torchwheel.json", b"{}", "not a torchwheel claims file"),
    ],
)
def test_bent_metadata(tmp_path: Path, file: str, data: bytes, fact: str) -> None:
    path = make_wheel(tmp_path, bend=lambda members: members.update({f"{INFO}/{file}": data}))
    assert fact in broken(path)


def test_every_elf_file_is_extracted_whatever_its_name(tmp_path: Path) -> None:
    files = {"demo/a/x.so": ELF, "demo/b/x.so": ELF + b"!", "demo/data.txt": ELF, "demo/t.so": b"t"}
    with open_wheel(make_wheel(tmp_path, files=files)) as opened, opened.extract() as found:
        assert {one.member: one.path.read_bytes() for one in found} == {
            name: data for name, data in files.items() if data.startswith(b"\x7fELF")
        }
        assert [one.path.name for one in found] == ["x.so", "x.so", "data.txt"]
        folder = found[0].path.parent.parent
    assert not folder.exists()


def test_what_is_extracted_is_what_was_verified(tmp_path: Path) -> None:
    with open_wheel(make_wheel(tmp_path, files={"demo/x.so": ELF})) as opened:
        entry = dataclasses.replace(opened.wheel.record["demo/x.so"], digest="sha256=other")
        wheel = dataclasses.replace(opened.wheel, record={"demo/x.so": entry})
        says = "'demo/x.so' was changed meanwhile"
        with pytest.raises(WheelError, match=says), OpenWheel(wheel, opened.archive).extract():
            pass


@given(data=st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_is_one_line_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    path = make_wheel(tmp_path)
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    new = data.draw(st.binary(max_size=8))
    raw[at : at + data.draw(st.integers(0, 8))] = new
    path.write_bytes(raw)
    with contextlib.suppress(WheelError):
        assert read_wheel(path).metadata_bytes == metadata("demo", "1.0.0", ["torch>=2.6"])


def test_a_field_that_newer_rules_refuse_stops_no_reader(tmp_path: Path) -> None:
    """torchvision 0.29.2 has a License-File in METADATA of version 2.1."""
    text = metadata("demo", "1.0.0", ["torch>=2.6"])
    odd = text.replace(b"Name: demo\n", b"Name: demo\nLicense-File: LICENSE\n")
    name = f"{INFO}/METADATA"
    wheel = read_wheel(make_wheel(tmp_path, bend=lambda members: members.update({name: odd})))
    assert "license-file" in wheel.metadata_fault
    assert [str(r) for r in wheel.metadata.requires_dist or []] == ["torch>=2.6"]
    failed = [result for result in run_gates(wheel.path, Limits(64)) if not result.ok]
    assert [result.name for result in failed] == ["metadata"]
    assert "license-file introduced in metadata version 2.4" in failed[0].says


def test_a_bundled_wheel_is_pure(tmp_path: Path) -> None:
    assert read_bundled(make_wheel(tmp_path, claims=None)).name == "demo"


@pytest.mark.parametrize(
    ("wheel", "says"),
    [
        ({"tag": "cp312-none-any"}, "has the tag py3-none-any; got cp312-none-any"),
        ({"tag": "py2.py3-none-any"}, "has the tag py3-none-any; got py2-none-any py3-none-any"),
        ({"tag": "py3-none-manylinux_2_28_x86_64"}, "got py3-none-manylinux_2_28_x86_64"),
        (
            {"files": {"demo/__init__.py": b"", "demo/data.bin": b"\x7fELF and so on"}},
            "is pure Python, but demo/data.bin is machine code",
        ),
        ({"bend_record": lambda text: text.replace("sha256=", "sha256=A")}, "RECORD's hash"),
    ],
)
def test_what_is_no_bundled_wheel_is_refused(tmp_path: Path, wheel: dict, says: str) -> None:
    with pytest.raises(TorchwheelError) as caught:
        read_bundled(make_wheel(tmp_path, claims=None, **wheel))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tag_that_only_the_file_name_has_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, claims=None, tag="cp312-none-any")
    renamed = wheel.rename(tmp_path / "demo-1.0.0-py3-none-any.whl")
    with pytest.raises(TorchwheelError, match="got cp312-none-any"):
        read_bundled(renamed)
