"""read_wheel: a right wheel gives its facts, a broken one a line that names the fact."""

import contextlib
import dataclasses
import stat
import warnings
import zipfile
from collections.abc import Callable
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
FILE = "demo-1.0.0-py3-none-any.whl"
HEAD = b"Metadata-Version: 2.1\n"
IS_PURE = b"Root-Is-Purelib: true\n"
Make = Callable[[Path], Path]


def test_facts_of_a_right_wheel(tmp_path: Path) -> None:
    wheel = read_wheel(make_wheel(tmp_path))
    assert (wheel.name, wheel.version) == ("demo", Version("1.0.0"))
    assert (
        {str(tag) for tag in wheel.tags} == {"py3-none-any"} == {str(t) for t in wheel.wheel_tags}
    )
    assert [str(r) for r in wheel.metadata.requires_dist or []] == ["torch>=2.6"]
    assert wheel.metadata_bytes == metadata("demo", "1.0.0", ["torch>=2.6"])
    assert wheel.purelib
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


def append(path: Path, member: zipfile.ZipInfo | str, data: bytes = b"x") -> Path:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(member, data)
    return path


def made(**changes: object) -> Make:
    return lambda folder: make_wheel(folder, **changes)  # type: ignore[arg-type]


def having(name: str, mode: int = 0) -> Make:
    """A right wheel and a member that it should not have."""
    member = zipfile.ZipInfo(name)
    member.external_attr = mode << 16
    return lambda folder: append(make_wheel(folder), member)


def cut(part: float) -> Make:
    def make(folder: Path) -> Path:
        path = make_wheel(folder)
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * part)])
        return path

    return make


def turned(folder: Path) -> Path:
    """One byte is another."""
    path = make_wheel(folder, files={"demo/a.bin": bytes(range(256)) * 40})
    data = bytearray(path.read_bytes())
    data[120] ^= 0xFF
    path.write_bytes(data)
    return path


def alone(name: str, data: bytes = b"x") -> Make:
    """A file alone, without the others of a wheel."""
    return lambda folder: append(folder / FILE, name, data)


def without(name: str) -> Make:
    return made(bend=lambda members: members.pop(f"{INFO}/{name}") and None)


def record(change: Callable[[str], str]) -> Make:
    return made(bend_record=change)


def with_text(name: str, data: bytes) -> Make:
    return made(bend=lambda members: members.update({f"{INFO}/{name}": data}))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: folder / FILE, "no such file"),
        *((cut(part), "not a whole zip archive (cut short?)") for part in (0.0, 0.1, 0.5, 0.99)),
        (turned, ""),
        *(
            (having(name), f"member {name!r} {says}")
            for name, says in (
                ("../evil.py", "leads out of the archive"),
                ("demo/../../evil.py", "leads out of the archive"),
                ("/etc/evil", "is an absolute name"),
                ("C:/evil", "is an absolute name"),
                ("demo\\evil.py", "is not a portable name"),
                ("demo/__init__.py", "is there twice"),
                ("demo//__init__.py", "is not a name in its shortest form"),
            )
        ),
        (having("demo/link.so", mode=stat.S_IFLNK | 0o777), "'demo/link.so' is a symbolic link"),
        (without("METADATA"), f"no {INFO}/METADATA in it"),
        (without("WHEEL"), f"no {INFO}/WHEEL in it"),
        (alone(f"{INFO}/METADATA", metadata("demo", "1.0.0", [])), f"no {INFO}/RECORD in it"),
        (alone("demo/__init__.py"), "one .dist-info folder expected, got none"),
        # RECORD does not hold.
        (record(lambda text: text.replace("sha256=", "sha256=A")), "does not have RECORD's hash"),
        (
            record(lambda text: text.replace("sha256=", "sha256=\x1b[2J\u202e")),
            r"sha256=\u001b[2J\u202e",
        ),
        (record(lambda text: text.replace(",12\n", ",13\n")), "RECORD says 13 bytes, got 12"),
        (record(lambda text: text.replace("sha256=", "md5=")), "no sha256"),
        (record(lambda text: text + "demo/gone.py,sha256=abc,3\n"), "which is not in the wheel"),
        (record(lambda text: text.replace("demo/__init__.py,", "demo/x.py,")), "not in the wheel"),
        (record(lambda text: text.split("\n", 1)[1]), "'demo/__init__.py' is not listed in RECORD"),
        (record(lambda text: text + text), "is listed twice"),
        (record(lambda text: text + "a,b\n"), "3 fields expected, got 2"),
        (record(lambda text: text + 'a,b,"c'), "not CSV"),
        (record(lambda text: text + "a,b,-1\n"), "'-1' is not a size"),
        # Other files of the folder.
        (with_text("METADATA", HEAD + b"Version: 1.0.0\n"), "METADATA is not valid: name"),
        (with_text("METADATA", HEAD + b"Name: demo\nVersion: one\n"), "version"),
        (with_text("WHEEL", b"Wheel-Version: 1.0\nTag: py3-none-any\n"), "Root-Is-Purelib must be"),
        (with_text("WHEEL", b"Wheel-Version: 1.0\n" + IS_PURE), "names no Tag"),
        (with_text("WHEEL", IS_PURE + b"Tag: py3\n"), "'py3' is not a tag"),
        (with_text("WHEEL", IS_PURE + b"Tag: py3-none-any\x1b[2J\n"), "is not a tag"),
        (with_text("WHEEL", b"\xff\xfe"), "WHEEL is not UTF-8"),
        (with_text("torchwheel.json", b"{}"), "not a torchwheel claims file"),
    ],
)
def test_a_broken_wheel_is_one_line(tmp_path: Path, make: Make, says: str) -> None:
    assert says in broken(make(tmp_path))


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "UNPACKED_BYTES", 100)
    assert "the limit is 100" in broken(make_wheel(tmp_path))


def test_every_elf_file_is_extracted_whatever_its_name(tmp_path: Path) -> None:
    files = {"demo/a/x.so": ELF, "demo/b/x.so": ELF + b"!", "demo/data.txt": ELF, "demo/t.so": b"t"}
    with open_wheel(make_wheel(tmp_path, files=files)) as opened, opened.extract() as found:
        assert {name: path.read_bytes() for name, path in found.items()} == {
            name: data for name, data in files.items() if data.startswith(b"\x7fELF")
        }
        assert [path.name for path in found.values()] == ["x.so", "x.so", "data.txt"]
        folder = found["demo/a/x.so"].parent.parent
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
    assert "license-file" in wheel.faults["metadata"]
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
