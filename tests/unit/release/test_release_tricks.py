"""Each trick that once made a release believe a record or publish a foreign file is refused.

`docs/security.md` has the table of them.
"""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from release_artifacts import NATIVE as WHEEL
from release_artifacts import TAG, Artifacts, refused, run

from torchwheel.check.audit import Audit
from torchwheel.check.facts import Fact, Limits, WheelFacts
from torchwheel.check.gates import judge
from torchwheel.findings import CheckResult
from torchwheel.inspect.wheel import read_wheel
from torchwheel.pipeline.repair import repack_members, stamp, wheel_members
from torchwheel.release import artifacts as artifacts_
from torchwheel.release import sdists
from wheelmaker import PURE as PURE_CLAIMS
from wheelmaker import make_wheel, stable

INIT = {"demo/__init__.py": b"answer = 42\n"}
NATIVE, PURE = "cu130-stable", "pure"


def repacked(a: Artifacts, change: Callable[[Path], Path]) -> None:
    """The pure wheel as `change` leaves it, with new records."""
    shutil.rmtree(a.root / "smoke-pure")
    a.add(PURE, change(a.wheels[PURE]))


@pytest.fixture
def pure_alone(artifacts: Artifacts) -> Artifacts:
    """Only the pure wheel, so that the real gates judge."""
    artifacts.drop(NATIVE)
    return artifacts


def with_files(**files: bytes) -> Callable[[Artifacts], None]:
    return lambda a: a.again(PURE, files={**INIT, **files})


def rezipped(path: Path, mode: str = "w", executable: str = "") -> Path:
    """Write the members again; one of them may become executable."""
    with zipfile.ZipFile(path) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    if mode == "a":
        path.write_bytes(b"#!/bin/sh\n")  # offsets count from the first byte
    with zipfile.ZipFile(path, mode) as archive:
        for info, data in members:
            if executable:
                bits = 0o755 if info.filename == executable else 0o644
                info.create_system, info.external_attr = 3, (0o100000 | bits) << 16
            archive.writestr(info, data)
    return path


def console_script(a: Artifacts) -> None:
    text = b"[console_scripts]\npip = demo:main\n"
    a.again(PURE, bend=lambda m: m.update({"demo-1.0.0.dist-info/entry_points.txt": text}))


GATE = "pure: gate content: "
OUTSIDE = "is installed outside the packages; expected files of demo"
NO_METADATA = "is no metadata that a build writes"
FILES = {
    "evil.pth": "runs whenever Python starts",
    "torch/__init__.py": "is not of the project; expected files of demo",
    "sitecustomize.py": "runs whenever Python starts",
    "demo-1.0.0.data/scripts/pip": OUTSIDE,
    "demo-1.0.0.data/data/etc/profile.d/x.sh": OUTSIDE,
    "demo.libs/x.py": "is no library, beside those of auditwheel",
    "demo/__pycache__/__init__.cpython-311.pyc": "is compiled Python, which no source",
    "demo-1.0.0.dist-info/direct_url.json": NO_METADATA,
    "demo-1.0.0.dist-info/sub/evil.py": NO_METADATA,
}
CONTENT = {
    name: (with_files(**{name: b"x"}), f"{GATE}{name}: {says}") for name, says in FILES.items()
}
CONTENT |= {
    "a console script": (
        console_script,
        f'{GATE}entry_points.txt: console_scripts "pip" = "demo:main" is not in the project\'s '
        "pyproject.toml",
    ),
    "an executable file": (
        lambda a: repacked(a, lambda p: rezipped(p, executable="demo/__init__.py")),
        f"{GATE}demo/__init__.py: is executable; only libraries are",
    ),
    "a build tag": (
        lambda a: repacked(a, lambda p: p.rename(p.with_name("demo-1.0.0-1-py3-none-any.whl"))),
        f"{GATE}its file name has the build tag 1; none expected",
    ),
    "bytes before the zip": (
        lambda a: repacked(a, lambda p: rezipped(p, "a")),
        "demo-1.0.0-py3-none-any.whl: member 'demo/__init__.py' comes after 10 bytes of no member",
    ),
}


@pytest.mark.parametrize(("damage", "line"), CONTENT.values(), ids=CONTENT)
def test_a_foreign_file_is_refused(pure_alone, damage, line):
    damage(pure_alone)
    assert line in [one[: len(line)] for one in refused(pure_alone, selection=PURE)]


def test_licenses_and_lists_of_parts_are_metadata(pure_alone):
    names = ("LICENSE.txt", "licenses/a/COPYING", "sboms/auditwheel.cdx.json", "top_level.txt")
    with_files(**{f"demo-1.0.0.dist-info/{name}": b"" for name in names})(pure_alone)
    run(pure_alone, selection=PURE)


def test_an_entry_point_that_the_project_declares_is_published(pure_alone):
    console_script(pure_alone)
    project = pure_alone.matrix.parent / "project" / "pyproject.toml"
    project.write_text('[project]\nname = "demo"\n[project.scripts]\npip = "demo:main"\n')
    pure_alone.add(PURE, pure_alone.wheels[PURE])
    out = pure_alone.matrix.parent / "release"
    run(pure_alone, selection=PURE)
    assert (out / "catalogue.json").is_file()


def test_the_glibc_of_the_matrix_holds_for_every_wheel(artifacts, monkeypatch):
    """A wheel that a host built asks for more than one of a container may."""
    limit = 'containers: {base: bullseye, glibc: "2.28", python: "3.11"}\n'
    artifacts.matrix.write_text(artifacts.matrix.read_text() + limit)
    artifacts.again(NATIVE, **{**WHEEL, "tag": "py3-none-manylinux_2_34_x86_64"})

    def one_gate(path: Path, limits: Limits) -> tuple[CheckResult, ...]:
        facts = WheelFacts(
            Fact(read_wheel(path)), Fact(()), Fact({}), Fact(Audit("manylinux_2_34_x86_64", ()))
        )
        one = [result for result in judge(facts, limits) if result.name == "platform-tag"]
        return tuple(one) if "manylinux" in path.name else ()

    monkeypatch.setattr(artifacts_, "run_gates", one_gate)
    assert refused(artifacts) == [
        f"{NATIVE}: gate platform-tag: manylinux_2_34_x86_64 is for newer systems than glibc 2.28: "
        'nothing stricter is known; build without these functions, or set containers.glibc: "2.34" '
        "in matrix.yaml"
    ]


# Metadata of a wheel whose records all agree: what the sources give is built again, and compared.


def rewritten(name: str, old: bytes, new: bytes) -> Callable[[dict[str, bytes]], None]:
    """Replace a text in a file of dist-info."""

    def bend(members: dict[str, bytes]) -> None:
        member = f"demo-1.0.0.dist-info/{name}"
        assert old in members[member]
        members[member] = members[member].replace(old, new)

    return bend


def with_field(line: str) -> Callable[[dict[str, bytes]], None]:
    return rewritten("METADATA", b"\nVersion", f"\n{line}\nVersion".encode())


def with_member(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({f"demo-1.0.0.dist-info/{name}": b"import os\n"})


METADATA = {
    "a requirement by URL": (with_field("Requires-Dist: x @ https://x.example/x.whl"), "METADATA"),
    "one more requirement": (with_field("Requires-Dist: requests"), "METADATA"),
    "another extra": (with_field("Provides-Extra: all"), "METADATA"),
    "another Requires-Python": (rewritten("METADATA", b">=3.10", b">=3.13"), "METADATA"),
    "another name's case": (rewritten("METADATA", b"Name: demo", b"Name: Demo"), "METADATA"),
    "a name it provides": (with_field("Provides-Dist: torch"), "METADATA"),
    "a name it makes obsolete": (with_field("Obsoletes-Dist: torch"), "METADATA"),
    "a dynamic field": (with_field("Dynamic: Summary"), "METADATA"),
    "a summary": (with_field("Summary: see https://x.example"), "METADATA"),
    "a description": (rewritten("METADATA", b">=3.10\n", b">=3.10\n\nrun this\n"), "METADATA"),
    "an injected tag": (rewritten("WHEEL", b"Tag: ", b"Tag: py3-none-any\nTag: "), "WHEEL"),
    "a field of WHEEL": (rewritten("WHEEL", b"Tag: ", b"Build: 9\nTag: "), "WHEEL"),
    "code among licenses": (with_member("licenses/evil.pth"), "licenses/evil.pth"),
    "a list of parts": (with_member("sboms/auditwheel.cdx.json"), "sboms/auditwheel.cdx.json"),
    "top modules": (with_member("top_level.txt"), "top_level.txt"),
    "entry points": (
        lambda members: members.update({"demo-1.0.0.dist-info/entry_points.txt": b"[x]\n"}),
        "entry_points.txt",
    ),
}


@pytest.fixture
def rebuilt(artifacts, tmp_path, monkeypatch):
    """`rebuilt(variant, …)`: a wheel as a run stamps it, where the sources give `demo` alone."""
    base = make_wheel(tmp_path / "base", claims=None, requires=())
    monkeypatch.setattr(sdists, "_wheel_of", lambda _: base)
    monkeypatch.setattr("torchwheel.release.assemble.sdist_faults", sdists.sdist_faults)

    def stamped(variant: str, **bent: object) -> Path:
        artifacts.drop(variant)
        native = variant == NATIVE
        tag = TAG if native else "py3-none-any"
        made = make_wheel(tmp_path / "bent", claims=None, requires=(), tag=tag, **bent)  # type: ignore[arg-type]
        out = artifacts.root / f"wheel-{variant}"
        out.mkdir()
        wheel = stamp(made, stable() if native else PURE_CLAIMS, out)
        artifacts.add(variant, wheel)
        artifacts.smoke(variant)
        return wheel

    stamped(NATIVE)
    stamped(PURE)
    return stamped


@pytest.mark.usefixtures("green_gates")
def test_a_wheel_has_the_files_that_its_sources_give_and_libraries(artifacts, rebuilt):
    libraries = dict.fromkeys(("demo/_lib/x.so", "demo.libs/liby-1.so.2"), b"\x7fELF")
    parts = {"demo-1.0.0.dist-info/sboms/auditwheel.cdx.json": b"{}"}
    rebuilt(NATIVE, bend=lambda members: members.update({**libraries, **parts}))
    run(artifacts)


@pytest.mark.usefixtures("green_gates")
@pytest.mark.parametrize("name", ["demo/extra.py", "demo/__init__.py"])
def test_another_module_is_refused(artifacts, rebuilt, name):
    wheel = rebuilt(NATIVE, bend=lambda members: members.update({name: b"answer = 1\n"}))
    assert refused(artifacts) == [
        f'demo-1.0.0.tar.gz: gives another wheel than {wheel.name}: "{name}" differs; '
        "assemble from the sources that the wheels were built from"
    ]


@pytest.mark.usefixtures("green_gates")
@pytest.mark.parametrize("variant", [NATIVE, PURE])
@pytest.mark.parametrize("trick", METADATA)
def test_other_metadata_is_refused(artifacts, rebuilt, trick, variant):
    bend, name = METADATA[trick]
    wheel = rebuilt(variant, bend=bend)
    if trick == "a list of parts" and variant == NATIVE:
        return  # auditwheel's, of the libraries that it copies into a wheel
    info = f"demo-{wheel.name.split('-')[1]}.dist-info"
    assert refused(artifacts) == [
        f'demo-1.0.0.tar.gz: gives another wheel than {wheel.name}: "{info}/{name}" differs; '
        "assemble from the sources that the wheels were built from"
    ]


@pytest.mark.usefixtures("green_gates")
def test_another_case_of_the_name_is_refused(artifacts, rebuilt):
    gives = "demo-1.0.0.tar.gz: gives another wheel than"
    wheel = rebuilt(PURE, name="Demo", files=INIT)
    assert refused(artifacts)[0].startswith(f'{gives} {wheel.name}: "{wheel.name}" differs; ')
    wheel = rebuilt(PURE)
    members = {
        name.replace("demo-1.0.0.", "Demo-1.0.0."): data
        for name, data in wheel_members(wheel).items()
    }
    artifacts.add(PURE, repack_members(members, wheel))
    artifacts.smoke(PURE)
    assert refused(artifacts)[0].startswith(f'{gives} {wheel.name}: "Demo-1.0.0.dist-info/')
