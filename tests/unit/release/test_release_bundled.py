"""A release with a bundled package: the same bytes in every artifact, tried with every wheel."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from release_artifacts import H200, Artifacts, refused, run, smoke_of
from release_artifacts import NATIVE as NATIVE_WHEEL

from torchwheel.index.catalogue import read_catalogue
from torchwheel.pipeline import bundled
from torchwheel.release.assemble import assemble
from torchwheel.release.assets import check_handover
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.files import sha256
from wheelmaker import make_wheel

pytestmark = pytest.mark.usefixtures("green_gates")

HELPER = "helper-0.1-py3-none-any.whl"
NATIVE, PURE = "cu130-stable", "pure"


HELPER_WHEEL = {"name": "helper", "version": "0.1", "claims": None, "requires": ()}


def add_helper(folder: Path, **wheel: object) -> Path:
    return make_wheel(folder / "bundled", **{**HELPER_WHEEL, **wheel})  # type: ignore[arg-type]


@pytest.fixture
def artifacts(artifacts: Artifacts) -> Artifacts:
    """Both wheels of the release, each artifact with the bundled package, and their records."""
    shutil.rmtree(artifacts.root)
    artifacts.replace("source: project}", "source: project, bundled: [helper]}")
    folder = artifacts.matrix.parent / "helper"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "helper"\n')
    for variant, wheel in ((NATIVE, NATIVE_WHEEL), (PURE, {})):
        made = artifacts.root / f"wheel-{variant}"
        add_helper(made)
        artifacts.add(variant, make_wheel(made, **{**wheel, "requires": ("torch>=2.11", "helper")}))
        artifacts.smoke(variant)
    return artifacts


def test_it_is_released_with_the_wheels(artifacts, out):
    text = run(artifacts, out)
    assert f"with {HELPER}" in text.splitlines()
    digest = hashlib.sha256((out / HELPER).read_bytes()).hexdigest()
    assert f"{digest}  {HELPER}\n" in (out / "SHA256SUMS").read_text()
    assert sorted(path.name for path in (out / "pypi").iterdir()) == [
        "demo-1.0.0-py3-none-any.whl",
        "demo-1.0.0.tar.gz",
        HELPER,
        "helper-0.1.tar.gz",
    ]
    *_, helper = read_catalogue(out / "catalogue.json").wheels
    assert (helper.file, helper.project, helper.sha256) == (HELPER, "helper", digest)
    assert (helper.claims, helper.smoke) == (None, ())
    assert (out / f"{HELPER}.metadata").is_file()


def test_a_release_is_a_valid_input(artifacts, out):
    """In a release the bundled package lies beside the wheels, not in a folder of its own."""
    run(artifacts, out)
    before = (out / "catalogue.json").read_bytes()
    (out / "stray").touch()
    assemble(artifacts.matrix, ["release"], [out], out, Quiet())
    assert (out / "catalogue.json").read_bytes() == before
    assert (out / HELPER).is_file()
    assert not (out / "stray").exists()


def replaced(**wheel: object) -> Callable[[Artifacts], None]:
    """Another bundled package in every artifact, with the records of wheels tried with it."""

    def replace(a: Artifacts) -> None:
        for variant, path in a.wheels.items():
            shutil.rmtree(path.parent / "bundled")
            add_helper(path.parent, **wheel)
            a.add(variant, path)
            a.smoke(variant)

    return replace


def other_bytes_in_one(a: Artifacts) -> None:
    add_helper(a.root / "wheel-pure", files={"helper/__init__.py": b"other = 1\n"})


def missing(a: Artifacts) -> None:
    for folder in a.root.glob("*/bundled"):
        shutil.rmtree(folder)


ZEROS = "0" * 64
TWO = "helper-0.1-py3-none-any.whl, helper-0.2-py3-none-any.whl"
BUNDLED = f"wheel-{NATIVE}/bundled"
REFUSALS: dict[str, tuple[Callable[[Artifacts], object], str]] = {
    "other bytes in one artifact": (other_bytes_in_one, f"wheel-pure/bundled/{HELPER}: sha256 "),
    "for one Python": (
        replaced(tag="cp312-none-any"),
        "helper-0.1-cp312-none-any.whl: a bundled package has the tag py3-none-any; got cp312-none",
    ),
    "machine code": (
        replaced(files={"helper/x.so": b"\x7fELF"}),
        f"{HELPER}: a bundled package is pure Python, but helper/x.so is machine code",
    ),
    "missing": (missing, "bundled packages: none; expected one for each of helper"),
    "not of the matrix": (
        lambda a: a.replace(", bundled: [helper]", ""),
        f"bundled packages: {HELPER}; expected none",
    ),
    "two versions": (
        lambda a: add_helper(a.root / "wheel-pure", version="0.2"),
        f"bundled packages: {TWO}; expected",
    ),
    "built with other bytes": (
        lambda a: a.edit(a.build_file(PURE), bundled={HELPER: ZEROS}),
        f"pure: sha256 {{sha}} of {HELPER}; a build record says {ZEROS}",
    ),
    "tried with other bytes": (
        lambda a: a.edit(a.smoke_file(PURE), bundled={HELPER: ZEROS}),
        f"pure: sha256 {{sha}} of {HELPER}; a smoke record says {ZEROS}",
    ),
    "tried without it": (
        lambda a: a.edit(a.smoke_file(NATIVE), bundled={}),
        f"{NATIVE}: was tried without {HELPER}, as a smoke record says",
    ),
    "another name": (
        replaced(name="requests", version="9"),
        f"{BUNDLED}/requests-9-py3-none-any.whl: a bundled package named requests; expected helper",
    ),
    "another package in it": (
        replaced(files={"helper/__init__.py": b"", "requests/__init__.py": b""}),
        f"{BUNDLED}/{HELPER}: requests/__init__.py: is not of the project; expected files of help",
    ),
}
BRINGS_OTHERS = ("not of the matrix", "two versions")


@pytest.mark.parametrize("name", REFUSALS)
def test_another_bundled_package_is_refused(artifacts, name):
    damage, says = REFUSALS[name]
    digest = hashlib.sha256((artifacts.root / "wheel-pure/bundled" / HELPER).read_bytes())
    damage(artifacts)
    lines = refused(artifacts)
    assert any(line.startswith(says.replace("{sha}", digest.hexdigest())) for line in lines)
    assert (len(lines) > 1) == (name in BRINGS_OTHERS), lines


def test_a_published_name_keeps_its_bytes(artifacts, out, tmp_path):
    run(artifacts, tmp_path / "earlier" / "v1.0.0", version="v1.0.0")
    run(artifacts, out, earlier=tmp_path / "earlier")
    shutil.rmtree(out)
    for variant, wheel in artifacts.wheels.items():
        add_helper(wheel.parent, files={"helper/__init__.py": b"other = 1\n"})
        artifacts.add(variant, wheel)
        artifacts.write_smoke(variant, smoke_of(wheel, H200))
    (line,) = refused(artifacts, out, earlier=tmp_path / "earlier")
    assert f"bundled/{HELPER}: expected sha256 " in line
    assert ", as v1.0.0 published this name, found " in line
    assert line.endswith("; raise its version")


@pytest.fixture
def carried(artifacts: Artifacts) -> Path:
    """The project carries the bundled package as a wheel, and has no sources of it."""
    artifacts.replace("bundled: [helper]", f"bundled: [{HELPER}]")
    shutil.rmtree(artifacts.matrix.parent / "helper")
    wheel = next(artifacts.root.rglob(HELPER))
    return Path(shutil.copy(wheel, artifacts.matrix.parent))


def test_a_carried_wheel_is_released_as_it_is(artifacts, carried, out):
    run(artifacts, out)
    assert (out / HELPER).read_bytes() == carried.read_bytes()
    assert HELPER in (out / "SHA256SUMS").read_text()
    # Its own authors publish it on PyPI.
    assert not (out / "pypi" / HELPER).exists()
    handed = check_handover(out, None, None, None)
    assert handed.endswith("files are those of SHA256SUMS")


@pytest.mark.parametrize("locked", [True, False])
def test_what_the_runtime_requires_is_released_with_the_hash_of_the_lock(
    artifacts, out, tmp_path, monkeypatch, locked
):
    lock = tmp_path / "lock.txt"
    monkeypatch.setattr(bundled, "LOCK", lock)
    (artifacts.matrix.parent / "helper" / "pyproject.toml").write_text(
        '[project]\nname = "torchwheel-runtime"\n'
    )
    packaging = {**HELPER_WHEEL, "name": "packaging", "version": "26.3"}
    for variant, path in artifacts.wheels.items():
        shutil.rmtree(path.parent / "bundled")
        add_helper(path.parent, name="torchwheel_runtime", requires=("packaging>=24.2",))
        wheel = make_wheel(path.parent / "bundled", **packaging)
        artifacts.add(variant, path)
        artifacts.smoke(variant)
    digest = sha256(wheel) if locked else ZEROS
    lock.write_text(f"packaging==26.3 --hash=sha256:{digest}\n")
    if locked:
        assert f"with {wheel.name}" in run(artifacts, out).splitlines()
        assert not (out / "pypi" / wheel.name).exists()
    else:
        says = f"bundled/{wheel.name}: a bundled package named packaging; expected torchwheel-"
        assert says in "\n".join(refused(artifacts, out))


def test_another_wheel_than_the_carried_one_is_refused(artifacts, carried, out):
    make_wheel(carried.parent, **HELPER_WHEEL, files={"helper/__init__.py": b"other = 1\n"})
    faults = refused(artifacts, out)
    assert any("a bundled package named helper; expected none" in line for line in faults)
