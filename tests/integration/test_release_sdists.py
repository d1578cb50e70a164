"""An sdist of a release gives the wheel that was tried, and has the same bytes everywhere."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from build import ProjectBuilder

from torchwheel.inspect.wheel import read_wheel
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import select
from torchwheel.pipeline.bundled import EPOCH
from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.repair import repack, stamp
from torchwheel.pipeline.sources import source_files, stage
from torchwheel.release.artifacts import Candidate, HashedWheel, ReleaseCase
from torchwheel.release.sdists import Sdist, make_sdists, sdist_faults
from torchwheel_runtime.builder import variables
from torchwheel_runtime.builder.setuptools_ext import NATIVE_REQUIREMENTS
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.files import sha256
from wheelmaker import PURE

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "1.0.0"
[tool.setuptools]
packages = ["{name}"]
package-data = {{"{name}" = ["*.txt"]}}
"""
SOURCES = "assemble from the sources that the wheels were built from"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    text = (ROOT / "tests" / "unit" / "matrix" / "small.yaml").read_text()
    changed = text.replace("name: fusedops, source: .", "name: demo, source: ., bundled: [helper]")
    assert changed != text
    return parse(changed, "matrix.yaml")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project demo with its bundled package helper, which tests only read."""
    folder = tmp_path_factory.mktemp("project") / "root"
    for name, place in (("demo", folder), ("helper", folder / "helper")):
        (place / name).mkdir(parents=True)
        (place / "pyproject.toml").write_text(PROJECT.format(name=name))
        (place / name / "__init__.py").write_text(f"NAME = {name!r}\n")
        (place / name / "data.txt").write_text("data\n")
    return folder


def released(root: Path, matrix: Matrix, out: Path) -> tuple[list[ReleaseCase], list[HashedWheel]]:
    """What a run built of these sources: the pure wheel, and the helper's."""
    found = []
    (out / "packed").mkdir(parents=True)
    for name, place in (("demo", root), ("helper", root / "helper")):
        source = Path(shutil.copytree(place, out / name))
        built = build_wheel(source, EPOCH, out / "built", out / "log", lambda _: None)
        packed = out / "packed"
        found.append(
            read_wheel(stamp(built, PURE, packed) if name == "demo" else repack(built, packed))
        )
    demo, helper = found
    (variant,) = select(matrix, ["pure"])
    case = ReleaseCase(variant, Candidate(demo, sha256(demo.path), PURE, ()), (), (), {})
    return [case], [HashedWheel(helper, sha256(helper.path))]


def made(root: Path, matrix: Matrix, scratch: Path) -> list[Sdist]:
    scratch.mkdir()
    return make_sdists(matrix, root, scratch, Quiet())


@pytest.fixture(scope="module")
def release(
    root: Path, matrix: Matrix, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[ReleaseCase], list[HashedWheel]]:
    return released(root, matrix, tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def sdists(root: Path, matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> list[Sdist]:
    return made(root, matrix, tmp_path_factory.mktemp("sdists") / "scratch")


def test_they_give_the_wheels_of_the_release(root, matrix, release, sdists, tmp_path):
    cases, bundled = release
    names = [(sdist.path.name, sdist.version) for sdist in sdists]
    assert names == [("demo-1.0.0.tar.gz", "1.0.0"), ("helper-1.0.0.tar.gz", "1.0.0")]
    assert list(sdist_faults(sdists, cases, bundled)) == []

    # One lacks a file, the other is of other sources.
    root = shutil.copytree(root, tmp_path / "root")
    (root / "MANIFEST.in").write_text("exclude demo/data.txt\n")
    (root / "helper" / "helper" / "data.txt").write_text("other\n")
    other = made(root, matrix, tmp_path / "other")
    assert list(sdist_faults(other, cases, bundled)) == [
        "demo-1.0.0.tar.gz: gives another wheel than demo-1.0.0-py3-none-any.whl: "
        f'"demo/data.txt" differs; {SOURCES}',
        "helper-1.0.0.tar.gz: gives another wheel than helper-1.0.0-py3-none-any.whl here; "
        f"{SOURCES}",
    ]

    # Of another release.
    newer = Sdist(sdists[0].path.with_name("demo-1.1.tar.gz"), sdists[0].source)
    assert list(sdist_faults([newer, sdists[1]], cases, bundled)) == [
        "demo-1.1.tar.gz: expected version 1.0.0, that of demo-1.0.0-py3-none-any.whl; "
        "assemble from the sources of the release"
    ]


def test_any_folder_user_and_day_give_the_same_bytes(root, matrix, sdists, tmp_path):
    first = [sha256(sdist.path) for sdist in sdists]
    root = shutil.copytree(root, tmp_path / "root")
    # Git knows some of the files, and an artifact of the release lies beside them.
    for arguments in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", "-C", str(root), *arguments], check=True)
    (root / "demo" / "artifact.txt").touch()
    elsewhere = Path(shutil.copytree(root, tmp_path / "else" / "where"))
    for path in elsewhere.rglob("*"):
        os.utime(path, (1, 1))
        if path.is_file():
            path.chmod(0o600)
    again = made(elsewhere, matrix, tmp_path / "two")
    assert [sha256(sdist.path) for sdist in again] == first
    with tarfile.open(again[0].path) as archive:
        members = archive.getmembers()
    assert {(m.mtime, m.uid, m.uname, m.mode) for m in members} == {(315532800, 0, "", 0o644)}
    names = {m.name.removeprefix("demo-1.0.0/") for m in members}
    # Nor the bundled package: it has an sdist of its own.
    assert {"PKG-INFO", "pyproject.toml", "demo/__init__.py", "demo/data.txt"} <= names
    assert not [name for name in names if "egg-info" in name or name.startswith("helper")]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> list[Sdist]:
    """The sdists of this repository: fusedops and torchwheel."""
    return make_sdists(load(ROOT / "matrix.yaml"), ROOT, tmp_path_factory.mktemp("sdists"), Quiet())


def files_in(folder: Path) -> list[Path]:
    """The files of a folder that an import did not write."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if path.parent.name != "__pycache__"]


def test_ours_has_what_a_native_build_needs_and_no_more(own):
    fusedops, torchwheel = (sdist.source for sdist in own)
    names = {str(path.relative_to(ROOT)) for path in source_files(ROOT, tracked=True)}
    for folder in ("csrc", "pkg/fusedops", "pkg/torchwheel", "pkg/torchwheel_runtime", "tests"):
        place = "tests/smoke" if folder == "tests" else folder
        ours = {name for name in names if name.startswith(f"{place}/")}
        assert {str(path.relative_to(fusedops)) for path in files_in(fusedops / folder)} == ours
    assert {path.name for path in fusedops.iterdir()} == {
        *(
            "csrc",
            "pkg",
            "tests",
            "setup.py",
            "pyproject.toml",
            "setup.cfg",
            "matrix.yaml",
            "MANIFEST.in",
        ),
        *("PKG-INFO", "README.md", "LICENSE", "CHANGELOG.md"),
    }
    # What setup.py of a native build reads beside csrc: the builder, its data and its maps.
    assert (torchwheel / "LICENSE").is_file()
    for name in ("builder/part.map", "data/arch_runs.json"):
        assert (torchwheel / "src" / "torchwheel_runtime" / name).is_file()


def test_a_native_build_asks_for_its_tools_and_a_pure_one_does_not(own, monkeypatch, tmp_path):
    source = own[0].source
    builder = ProjectBuilder(source)
    tools = set(NATIVE_REQUIREMENTS)
    assert builder.build_system_requires == {"setuptools>=77", "packaging>=24.2"}
    assert not tools & builder.get_requires_for_build("wheel")
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libcudart_static.a").touch()
    for name, value in {
        variables.ABI: "stable",
        variables.CUDA_HOME: str(tmp_path),
        variables.TOOLKIT: "13.0",
        variables.ARCH_LIST: "9.0",
        variables.TORCH: str(tmp_path),
        variables.TORCH_RELEASE: "2.11",
    }.items():
        monkeypatch.setenv(name, value)
    assert tools <= builder.get_requires_for_build("wheel")


def test_torchwheel_is_built_in_its_folder_with_the_recipes_of_images(tmp_path):
    """A checkout has links to docker/; a staged copy, the wheel and the sdist have the files."""
    recipes = {path.name: path.read_bytes() for path in (ROOT / "docker").iterdir()}
    assert {"cuda.Dockerfile", "requirements.txt"} < set(recipes)
    copy, out = stage(ROOT, tmp_path / "copy"), tmp_path / "out"
    below = "torchwheel/data/docker"
    staged = copy / "pkg" / "torchwheel" / "src" / below
    assert {path.name: path.read_bytes() for path in staged.iterdir()} == recipes
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)],
        cwd=copy / "pkg" / "torchwheel",
        check=True,
        capture_output=True,
    )
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        packed = {
            Path(name).name: archive.read(name)
            for name in archive.namelist()
            if name.startswith(f"{below}/")
        }
    assert packed == recipes
    with tarfile.open(sdist) as unpacked:
        files = [one for one in unpacked if f"/src/{below}/" in one.name]
        assert {Path(one.name).name: unpacked.extractfile(one).read() for one in files} == recipes


def test_pip_installs_ours_from_source_without_torch(own, tmp_path):
    """Under build isolation: neither torch, ninja nor a compiler is in pip's build environment."""
    links = tmp_path / "links"
    links.mkdir()
    for sdist in own:
        shutil.copy(sdist.path, links)
    site = tmp_path / "site"
    env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    # pip's cache knows a wheel that it built by the path of the sdist, which may have been another.
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
        + ["--no-cache-dir"]
        + ["--no-binary", "fusedops,torchwheel-runtime", "--find-links", str(links)]
        + ["fusedops==1.0.0", "torchwheel-runtime==0.1.0"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(site.glob("fusedops/**/bias_act.cu"))
    package = ROOT / "pkg" / "torchwheel_runtime" / "src" / "torchwheel_runtime"
    ours = {str(path.relative_to(package)) for path in source_files(package, tracked=True)}
    installed = {
        str(p.relative_to(site / "torchwheel_runtime"))
        for p in files_in(site / "torchwheel_runtime")
    }
    assert installed == ours
    use = (
        "import torch, fusedops, torchwheel_runtime; x = torch.ones(2, 3); "
        "print(fusedops.bias_add(x, x[0]).sum().item(), fusedops.__file__)\n"
        "print(torchwheel_runtime.__file__)"
    )
    call = [sys.executable, "-c", use]
    env["PYTHONPATH"] = str(site)
    used = subprocess.run(call, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert used.stdout.split() == [
        "12.0",
        str(site / "fusedops" / "__init__.py"),
        str(site / "torchwheel_runtime" / "__init__.py"),
    ], used.stderr
