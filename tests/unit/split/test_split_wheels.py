"""`torchwheel split` on small wheels: what it writes, what it compares, what it refuses."""

import hashlib
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elfmaker import cubin, fatbin, hip_library, linked, make_elf, module, ptx
from torchwheel.check.gates import judge_named
from torchwheel.inspect.wheel import read_wheel
from torchwheel.split import libraries as split_libraries
from torchwheel.split import wheels as split_wheels
from torchwheel.split.labels import NEWER, SplitLabel, parse_labels, taken
from torchwheel.split.libraries import (
    CudaLibrary,
    blocks_for,
    read_cuda_library,
    require_same_code,
)
from torchwheel.split.wheels import SplitRequest, split
from torchwheel_runtime.arch.model import CudaArch
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect.cuda import read_cuda_code
from torchwheel_runtime.inspect.window import WheelError
from wheelmaker import make_wheel, stable, wheel_around

TAG = "cp39-abi3-manylinux_2_17_x86_64"
ALL = fatbin(
    *(module(cubin(arch, (f"k{arch}",)), arch) for arch in (80, 86, 90, 120)),
    module(ptx("sm_120"), 120),
)
MARLIN = fatbin(module(cubin(80, ("marlin",)), 80), module(ptx("sm_80"), 80))
FOR_90 = fatbin(module(cubin(90, ("only",)), 90, flags=0x10_0011))
BY_A_LINK_STEP = fatbin(module(cubin(75, ()), 75))
CODE = ALL + MARLIN + bytes(16) + FOR_90 + BY_A_LINK_STEP
LIBRARY = linked(needed=("libcudart.so.12",), sections={".nv_fatbin": CODE, ".rodata": b"host"})


def wheel(folder: Path, library: bytes = LIBRARY, **files: bytes) -> Path:
    members = {
        "demo/__init__.py": b"",
        "demo/_C.abi3.so": library,
        "demo.libs/libother-1234abcd.so": LIBRARY,
        "demo/tool": b"#!/bin/sh\n",
        **files,
    }
    return make_wheel(folder, tag=TAG, files=members, claims=None, requires=())


def run(folder: Path, *wheels: Path, labels: tuple[str, ...] = (), cuda: str | None = None) -> str:
    out = folder / "out"
    return split(SplitRequest(wheels, parse_labels(labels), cuda, out), Quiet())


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def code_of(path: Path, folder: Path) -> list[tuple[str, str, tuple[str, ...]]]:
    """The modules of the library of a wheel, as every command of ours reads them."""
    folder.mkdir()
    (folder / "lib.so").write_bytes(members(path)["demo/_C.abi3.so"])
    return [(m.kind, str(m.arch), m.kernels) for m in read_cuda_code(folder / "lib.so")]


def test_each_label_has_the_code_for_its_gpus_and_no_other(tmp_path: Path) -> None:
    plain = wheel(tmp_path)
    text = run(tmp_path, plain)
    made = {path.stem.rpartition("-")[2]: path for path in (tmp_path / "out").glob("*.whl")}
    assert {label: code_of(path, tmp_path / label) for label, path in made.items()} == {
        "sm8x": [
            ("sass", "8.0", ("k80",)),
            ("sass", "8.6", ("k86",)),
            ("sass", "8.0", ("marlin",)),
        ],
        "sm9x": [("sass", "9.0", ("k90",)), ("ptx", "8.0", ()), ("sass", "9.0a", ("only",))],
        "sm12x": [("sass", "12.0", ("k120",)), ("ptx", "12.0", ()), ("ptx", "8.0", ())],
    }
    before = members(plain)
    for label, path in made.items():
        read_wheel(path)  # its RECORD holds
        after = members(path)
        assert len(after["demo/_C.abi3.so"]) == len(LIBRARY)
        assert {name for name in before if after[name] != before[name]} == {
            "demo/_C.abi3.so",
            "demo-1.0.0.dist-info/RECORD",
        }
        assert after.keys() - before.keys() == {"demo-1.0.0.dist-info/variant.json"}
        assert next(r for r in judge_named(path)[0] if r.name == "label").ok, label
    properties = json.loads((tmp_path / "out/demo-1.0.0-variants.json").read_text())["variants"]
    # The driver must compile PTX 9.0 for a GPU of 9.0, which CUDA 13.0's is the first to do.
    assert properties == {
        "sm8x": nvidia("12.0", "80_real", "86_real"),
        "sm9x": nvidia("13.0", "90_real"),
        "sm12x": nvidia("13.0", "120_real", "120_virtual"),
    }
    assert "modules in no label: SASS 7.5 (1)\n" in text
    assert "12.0, 12.1 and newer" in text


def nvidia(bound: str, *archs: str) -> dict[str, dict[str, list[str]]]:
    return {"nvidia": {"cuda_version_lower_bound": [bound], "sm_arch": list(archs)}}


def test_what_no_label_has_is_named(tmp_path: Path) -> None:
    text = run(tmp_path, wheel(tmp_path), labels=("sm90=9.0",))
    (made,) = (tmp_path / "out").glob("*.whl")
    assert made.name == f"demo-1.0.0-{TAG}-sm90.whl"
    assert (
        "modules in no label: PTX 12.0 (1), SASS 12.0 (1), SASS 7.5 (1), SASS 8.0 (2), SASS 8.6 (1)"
    ) in text


def test_equal_wheels_give_equal_bytes(tmp_path: Path) -> None:
    plain = wheel(tmp_path)
    hashes = []
    for name in ("one", "two"):
        run(tmp_path / name, plain)
        made = sorted((tmp_path / name / "out").iterdir())
        hashes.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in made])
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 4


def test_a_program_stays_executable(tmp_path: Path) -> None:
    contents = members(wheel(tmp_path))
    plain = tmp_path / "in" / f"demo-1.0.0-{TAG}.whl"
    plain.parent.mkdir()
    with zipfile.ZipFile(plain, "w") as archive:
        for name, data in contents.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o100755 if name == "demo/tool" else 0o100644) << 16
            archive.writestr(info, data)
    run(tmp_path, plain)
    for path in (tmp_path / "out").glob("*.whl"):
        assert read_wheel(path).executable == tuple(
            sorted(n for n in contents if n == "demo/tool" or n.endswith(".so"))
        )


def test_the_library_packs_to_what_is_left(tmp_path: Path) -> None:
    noise = [hashlib.shake_256(bytes([n])).digest(1 << 20) for n in range(3)]
    codes = [
        make_elf(machine=190, flags=arch << 8, abi_version=8, kernels=("k",), sections={".t": data})
        for arch, data in zip((80, 90, 120), noise, strict=True)
    ]
    section = fatbin(*map(module, codes, (80, 90, 120)))
    library = linked(needed=("libcudart.so.12",), sections={".nv_fatbin": section})
    plain = make_wheel(tmp_path, tag=TAG, files={"demo/_C.so": library}, claims=None, requires=())
    run(tmp_path, plain)
    sizes = {path.stat().st_size >> 10 for path in (tmp_path / "out").glob("*.whl")}
    assert plain.stat().st_size >> 20 == 3
    assert max(sizes) <= 1040


def labelled(folder: Path) -> Path:
    plain = wheel(folder)
    return plain.rename(plain.with_name(f"{plain.stem}-sm90.whl"))


def bad_record(folder: Path) -> Path:
    return make_wheel(folder, claims=None, bend_record=lambda text: text.replace("sha256=", "md5="))


REFUSED: dict[str, tuple[Callable[[Path], Path], tuple[str, ...], str]] = {
    "a label": (labelled, (), "expected a wheel without a label"),
    "ours": (
        lambda folder: wheel_around(folder, LIBRARY, stable(), "manylinux_2_17_x86_64"),
        (),
        "declare its labels under abis.universal",
    ),
    "no code": (lambda folder: make_wheel(folder, claims=None), (), "expected CUDA code"),
    "no release": (
        lambda folder: make_wheel(
            folder, claims=None, files={"demo/_C.so": linked(sections={".nv_fatbin": CODE})}
        ),
        (),
        "add e.g. --cuda 12.8",
    ),
    "ROCm's code": (
        lambda folder: wheel(folder, **{"demo/hip.so": hip_library(b"")}),
        (),
        "demo/hip.so: expected code for NVIDIA's GPUs alone, found ROCm's",
    ),
    "an unknown arch": (wheel, ("a=7.5",), "--label a: expected one of the wheel's"),
    "malformed code": (
        lambda folder: wheel(folder, linked(sections={".nv_fatbin": ALL + b"more" * 9})),
        (),
        "no container of GPU code",
    ),
    "a malformed module": (
        lambda folder: wheel(
            folder, linked(sections={".nv_fatbin": fatbin(module(b"no ELF file", 80, kind=2))})
        ),
        (),
        "demo/_C.abi3.so: module at byte",
    ),
    "another RECORD": (bad_record, (), "gives 'demo"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_one_line_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    make, labels, says = REFUSED[name]
    plain = make(tmp_path / "in")
    with pytest.raises(TorchwheelError) as error:
        run(tmp_path, plain, labels=labels)
    assert says in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_folder_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(TorchwheelError, match="out: is there already"):
        run(tmp_path, wheel(tmp_path))


def test_a_release_of_cuda_is_given(tmp_path: Path) -> None:
    files = {"demo/_C.so": linked(sections={".nv_fatbin": FOR_90})}
    plain = make_wheel(tmp_path, claims=None, files=files)
    with pytest.raises(TorchwheelError, match='found "new"'):
        run(tmp_path, plain, cuda="new")
    assert "cuda_version_lower_bound 12.0; nvidia sm_arch 90_real" in run(
        tmp_path, plain, cuda="12.8"
    )


def test_two_wheels_of_a_release_have_one_file_of_labels(tmp_path: Path) -> None:
    first = wheel(tmp_path / "first")
    second = first.with_name(first.name.replace("cp39", "cp310"))
    second.write_bytes(first.read_bytes())
    run(tmp_path, first, second)
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".json"] + [".whl"] * 6
    newer = fatbin(module(cubin(90), 90), module(ptx("sm_90"), 90))
    other = wheel(
        tmp_path / "other", linked(needed=("libcudart.so.12",), sections={".nv_fatbin": newer})
    )
    with pytest.raises(TorchwheelError, match="the properties that sm9x has of another wheel"):
        run(tmp_path / "again", first, other)


def test_a_gate_that_is_lost_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lie = {"nvidia": {"sm_arch": ("100_real",)}}
    monkeypatch.setattr(split_wheels, "properties_of_label", lambda *_: lie)
    with pytest.raises(TorchwheelError, match="expected the gates of the plain wheel"):
        run(tmp_path, wheel(tmp_path))
    assert not (tmp_path / "out").exists()


def test_other_code_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_wheels, "blocks_for", lambda library, _: [library.path.read_bytes()])
    with pytest.raises(WheelError, match="expected the plain wheel's code in the container"):
        run(tmp_path, wheel(tmp_path))
    assert not (tmp_path / "out").exists()


# One library.

SM9X = SplitLabel("sm9x", (CudaArch(9, 0),), ptx=False)


def library_in(path: Path, content: bytes) -> CudaLibrary:
    path.write_bytes(content)
    found = read_cuda_library(path, "demo/_C.so")
    assert found is not None
    return found


def changed(library: CudaLibrary, label: SplitLabel, path: Path) -> CudaLibrary:
    return library_in(path, b"".join(blocks_for(library, label)))


TAMPERED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "code": (lambda data: data.replace(b"only", b"Only"), "code in the container"),
    "PTX": (
        lambda data: data.replace(b"address_size 64", b"address_size 32"),
        "code in the container",
    ),
    "host code": (lambda data: data.replace(b"host", b"Host"), "bytes from 0 to|bytes from .* on"),
    "a longer file": (lambda data: data + b"\0", "wheel's size"),
    "all code": (lambda _: LIBRARY, "code in the container"),
    "no section": (
        lambda data: data.replace(b".nv_fatbin", b".nv_fatbox"),
        "containers of GPU code",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_what_is_compared(tmp_path: Path, name: str) -> None:
    bend, says = TAMPERED[name]
    plain = library_in(tmp_path / "plain.so", LIBRARY)
    same = changed(plain, SM9X, tmp_path / "same.so")
    assert require_same_code(plain, same, SM9X) == 3
    (tmp_path / "bent.so").write_bytes(bend(same.path.read_bytes()))
    bent = read_cuda_library(tmp_path / "bent.so", "demo/_C.so")
    with pytest.raises(WheelError, match=says):
        require_same_code(plain, bent, SM9X)


def test_code_that_was_linked_on_the_device_is_taken_out_too(tmp_path: Path) -> None:
    content = linked(sections={".nv_fatbin": ALL, "__nv_relfatbin": MARLIN + FOR_90})
    plain = library_in(tmp_path / "plain.so", content)
    after = changed(plain, SM9X, tmp_path / "sm9x.so")
    assert [str(entry.arch) for entry in after.entries()] == ["9.0", "8.0", "9.0a"]


def test_sections_that_overlap_are_refused(tmp_path: Path) -> None:
    """Else the bytes of one would be written into the other."""
    content = bytearray(linked(sections={".nv_fatbin": ALL, "__nv_relfatbin": ALL}))
    (table,), (count,) = (
        struct.unpack_from("<Q", content, 40),
        struct.unpack_from("<H", content, 60),
    )
    sizes = [struct.unpack_from("<Q", content, table + 64 * n + 32)[0] for n in range(count)]
    first, second = (table + 64 * n for n, size in enumerate(sizes) if size == len(ALL))
    content[second + 24 : second + 32] = content[first + 24 : first + 32]
    (tmp_path / "lib.so").write_bytes(content)
    with pytest.raises(WheelError, match="found shared ones"):
        read_cuda_library(tmp_path / "lib.so", "lib.so")


ENTRY = st.tuples(
    st.sampled_from(["sass", "ptx"]),
    st.sampled_from([75, 80, 86, 90, 100, 120]),
    st.integers(1, 99),
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(st.lists(ENTRY, max_size=6), st.integers(0, 3)), min_size=1, max_size=6),
    st.sets(
        st.sampled_from([(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 3), (12, 0)]), min_size=1
    ),
    st.booleans(),
)
def test_any_library_has_the_same_code_for_each_gpu(
    tmp_path: Path,
    containers: list[tuple[list[tuple[str, int, int]], int]],
    gpus: set[tuple[int, int]],
    newer: bool,
) -> None:
    section = b"".join(
        fatbin(
            *(
                module((b"\x7fELF" if kind == "sass" else b".target") + bytes([salt]) * salt, arch)
                for kind, arch, salt in modules
            )
        )
        + bytes(8 * gap)
        for modules, gap in containers
    )
    plain = library_in(tmp_path / "plain.so", linked(sections={".nv_fatbin": section}))
    label = SplitLabel("any", tuple(CudaArch(*gpu) for gpu in sorted(gpus)), ptx=newer)
    after = changed(plain, label, tmp_path / "after.so")
    require_same_code(plain, after, label)
    old, new = (path.read_bytes() for path in (plain.path, after.path))
    assert len(old) == len(new)
    for one, other in zip(plain.containers, after.containers, strict=True):
        for gpu in (*label.gpus, *([NEWER] if newer else [])):
            codes = [
                [data[e.header : e.end] for e in taken(found.entries, gpu)]
                for data, found in ((old, one), (new, other))
            ]
            assert codes[0] == codes[1]
        # Nothing else is left, and nothing of it can be found in the zeros.
        assert all(any(e in taken(other.entries, g) for g in label.targets) for e in other.entries)
        assert not new[other.end : one.end].strip(b"\0")


def test_a_section_of_many_empty_containers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_libraries.read_containers.__globals__["budgets"], "MODULES", 3)
    (tmp_path / "lib.so").write_bytes(linked(sections={".nv_fatbin": fatbin() * 4}))
    with pytest.raises(WheelError, match="more than 3 containers"):
        read_cuda_library(tmp_path / "lib.so", "lib.so")
    (tmp_path / "lib.so").write_bytes(linked(sections={".nv_fatbin": MARLIN * 2}))
    with pytest.raises(WheelError, match="more than 3 modules"):
        read_cuda_library(tmp_path / "lib.so", "lib.so")
