"""The SBOM of a wheel: what is written, who takes it, and what the gate refuses."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.check.content import content
from torchwheel.check.facts import Fact, GateError, Limits, WheelFacts
from torchwheel.check.inspection_text import inspection_text
from torchwheel.check.named_claims import case_of
from torchwheel.inspect.inspection import inspect_wheel
from torchwheel.inspect.sbom import (
    FILE,
    BuiltLibrary,
    Material,
    Sbom,
    dump_sbom,
    parse_sbom,
    pypi_material,
)
from torchwheel.inspect.wheel import read_wheel
from torchwheel.matrix.load import load
from torchwheel.pipeline.materials import toolkit_materials
from torchwheel.pipeline.repair import BuildMaterials, finish_wheel, pack, stamp
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.inspect.elf import Library
from torchwheel_runtime.toolkit.lock import components
from wheelmaker import PURE, make_wheel, stable, universal

ROOT = Path(__file__).parents[3]
MATRIX = load(ROOT / "matrix.yaml")
GRAFTED = "demo.libs/libx-0a1b2c3d.so.1"
NATIVE = {"demo/_C.so": b"\x7fELF 1", GRAFTED: b"\x7fELF 2"}
HASH = hashlib.sha256(NATIVE[GRAFTED]).hexdigest()
CUDA = tuple(sorted(toolkit_materials(MATRIX.toolkit("cu130"), "linux_x86_64")))


def sbom_in(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(FILE)]
        return archive.read(name).decode()


def built(folder: Path, claims: Claims) -> Path:
    """A wheel as the pipeline finishes it, with an SBOM of auditwheel's in it."""
    tag = "py3-none-any" if claims.abi == "pure" else "py3-none-linux_x86_64"
    files = {"demo/__init__.py": b"", **(NATIVE if claims.abi == "stable" else {})}
    files |= {part.file: f"\x7fELF {part.name}".encode() for part in claims.parts}
    info = "demo-1.0.0.dist-info"
    made = make_wheel(folder / "in", tag=tag, files=files, claims=None)
    with zipfile.ZipFile(made) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[f"{info}/sboms/auditwheel.cdx.json"] = b'{"bomFormat": "CycloneDX"}\n'
    pack(
        {name: data for name, data in members.items() if "RECORD" not in name},
        f"{info}/RECORD",
        made,
    )
    (folder / "out").mkdir()
    return stamp(made, claims, folder / "out", functools.partial(made_with, claims))


def made_with(claims: Claims, file: str) -> tuple[Material, ...]:
    part = claims.part_of(file)
    release = (part.torch_release if part else claims.torch_release) or "2.11"
    torch = pypi_material("headers", "torch", f"{release}.0", "ab" * 32)
    return (*CUDA, torch, Material("compiler", "gcc", "12.2.0"))


@pytest.mark.parametrize("claims", [stable(), PURE, universal()], ids=lambda one: one.abi)
def test_cyclonedx_takes_it_and_the_gate_does(tmp_path: Path, claims: Claims) -> None:
    """The validator of CycloneDX's own library, which knows the schema."""
    wheel = built(tmp_path, claims)
    text = sbom_in(wheel)
    names = read_wheel(wheel).members
    assert any(name.endswith("sboms/auditwheel.cdx.json") for name in names)  # it is kept
    document = json.loads(text)
    assert "serialNumber" not in document
    assert "timestamp" not in document["metadata"]
    aggregate = "complete" if claims.abi == "pure" else "incomplete"
    assert document["compositions"][0]["aggregate"] == aggregate
    judge(wheel)
    validation = pytest.importorskip("cyclonedx.validation.json")
    from cyclonedx.schema import SchemaVersion

    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    broken = text.replace('"version": 1,', '"version": "1",', 1)
    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(broken)


def judge(wheel: Path) -> str:
    read = read_wheel(wheel)
    own = (name for name in read.members if ".so" in name)
    libraries = tuple(Library(name, "x86_64", None, ()) for name in own)
    facts = WheelFacts(Fact(read), Fact(libraries), Fact({}), Fact())
    return content(facts, Limits(max_size_mib=1))


def test_the_versions_and_hashes_are_those_of_the_lock(tmp_path: Path) -> None:
    read = parse_sbom(sbom_in(built(tmp_path, stable())), "x")
    assert [one.file for one in read.libraries] == [GRAFTED, "demo/_C.so"]
    assert read.libraries[0].materials == ()  # auditwheel's own SBOM says whose copy it is
    for part in components("13.0"):
        (material,) = [one for one in read.materials if one.name == part.project]
        assert (material.version, material.sha256) == (part.version, part.hash_for("linux_x86_64"))
        assert material.purl == f"pkg:pypi/{part.project}@{part.version}"
    roles = {one.name: one.role for one in CUDA}
    assert roles["CUDA"] == "toolkit"
    assert roles["nvidia-cuda-runtime"] == "runtime"
    assert roles["nvidia-cuda-cccl"] == "headers"
    # A cross build runs its own machine's compiler, and links the other's runtime.
    crossed = {one.name: one for one in toolkit_materials(MATRIX.toolkit("cu130"), "linux_aarch64")}
    same = [one.name for one in CUDA if crossed[one.name] == one]
    assert same == ["nvidia-cuda-nvcc", "nvidia-nvvm", "CUDA"]
    packages = [*toolkit_materials(MATRIX.toolkit("rocm7.2"), "linux_x86_64")]
    assert packages[1] == Material("compiler", "hipcc", purl="pkg:deb/debian/hipcc?distro=sid")


def test_the_compiler_is_asked_where_it_runs(tmp_path: Path) -> None:
    """Of a pure wheel nobody asks for one."""
    found = BuildMaterials(CUDA, "g++").complete()
    (gcc,) = [one for one in found if one.name == "gcc"]
    assert (gcc.role, gcc.purl) == ("compiler", f"pkg:generic/gcc@{gcc.version}")
    assert Material("runtime", "libstdc++", gcc.version) in found
    assert not any(
        one.role == "runtime" for one in BuildMaterials((), "g++", static_cxx=False).complete()
    )
    pure = make_wheel(tmp_path / "in", claims=None)
    made = finish_wheel(pure, PURE, tmp_path, BuildMaterials((), "no-compiler"))
    assert parse_sbom(sbom_in(made), "x").libraries == ()


Change = Callable[[Sbom], Sbom]
FIELDS = {"role": "compiler", "name": "gcc", "version": "12.2.0"}


def without(*names: str) -> Change:
    """What no library was made with."""
    return materials(lambda all_: tuple(one for one in all_ if one.name not in names))


def other(name: str, **fields: str) -> Change:
    return materials(
        lambda all_: tuple(
            dataclasses.replace(one, **fields) if one.name == name else one  # type: ignore[arg-type]
            for one in all_
        )
    )


def materials(change: Callable[[tuple[Material, ...]], tuple[Material, ...]]) -> Change:
    def of(sbom: Sbom) -> Sbom:
        libraries = (
            dataclasses.replace(one, materials=change(one.materials)) for one in sbom.libraries
        )
        return dataclasses.replace(sbom, libraries=tuple(libraries))

    return of


def library(**fields: str) -> Change:
    def of(sbom: Sbom) -> Sbom:
        first, *others = sbom.libraries
        changed = dataclasses.replace(first, **fields)  # type: ignore[arg-type]
        return dataclasses.replace(sbom, libraries=(changed, *others))

    return of


LIES: dict[str, tuple[Change, str]] = {
    "another version": (
        lambda sbom: dataclasses.replace(sbom, version="2"),
        'expected demo 1.0.0+cu130, found "demo" "2"',
    ),
    "another hash": (library(sha256="00"), f'{GRAFTED}: expected {HASH}, found "00"'),
    "a library that is not there": (
        library(file="demo.libs/a.so"),
        "demo.libs/a.so: expected no such library, found",
    ),
    "no library": (
        lambda sbom: dataclasses.replace(sbom, libraries=()),
        f'{GRAFTED}: expected {HASH}, found "no such library"',
    ),
    "no compiler": (without("gcc", "nvidia-cuda-nvcc", "nvidia-nvvm"), "expected its compiler"),
    "no toolkit": (without("CUDA"), "expected CUDA 13.0, found no toolkit"),
    "another toolkit": (other("CUDA", version="12.4"), 'expected CUDA 13.0, found "CUDA 12.4"'),
    "a component of another": (
        other("nvidia-nvvm", version="13.2.86"),
        'expected a part of CUDA 13.0, found "nvidia-nvvm 13.2.86"',
    ),
    "no torch": (without("torch"), "expected the headers of torch>=2.11, found none"),
    "an older torch": (
        other("torch", version="2.10.0"),
        'expected headers of torch>=2.11, found "2.10.0"',
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_the_gate_refuses_a_lie(tmp_path: Path, lie: str) -> None:
    change, says = LIES[lie]
    wheel = built(tmp_path, stable())
    read = read_wheel(wheel)
    assert read.sbom
    libraries = tuple(Library(name, "x86_64", None, ()) for name in NATIVE)
    bent = dataclasses.replace(read, sbom=change(read.sbom))
    with pytest.raises(GateError, match=re.escape(says)):
        content(WheelFacts(Fact(bent), Fact(libraries), Fact({}), Fact()), Limits(1))
    missing = dataclasses.replace(read, sbom=None)
    with pytest.raises(GateError, match=r"^no sboms/torchwheel.cdx.json in the wheel's dist-info"):
        content(WheelFacts(Fact(missing), Fact(libraries), Fact({}), Fact()), Limits(1))


def test_packages_of_two_releases_of_debian_are_told_apart() -> None:
    packages = [Material("compiler", "hipcc", purl=f"pkg:deb/debian/hipcc?distro={suite}")
                for suite in ("forky", "sid")]  # fmt: skip
    libraries = tuple(BuiltLibrary(f"{one.purl[-3:]}.so", "", (one,)) for one in packages)
    sbom = Sbom("demo", "1", libraries, "1")
    assert parse_sbom(dump_sbom(sbom), "x") == sbom


texts = st.text(max_size=20)
known = st.builds(
    Material, st.sampled_from(["compiler", "headers", "image"]), texts, texts, texts, texts
)
libraries = st.builds(
    BuiltLibrary, texts, texts, st.lists(known, max_size=3, unique_by=lambda m: m.ref).map(tuple)
)


@given(st.builds(Sbom, texts, texts, st.lists(libraries, max_size=3).map(tuple), texts))
def test_what_is_written_is_read_or_refused(sbom: Sbom) -> None:
    """Of two libraries of one name, or two materials of one, nobody knows which is meant."""
    text = dump_sbom(sbom)
    names = {one.file for one in sbom.libraries}
    unique = len({one.ref for one in sbom.materials}) == len(sbom.materials)
    if unique and len(names) == len(sbom.libraries):
        assert parse_sbom(text, "x") == sbom
    else:
        with contextlib.suppress(MalformedError):
            parse_sbom(text, "x")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"CycloneDX"', '"SPDX"'),
        ('"1.6"', '"1.7"'),
        ('"scope": "excluded"', '"scope": "required"'),
        ('"aggregate": "incomplete"', '"aggregate": "complete"'),
        ('"version": 1,', '"version": 1, "serialNumber": "x",'),
        ('"name": "CUDA"', '"name": 5'),
        ('"components": [', '"components": [5,'),
        ('"alg": "SHA-256"', '"alg": []'),
        ("\n", " "),
    ],
)
def test_any_other_form_is_one_line(tmp_path: Path, old: str, new: str) -> None:
    text = sbom_in(built(tmp_path, stable()))
    assert old in text
    with pytest.raises(MalformedError, match=r"^x: expected an SBOM as torchwheel writes it, fou"):
        parse_sbom(text.replace(old, new, 1), "x")


def test_inspect_shows_it_in_a_line(tmp_path: Path) -> None:
    def rows(wheel: Path) -> str:
        text = " ".join(inspection_text(case_of(inspect_wheel(wheel)), ()).split())
        return text[text.index("SBOM ") : text.index(" installs ")]

    for name, claims, says in (
        (
            "native",
            stable(),
            "auditwheel.cdx.json, torchwheel.cdx.json; compiler: gcc 12.2.0, nvidia-cuda-nvcc "
            "13.0.88, nvidia-nvvm 13.0.88; toolkit: CUDA 13.0; headers: nvidia-cuda-cccl 13.0.85, "
            "nvidia-cuda-crt 13.0.88, torch 2.11.0; runtime: nvidia-cuda-runtime 13.0.96",
        ),
        (
            "pure",
            PURE,
            "auditwheel.cdx.json, torchwheel.cdx.json; made with nothing but its own sources",
        ),
    ):
        (tmp_path / name).mkdir()
        assert rows(built(tmp_path / name, claims)) == f"SBOM {says}"
