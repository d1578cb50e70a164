"""Releases of a setup.py's wheels, and by hand."""

import contextlib
import dataclasses
import io
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.tags import parse_tag
from release_artifacts import CPU, H200, ORDINARY, Artifacts, smoke_of, write_project

import signing
from rehearsal.forge import Token
from rehearsal.toy import forge_with_gh
from torchwheel.cli import main
from torchwheel.index.catalogue import read_catalogue, read_catalogues
from torchwheel.index.listing import Store, index_of
from torchwheel.index.pages import index_pages
from torchwheel.index.withdrawals import parse_withdrawals
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import Variant, select
from torchwheel.pipeline.inputs import claims_of
from torchwheel.release.assemble import assemble
from torchwheel.release.rules import name_and_tags
from torchwheel.smoke.smoke_record import TestReport
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from wheelmaker import make_wheel

# The release of an ordinary project: a wheel for each torch and Python, and no sdist.


pytestmark = pytest.mark.usefixtures("green_gates")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of the matrix; the tests are the project's own."""
    write_project(tmp_path, ORDINARY)
    shutil.copytree(tmp_path / "tests" / "smoke", tmp_path / "project" / "tests")
    return tmp_path


ALONE: dict[str, Any] = {
    "tests": TestReport(),
    "sources": "",
    "verdict": "imported, not run on a GPU",
    "why": None,
}
"""What differs in the record of a wheel that was imported, as its tests are for a GPU."""


def variants(root: Path) -> dict[str, Variant]:
    return {one.id: one for one in select(load(root / "matrix.yaml"), ["all"])}


def file_of(variant: Variant, version: str) -> str:
    tag = f"cp{variant.python.replace('.', '')}"
    local = f"cu130torch{variant.torch_release}"
    return f"demo-{version}+{local}-{tag}-{tag}-manylinux_2_28_x86_64.whl"


def add(made: Artifacts, variant: Variant, version: str, **wheel: Any) -> None:
    """What the jobs of a variant leave: a wheel, imported without a GPU and tried on one."""
    _, full, *tag = file_of(variant, version).removesuffix(".whl").split("-")
    requires = (f"torch=={variant.torch_release}.*",)
    # torch loads the runtime that its kernels need.
    claims = claims_of(variant, borrowed=["libcudart.so.13"])
    folder = made.root / f"wheel-{variant.id}"
    path = make_wheel(
        folder, version=full, tag="-".join(tag), claims=claims, requires=requires, **wheel
    )
    made.add(variant.id, path)
    torch = f"{variant.torch_release}.0"
    cpu, gpu = (dataclasses.replace(one, torch=torch) for one in (CPU, H200))
    made.write_smoke(variant.id, smoke_of(path, cpu, **ALONE), f"wheel-{variant.id}")
    made.write_smoke(variant.id, smoke_of(path, gpu))


def built(root: Path, version: str) -> Artifacts:
    """The artifacts of a release of all variants."""
    made = Artifacts(root / f"artifacts-{version}", root / "matrix.yaml")
    for variant in variants(root).values():
        add(made, variant, version)
    return made


def release(made: Artifacts, version: str, earlier: Path | None = None) -> Path:
    out = made.root.parent / f"v{version}"
    assemble(
        made.matrix, ["all"], [made.root], out, Quiet(), version=f"v{version}", earlier=earlier
    )
    return out


def test_every_torch_and_python_has_its_wheel_and_pypi_gets_none(root: Path) -> None:
    out = release(built(root, "1.0.0"), "1.0.0")
    catalogue = read_catalogue(out / "catalogue.json")
    names = {file_of(variant, "1.0.0") for variant in variants(root).values()}
    assert len(names) == 3
    assert {wheel.file for wheel in catalogue.wheels} == names
    # Its author publishes its sdist, and PyPI takes no local version.
    assert catalogue.sdists == ()
    assert not list((out / "pypi").glob("*"))


GPU = dataclasses.replace(H200, torch="2.13.0")
OTHER_TESTS = "cu130-torch2.13-cp312: was smoke-tested with other tests than"


@pytest.mark.parametrize(
    ("machine", "changes", "says"),
    [
        (
            dataclasses.replace(H200, torch="2.11.0"),
            {},
            r'smoke-tested with torch "2\.11\.0"; expected ==2\.13',
        ),
        # To import it is not enough on a GPU.
        (GPU, ALONE, OTHER_TESTS),
    ],
)
def test_a_wheel_that_was_tried_otherwise_is_refused(root: Path, machine, changes, says) -> None:
    made = built(root, "1.0.0")
    made.smoke("cu130-torch2.13-cp312", machine, **changes)
    with pytest.raises(TorchwheelError, match=says):
        release(made, "1.0.0")


def test_tests_that_need_no_gpu_are_named_and_must_run(root: Path) -> None:
    made = built(root, "1.0.0")
    made.replace("smoke: {", "smoke: {without_gpu: [test_demo.py], ")
    with pytest.raises(TorchwheelError, match="was smoke-tested with other tests than"):
        release(made, "1.0.0")


def test_an_index_keeps_the_earlier_version_of_each_torch(root: Path) -> None:
    catalogues = root / "catalogues"
    for version in ("0.9.0", "1.0.0"):
        out = release(built(root, version), version, catalogues if version > "1" else None)
        (catalogues / f"v{version}").mkdir(parents=True)
        (out / "catalogue.json").rename(catalogues / f"v{version}" / "catalogue.json")
    index = index_of(
        read_catalogues([catalogues]),
        Store("https://forge.example/{tag}"),
        parse_withdrawals("schema: 1\n", "yanked.yaml"),
    )
    pages = {path: page.text() for page in index_pages(index) for path in page.paths}
    for torch in ("2.11", "2.13"):
        of_torch = [one for one in variants(root).values() if one.torch_release == torch]
        listed = json.loads(pages[f"cu130/torch{torch}/demo/index.json"])["files"]
        expected = {
            file_of(one, version): version for one in of_torch for version in ("1.0.0", "0.9.0")
        }
        assert {file["filename"] for file in listed} == set(expected)
        for file in listed:
            name = file["filename"]
            address = f"https://forge.example/v{expected[name]}/{name.replace('+', '%2B')}"
            assert file["url"] == address
        assert [file["filename"].split("+")[0] for file in listed] == sorted(
            (f"demo-{version}" for version in expected.values()), reverse=True
        )


# A release by hand: commands of docs/ci.md as they stand there, against a forge on loopback.


PAGE = Path(__file__).parents[3].joinpath("docs", "ci.md").read_text(encoding="utf-8")
WHEEL = "demo-1.0.0-py3-none-any.whl"


def command(start: str) -> str:
    """The command of the page that begins so, in one line."""
    found = {" ".join(span.split()) for span in re.findall(r"`((?:nox|torchwheel) [^`]+)`", PAGE)}
    (line,) = [span for span in found if span.startswith(start)]
    return line


def run(line: str, **names: object) -> str:
    """Run a command with names in place of its capitals; returns what it prints.

    A session of nox only calls torchwheel.
    """
    words = shlex.split(line)
    call = [words[2], *words[4:]] if words[0] == "nox" else words[1:]
    for name, value in names.items():
        call = [str(value) if word == name else word for word in call]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(call) == 0
    return output.getvalue()


@pytest.fixture
def checkout(artifacts: Artifacts, monkeypatch) -> Path:
    """The folder of the matrix, with the wheels and records in `dist`."""
    folder = artifacts.matrix.parent
    artifacts.replace("selections: {", "selections: {default: [cu130-stable, pure], ")
    artifacts.root.rename(folder / "dist")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def forge(checkout, monkeypatch):
    with forge_with_gh(checkout / "forge") as (made, programs):
        made.tags["v1.0.0"] = "0" * 40
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        monkeypatch.setenv("GH_TOKEN", made.issue(Token({"contents": "write"}, 1, 1)))
        monkeypatch.setenv("REHEARSAL_FORGE", made.address)
        yield made


@pytest.mark.usefixtures("green_gates")
def test_a_release_by_hand(checkout, forge):
    assert "assembled in dist/release" in run(command("nox -s assemble -- --selection"))
    assert run(command("nox -s assets")).startswith("v1.0.0: ")
    assert " assets are those of dist/release" in run(command("nox -s published"))
    # `nox -s earlier` does this for each release; the rehearsal runs it.
    earlier = ["gh", "release", "download", "v1.0.0", "--dir", "catalogues/v1.0.0"]
    subprocess.run([*earlier, "--pattern", "catalogue.json"], check=True)
    (checkout / "yanked.yaml").write_text("schema: 1\n")
    build = command("nox -s index -- build DIR --address https")
    assert "releases: 1" in run(build, DIR="catalogues")
    pages = (checkout / "dist" / "index").rglob("demo/index.html")
    link = f'href="https://github.com/OWNER/NAME/releases/download/v1.0.0/{WHEEL}#sha256='
    assert any(link in page.read_text() for page in pages)


@pytest.mark.usefixtures("green_gates")
def test_a_record_made_elsewhere_is_read(checkout):
    elsewhere = checkout / "elsewhere"
    elsewhere.mkdir()
    (checkout / "dist" / "smoke-pure" / "smoke").rename(elsewhere / "smoke")
    both = command("nox -s assemble -- dist FOLDER")
    run(both, FOLDER="elsewhere")
    assert len(list(Path("dist/release").glob("pure.smoke-*.json"))) == 2


def test_a_wheel_that_was_downloaded(checkout, tmp_path, monkeypatch):
    root = signing.open_root(tmp_path / "root")
    monkeypatch.setenv("TORCHWHEEL_TRUSTED_ROOT", str(root.trusted_root))
    job = signing.Job("https://github.com/OWNER/NAME", ".github/workflows/release.yml", "0" * 40)
    wheel, bundle = checkout / "dist" / "wheel-pure" / WHEEL, tmp_path / "bundle.json"
    signing.sign_files(root, job, [wheel], bundle)
    (checkout / "SHA256SUMS").write_text(f"{signing.subjects_of([wheel])[0][1]}  {WHEEL}\n")
    line = command("torchwheel verify WHEEL")
    assert "FAILED" not in run(line, WHEEL=wheel, FILE=bundle)


@pytest.mark.parametrize(
    ("python_tag", "tag", "right"),
    [
        ("cp312", "cp312-cp312-manylinux_2_28_x86_64", True),
        ("cp312", "cp311-cp311-manylinux_2_28_x86_64", False),
        ("abi3", "cp39-abi3-manylinux_2_28_x86_64", True),
        ("abi3", "cp312-cp312-manylinux_2_28_x86_64", False),
        ("py3", "py3-none-manylinux_2_28_x86_64", True),
        ("abi3", "cp39-abi3-manylinux_2_28_aarch64", False),
    ],
)
def test_a_wheel_has_the_tags_of_its_variant(root: Path, python_tag: str, tag: str, right: bool):
    variant = dataclasses.replace(next(iter(variants(root).values())), python_tag=python_tag)
    sources = SimpleNamespace(matrix=load(root / "matrix.yaml"))
    wheel = SimpleNamespace(name=sources.matrix.project.name, tags=frozenset(parse_tag(tag)))
    case = SimpleNamespace(candidate=SimpleNamespace(wheel=wheel), variant=variant)
    assert bool([*name_and_tags(sources, case)]) != right
