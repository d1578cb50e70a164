"""What a move to another torch, Python, driver, GPU or glibc breaks, by facts that are replaced."""

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from install_cases import SITE, environment
from packaging.tags import parse_tag
from packaging.version import Version

from elfmaker import linked
from torchwheel.check.torch_symbols import ExportTable, hash_of
from torchwheel.install import packages as packages_room
from torchwheel.install.moves import Move, fitting_torches, machine_findings, move_machine
from torchwheel.install.packages import (
    PackageVerdict,
    add_offers,
    judge_packages,
    libraries_in_use,
    read_packages,
)
from torchwheel.install.packages_text import report_json, report_lines
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.doctor.case import Package
from torchwheel_runtime.doctor.dist_info import DistInfo
from torchwheel_runtime.doctor.importing import ImportResult
from torchwheel_runtime.doctor.native import Links, NativeLibrary
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.inspect.elf import GpuCode

RELEASES = ("2.6", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")
SHIM, GONE, LATE = "aoti_torch_x", "_ZN3c104goneEv", "_ZN3c104lateEv"
OF_GPU = "_ZN3c104cuda3getEv"
TABLE = ExportTable(
    RELEASES,
    {
        hash_of(SHIM): 0b1111111,
        hash_of(GONE): 0b0000110,
        hash_of(LATE): 0b1110000,
        hash_of(OF_GPU): 0b1111111,
    },
)
NOTHING = Links({}, {}, frozenset(), frozenset(), frozenset(), ())


def native(name: str = "demo/_C.so", *symbols: str, **changes: Any) -> NativeLibrary:
    """A library with symbols that the torch here has, and `changes`."""
    links = dataclasses.replace(
        NOTHING,
        torch_symbols=frozenset(symbols),
        undefined=frozenset(changes.pop("undefined", ())),
        absent=changes.pop("absent", {}),
    )
    return NativeLibrary(
        name, SITE / name, loaded=False, machine="x86_64", **{"links": links, **changes}
    )


def code(*archs: str, ptx: str = "") -> tuple[GpuCode, ...]:
    modules = tuple(GpuCode("sass", parse(arch), ("k",)) for arch in archs)
    return (*modules, *(GpuCode("ptx", parse(arch)) for arch in ptx.split()))


def package(*natives: NativeLibrary, torch: str | None = "", tags: str = "") -> Package:
    info = DistInfo("demo", "1.0.0", ("demo",), torch=torch, tags=parse_tag(tags) if tags else ())  # type: ignore[arg-type]
    return Package("demo", "demo", SITE, info, ImportResult("not tried"), natives=natives)


def verdict(subject: Package, move: Move, **changes: Any) -> PackageVerdict:
    here = environment(**changes)
    found = judge_packages([subject], here, move_machine(here, move), move, TABLE)
    return found[0]


CUDA = native("demo/_C.so", SHIM, code=code("8.0", "9.0"), needed=("libcudart.so.13",))
ATEN = dataclasses.replace(CUDA, links=dataclasses.replace(NOTHING, torch_symbols={SHIM, GONE}))  # type: ignore[arg-type]
WAITING = native("demo/_C.so", SHIM, undefined=[LATE])
PTX = native("demo/_C.so", SHIM, code=code("8.0", ptx="8.0"))
CASES = {
    "stable ABI": (package(CUDA), Move(torch="2.15"), "works", ""),
    "symbol is gone": (package(ATEN), Move(torch="2.15"), "breaks", "has no c10::gone"),
    "symbol comes": (package(WAITING), Move(torch="2.13"), "fixed", ""),
    "symbol comes later": (package(WAITING), Move(torch="2.12"), "wrong", "has no c10::late"),
    "range ends": (
        package(CUDA, torch="<2.14,>=2.11"),
        Move(torch="2.14"),
        "breaks",
        "expected torch<2.14,>=2.11",
    ),
    "range goes on": (package(CUDA, torch=">=2.11"), Move(torch="2.14"), "works", ""),
    "other major of CUDA": (
        package(CUDA),
        Move(torch="2.12+cu126"),
        "breaks",
        "libcudart.so.13, which is not on this system",
    ),
    "for CPUs": (package(CUDA), Move(torch="2.12+cpu"), "breaks", "a torch built for CUDA"),
    "GPU's symbol for CPUs": (
        package(native("demo/_C.so", OF_GPU)),
        Move(torch="2.12+cpu"),
        "breaks",
        "has no c10::cuda::get",
    ),
    "Python's tag": (
        package(CUDA, tags="cp312-cp312-linux_x86_64"),
        Move(python="3.14"),
        "breaks",
        "the wheel is for cp312-cp312",
    ),
    "limited API": (
        package(CUDA, tags="cp310-abi3-linux_x86_64"),
        Move(python="3.14"),
        "works",
        "",
    ),
    "module of one Python": (
        package(native("demo/_C.cpython-312-x86_64-linux-gnu.so", SHIM, is_module=True)),
        Move(python="3.14"),
        "breaks",
        "for another Python than 3.14",
    ),
    "library with such a name": (
        package(native("demo/_C.cpython-312-x86_64-linux-gnu.so", SHIM)),
        Move(python="3.14"),
        "works",
        "",
    ),
    "old driver": (package(CUDA), Move(driver="12.8"), "breaks", "a driver, for CUDA up to 12.8"),
    "newer driver": (package(CUDA), Move(driver="13.2"), "works", ""),
    "driver's library": (
        package(native("demo/_C.so", SHIM, absent={"libcuda.so.1": "_C.so"})),
        Move(driver="13.2"),
        "fixed",
        "",
    ),
    "GPU without code": (package(CUDA), Move(gpu="12.0"), "breaks", "expected code for GPU 0"),
    "GPU by PTX": (package(PTX), Move(gpu="12.0", torch="2.12"), "works", ""),
    "PTX of a newer CUDA": (
        package(PTX),
        Move(gpu="12.0", torch="2.12+cu132", driver="13.0"),
        "breaks",
        "whose PTX",
    ),
    "old glibc": (
        package(native("demo/_C.so", SHIM, glibc="2.34")),
        Move(glibc="2.28"),
        "breaks",
        "glibc 2.34 or later",
    ),
    "nothing of torch": (package(native(), torch=None), Move(torch="2.15"), "works", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_move_does(name: str) -> None:
    subject, move, state, says = CASES[name]
    found = verdict(subject, move)
    assert (found.state, says in " ".join(one.fact for one in found.then)) == (state, True), found


def test_what_is_fine_without_a_move_is_fine_after_none() -> None:
    found = verdict(package(ATEN), Move())
    assert (found.state, found.then) == ("works", found.now)


WRONG = {
    "torch": ("2.5", "2.99", "two", "2.13+cu999", "2.12+rocm9.9", "2.13.1.2"),
    "python": ("3", "314", "3.14.1", "three"),
    "driver": ("580", "12", "12.8.1"),
    "glibc": ("2", "new"),
    "gpu": ("H100", "sm_90x", ""),
}


@pytest.mark.parametrize("text", [(name, text) for name in WRONG for text in WRONG[name]], ids=str)
def test_a_move_to_nowhere_is_a_wrong_call(text: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=r"expected|published|arch"):
        move_machine(environment(), Move(**{text[0]: text[1]}))


@given(st.sampled_from(sorted(WRONG)), st.text(max_size=20))
def test_any_text_is_a_move_or_a_wrong_call(name: str, text: str) -> None:
    with contextlib.suppress(UsageError):
        move_machine(environment(), Move(**{name: text}))


BUILDS = {
    ("2.11.0+cu130", "2.15"): "2.15.0+cu132",
    ("2.11.0+cu130", "2.13.1+cu126"): "2.13.1+cu126",
    ("2.11.0+rocm7.2", "2.13"): "2.13.0+rocm7.2",
    (None, "2.13"): "2.13.0+cu130",
}


@pytest.mark.parametrize(("here", "move"), BUILDS)
def test_the_build_of_a_torch(here: str | None, move: str) -> None:
    moved = move_machine(environment(here), Move(torch=move))
    assert moved.torch is not None
    assert moved.torch.version == BUILDS[here, move]


def test_a_torch_for_cpus_stays_one_without_a_gpu() -> None:
    here = environment("2.11.0+cpu", gpus=(), driver=None)
    for move, version in (
        (Move(torch="2.15"), "2.15.0+cpu"),
        (Move(torch="2.15", gpu="9.0"), "2.15.0+cu132"),
    ):
        torch = move_machine(here, move).torch
        assert torch is not None
        assert torch.version == version


def test_torch_itself_is_judged() -> None:
    moved = move_machine(environment(), Move(torch="2.15", python="3.10", driver="12.8"))
    assert [one.rule for one in machine_findings(moved)] == ["driver", "python"]
    assert machine_findings(environment()) == []


FITS = {
    "all": ((SHIM,), "", (), RELEASES),
    "gone": ((SHIM, GONE), "", (), ("2.10", "2.11")),
    "late": ((LATE,), "", (), ("2.13", "2.14", "2.15")),
    "range": ((SHIM,), ">=2.11,<2.13", (), ("2.11", "2.12")),
    "CUDA 12 was published": ((SHIM,), ">=2.13", ("libcudart.so.12",), ("2.13", "2.14")),
    "none": ((GONE, LATE), "", (), ()),
}


@pytest.mark.parametrize("name", FITS)
def test_the_torch_that_a_package_fits(name: str) -> None:
    symbols, range_, needed, expected = FITS[name]
    own = native("demo/_C.so", *symbols, needed=needed)
    found = fitting_torches(package(own, torch=range_), [own], environment(), TABLE)
    assert found is not None
    assert found.minors == expected
    assert found.kind == (" for CUDA 12" if needed else "")


ROCM = (GpuCode("hsaco", parse("gfx90a"), ("k",)),)
GROUPS = {
    "by CUDA's release": (
        [
            native("lib_cuda118.so", absent={"libcudart.so.11": "x"}, code=code("8.0")),
            native("lib_cuda130.so", code=code("8.0")),
            native("lib_rocm62.so", code=ROCM),
            native("lib_xpu.so", absent={"libimf.so": "x"}),
            native("lib_cpu.so"),
        ],
        ["lib_cuda130.so", "lib_cpu.so"],
    ),
    "by FFmpeg": (
        [native("core4.so", absent={"libavcodec.so.58": "x"}), native("core6.so")],
        ["core6.so"],
    ),
    "by Python": (
        [native(f"_C.cpython-{one}-x86_64-linux-gnu.so", is_module=True) for one in (311, 312)],
        ["_C.cpython-312-x86_64-linux-gnu.so"],
    ),
    "the only one": ([native("_C.so", code=ROCM)], ["_C.so"]),
    "two that are no choice": ([native("_C.so"), native("image.so")], ["_C.so", "image.so"]),
}


@pytest.mark.parametrize("name", GROUPS)
def test_which_libraries_a_package_loads(name: str) -> None:
    natives, expected = GROUPS[name]
    found = libraries_in_use(natives, environment().torch, "3.12.3")
    assert [one.name for one in found] == expected


def test_the_report() -> None:
    here = environment()
    move = Move(torch="2.15")
    there = move_machine(here, move)
    subjects = [package(ATEN), package(CUDA), package(WAITING), package(native(), torch=None)]
    found = judge_packages(subjects, here, there, move, TABLE)
    text = "\n".join(report_lines(found, here, there, (), quiet=False, verbose=False))
    for line in (
        "then       torch 2.15.0+cu132, Python 3.12.3, driver 580.95.05",
        "breaks     demo 1.0.0: demo/_C.so was built for another torch: torch 2.15.0+cu132",
        "fits       torch 2.10 to 2.11 for CUDA 13",
        "to fix it  take torch 2.11 for CUDA 13, which it fits, or a wheel of demo",
        "fixed      demo 1.0.0, where today: demo/_C.so was built for another torch: torch",
        "works      demo 1.0.0, fits torch 2.10 to 2.15 for CUDA 13",
        "works      with nothing of torch or of GPUs: demo 1.0.0",
    ):
        assert " ".join(line.split()) in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())
    quiet = "\n".join(report_lines(found, here, there, (), quiet=True, verbose=False))
    assert quiet.startswith("breaks")
    assert "works" not in quiet
    document = json.loads(report_json(found, here, there, ()))
    assert document["then"]["torch"] == "2.15.0+cu132"
    assert [one["state"] for one in document["packages"]] == ["breaks", "works", "fixed", "works"]
    assert document["packages"][0]["fits"] == {"minors": ["2.10", "2.11"], "kind": " for CUDA 13"}


OFFERS = {
    "newer": (
        ("2.0.0", (">=2.15",)),
        "`torchwheel install demo==2.0.0 --index https://host` takes demo-2.0.0.whl",
    ),
    "newer, of any torch": (("2.0.0", ()), "of whose torch the index says nothing"),
    "older": (("0.9.0", (">=2.15",)), "demo==0.9.0"),
    "older, of any torch": (("0.9.0", ()), "has no other wheel"),
    "none": (None, "https://host has no other wheel for it; `torchwheel build demo` builds one"),
}


@pytest.mark.parametrize("name", OFFERS)
def test_an_index_is_asked_for_another_version(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offered, says = OFFERS[name]
    asked = []

    def choose(_: str, wanted: object, *__: object) -> SimpleNamespace:
        asked.append(str(wanted))
        if offered is None:
            return SimpleNamespace(accepted=())
        wheel = SimpleNamespace(version=Version(offered[0]), file=f"demo-{offered[0]}.whl")
        needs = SimpleNamespace(torch=offered[1])
        return SimpleNamespace(accepted=[SimpleNamespace(candidate=wheel, needs=needs)])

    monkeypatch.setattr(packages_room, "choose", choose)
    subjects = [
        verdict(package(ATEN), Move(torch="2.15")),
        verdict(package(CUDA), Move(torch="2.15")),
        verdict(package(CUDA, tags="cp312-cp312-linux_x86_64"), Move(python="3.14")),
    ]
    found = add_offers(subjects, "https://host", environment(), None, Quiet())  # type: ignore[arg-type]
    assert says in str(found[0].offer)
    assert (found[1].offer, asked) == (None, ["demo!=1.0.0", "demo"])


def test_packages_are_read_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "demo/__init__.py": b"raise SystemExit('was imported')",
        "demo/_C.so": linked(undefined=[GONE], needed=["libother.so.9", "libnone.so.1"]),
        "other/libother.so.9": linked(soname="libother.so.9"),
        "plain/__init__.py": b"",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for name in ("demo", "other", "plain"):
        info = tmp_path / f"{name}-1.0.0.dist-info"
        info.mkdir()
        own = [one for one in files if one.startswith(f"{name}/")]
        (info / "RECORD").write_text("".join(f"{one},,\n" for one in own))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(
        "torchwheel_runtime.doctor.dist_info.dist_infos.__defaults__", ([str(tmp_path)],)
    )
    here = environment(None, program=Path(sys.executable))
    found = read_packages([], here, Quiet())
    assert [one.title for one in found] == ["demo 1.0.0", "other 1.0.0"]
    links = found[0].natives[0].links
    assert links is not None
    assert (set(links.absent), links.undefined) == ({"libnone.so.1"}, {GONE})
    for name, says in (("gone", "expected a package"), ("plain", "expected native libraries")):
        with pytest.raises(UsageError, match=says):
            read_packages([name], here, Quiet())
