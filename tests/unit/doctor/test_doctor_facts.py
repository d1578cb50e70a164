"""The facts of the doctor: native libraries, GPUs and caches."""

import contextlib
import os

import pytest
from doctor_cases import case, native, package
from hypothesis import given
from hypothesis import strategies as st

from elfmaker import make_elf
from jitmaker import Builds, Told, make_library, wanted
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.doctor import case as case_
from torchwheel_runtime.doctor import native as native_
from torchwheel_runtime.doctor.examine import backends_on_pci_bus
from torchwheel_runtime.doctor.native import Loader, claimed_code, read_native
from torchwheel_runtime.doctor.verdict import judge
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect.window import CpuTime, WheelError
from wheelmaker import PURE, stable, universal

# What is told of the cache, which may be anything.


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_one_that_is_not_there_yet_can_be_made_and_is_not(folder):
    found = case_.examine_cache()
    assert (found.folder, dict(found.sizes), found.problem) == (folder, {}, None)
    assert not folder.exists()


def test_sizes_by_part_the_largest_first(folder):
    for part, size in {"jit": 10, "toolkits": 1000, "empty": 0}.items():
        (folder / part / "deep").mkdir(parents=True)
        (folder / part / "deep" / "file").write_bytes(bytes(size))
    assert list(case_.examine_cache().sizes.items()) == [("toolkits", 1000), ("jit", 10)]


def test_a_file_in_its_way(folder):
    folder.write_text("")
    assert case_.examine_cache().problem == f"{folder} is not a folder"


@pytest.mark.parametrize("name", ["x" * 5000, "ring", "ring/cache"])
def test_a_path_that_leads_nowhere(folder, monkeypatch, name):
    (folder.parent / "ring").symlink_to("ring")
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(folder.parent / name))
    assert case_.examine_cache().problem


def test_a_user_without_a_home_folder(monkeypatch):
    def nowhere():
        raise TorchwheelError("home folder: expected HOME, found none; set TORCHWHEEL_CACHE")

    monkeypatch.setattr(case_, "cache_path", nowhere)
    assert case_.examine_cache().problem == (
        "home folder: expected HOME, found none; set TORCHWHEEL_CACHE"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_closed(folder):
    folder.mkdir(mode=0o500)
    assert case_.examine_cache().problem == f"{folder} cannot be written"


def test_a_folder_that_others_can_change(folder):
    folder.mkdir()
    folder.chmod(0o777)
    assert case_.examine_cache().problem == (
        f"{folder}: others may write to it (mode 0777); run `chmod go-w {folder}`, or set "
        "TORCHWHEEL_CACHE to a folder of your own"
    )


def test_a_library_that_was_changed(folder):
    library = make_library(folder / "jit", wanted(name="demo.scale"), Builds(), Told())
    assert not case_.examine_cache().corrupt
    library.chmod(0o644)
    library.write_bytes(b"junk")
    (line,) = case_.examine_cache().corrupt.values()
    assert line.startswith("demo.scale-")
    assert line.endswith("/ext_scale.so: 4 bytes, 1000 expected")
    assert library.exists(), "the doctor changes nothing"


# GPUs on the PCI bus.


@pytest.mark.parametrize(
    ("devices", "backends"),
    [
        ([("0x030200", "0x10de")], ("cuda",)),
        ([("0x030000", "0x1002"), ("0x030000", "0x1002")], ("rocm",)),
        ([("0x038000", "0x10de"), ("0x030000", "0x1002")], ("cuda", "rocm")),
        ([("0x040300", "0x10de")], ()),  # its sound
        ([("0x030000", "0x8086")], ()),
        ([], ()),
    ],
)
def test_display_controllers_of_known_makers_count(tmp_path, devices, backends):
    for number, (kind, vendor) in enumerate(devices):
        folder = tmp_path / f"sys/bus/pci/devices/0000:{number:02}:00.0"
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"{kind}\n")
        (folder / "vendor").write_text(f"{vendor}\n")
    assert backends_on_pci_bus(tmp_path) == backends


def test_a_device_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "sys/bus/pci/devices/0000:00:00.0").mkdir(parents=True)
    assert backends_on_pci_bus(tmp_path) == ()


# What is known of a library's GPU code that cannot be read.


PROBLEM = "byte 16: GPU code of kind 8; 1 (PTX) or 2 (ELF) expected"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Reads the library of a wheel with these claims."""

    def unreadable(_, cpu):
        raise TorchwheelError(PROBLEM)

    monkeypatch.setattr(native_, "read_gpu_code", unreadable)
    path = tmp_path / "demo" / "_C.so"
    path.parent.mkdir()
    path.write_bytes(make_elf(symbols=("f",)))

    def read(claims):
        return read_native(path, tmp_path, Loader(path, None, {}), claims, CpuTime(), loaded=True)

    return read


def test_it_is_what_the_wheel_claims(library):
    found = library(stable(archs=("8.0", "9.0+PTX")))
    assert (found.archs, found.ptx) == ((parse("8.0"), parse("9.0")), (parse("9.0"),))
    assert (found.backend, found.code_problem) == ("cuda", PROBLEM)
    assert library(None).code == ()


def test_of_a_universal_wheel_it_is_that_of_the_librarys_part():
    claims = universal(("cuda 13.0", "rocm 7.2"))
    files = [part.file for part in claims.parts]
    kinds = [[module.kind for module in claimed_code(claims, file)] for file in files]
    assert kinds == [["sass"], ["hsaco"], [], []]
    assert claimed_code(PURE, "demo/_C.so") == ()


def test_so_a_gpu_without_code_is_still_found():
    code = claimed_code(stable(archs=("8.0",)), "demo/_C.so")
    unread = native(code=code, code_problem=PROBLEM)
    verdict = judge(case(package(natives=(unread,))))
    assert "found 8.0" in verdict.says


# A malformed ELF file is one error, whatever is wrong in it.


WHOLE = make_elf(symbols=("f", "g"), sections={".gnu.hash": bytes(64), ".dynamic": bytes(64)})


def test_one_without_a_dynamic_section_asks_for_nothing(tmp_path):
    path = tmp_path / "x.so"
    path.write_bytes(make_elf(symbols=("f",)))
    found = native_.read_shared_object(path)
    assert (found.soname, found.needed, found.rpath, found.runpath) == ("x.so", (), (), ())
    assert native_.provided_symbols(path, ["f"]) == frozenset()
    assert native_.provided_versions(path) == frozenset()


@pytest.mark.parametrize("data", [b"", b"\x7fELF", WHOLE[:100]])
def test_one_that_is_cut_short(tmp_path, data):
    path = tmp_path / "x.so"
    path.write_bytes(data)
    with pytest.raises(WheelError, match=r"x\.so: not an ELF file"):
        native_.read_shared_object(path)


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=8))
def test_no_bytes_bring_it_down(tmp_path_factory, at, change):
    path = tmp_path_factory.mktemp("elf") / "x.so"
    path.write_bytes(WHOLE[:at] + change + WHOLE[at + len(change) :])
    with contextlib.suppress(WheelError):
        native_.read_shared_object(path)
    with contextlib.suppress(WheelError):
        native_.provided_symbols(path, ["f"])
    with contextlib.suppress(WheelError):
        native_.provided_versions(path)
