"""pip, uv and poetry install from an index of twenty releases, on a host of plain files.

The index and the store of the wheels are two servers, `python -m http.server`. The wheels are small
ones with the names, tags, claims and requirements of every variant that the matrix releases.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import uv
from installers import ROOT, UPLOADED, plain_server, stub

from torchwheel.cli import main
from torchwheel.index.catalogue import Catalogue, catalogue_text, read_wheel_entry
from torchwheel.index.writer import IndexedWheel, build_index
from torchwheel.inspect.wheel import read_wheel
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import Variant, select
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration

VERSIONS = [f"1.{number}.0" for number in range(20)]
NEWEST, BEFORE = VERSIONS[-1], VERSIONS[-2]
GROUP = "cu130/torch2.11"
POETRY = "poetry==2.5.1"


def write_release(store: Path, earlier: Path, version: str, variants: Sequence[Variant]) -> None:
    """The assets of a release in a store, and its catalogue as it is downloaded."""
    folder = store / f"v{version}"
    day = f"2026-01-{VERSIONS.index(version) + 1:02}T00:00:00Z"
    made = [stub(folder, variant, version) for variant in variants]
    # A bundled package changes less often than the project.
    number = VERSIONS.index(version) // 5
    made.append(
        make_wheel(
            folder,
            name="torchwheel_runtime",
            version=f"0.1.{number}",
            claims=None,
            requires=(),
        )
    )
    wheels = [read_wheel(path) for path in made]
    for wheel in wheels:
        beside = wheel.path.with_name(f"{wheel.path.name}.metadata")
        beside.write_bytes(wheel.metadata_bytes)
    entries = tuple(read_wheel_entry(wheel, day) for wheel in wheels)
    (earlier / folder.name).mkdir(parents=True)
    text = catalogue_text(Catalogue("fusedops", folder.name, entries))
    (earlier / folder.name / "catalogue.json").write_text(text)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store, the catalogues, and an index of torch alone."""
    folder = tmp_path_factory.mktemp("releases")
    variants = select(load(ROOT / "matrix.yaml"), ["release"])
    for version in VERSIONS:
        write_release(folder / "store", folder / "earlier", version, variants)
    torch = [
        make_wheel(folder / "torch", name="torch", version=version, claims=None, requires=())
        for version in ("2.11.0", "2.15.0")
    ]
    site = folder / "site"
    build_index([IndexedWheel(wheel, ("simple",), UPLOADED) for wheel in torch], site / "pypi")
    return folder


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[tuple[str, str]]:
    """The addresses of the site and of the store."""
    with plain_server(place / "site") as site, plain_server(place / "store") as store:
        yield site, store


@pytest.fixture
def rebuild(place: Path, address: tuple[str, str]) -> Callable[[str], Path]:
    """Builds the index anew with other withdrawals."""

    def build(withdrawn: str = "") -> Path:
        (place / "yanked.yaml").write_text(f"schema: 1\n{withdrawn}")
        out = place / "site" / "index"
        options = ("--yanked", str(place / "yanked.yaml"), "--out", str(out))
        store = f"{address[1]}/{{tag}}"
        call = ["index", "build", str(place / "earlier"), "--address", store, *options]
        assert main(call) == 0
        return out

    return build


def install_with_uv(
    site: str, requirements: Sequence[str], folder: Path, group: str = GROUP
) -> list[str]:
    """Install each requirement into a folder of its own; the versions that came."""
    found = []
    for number, requirement in enumerate(requirements):
        target = folder / f"uv-{number}"
        subprocess.run(
            [uv.find_uv_bin(), "pip", "install", "--no-config", "--no-deps", "--no-progress"]
            + ["--python", sys.executable, "--target", str(target), "--no-cache"]
            + ["--default-index", f"{site}/index/{group}/", requirement],
            check=True,
            capture_output=True,
        )
        found += installed_in(target)
    return found


_PIP = """
import json, sys
from pip._internal.cli.main import main
for target, requirement in json.load(sys.stdin):
    options = ["--isolated", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]
    if main(["install", *options, "--index-url", sys.argv[1], "--target", target, requirement]):
        sys.exit(f"{requirement} was not installed")
"""


def install_with_pip(
    site: str,
    requirements: Sequence[str],
    folder: Path,
    group: str = GROUP,
    says: list[str] | None = None,
) -> list[str]:
    """The same with pip, in one process: it takes longest to start."""
    calls = [(str(folder / f"pip-{at}"), wanted) for at, wanted in enumerate(requirements)]
    done = subprocess.run(
        [sys.executable, "-c", _PIP, f"{site}/index/{group}/"],
        input=json.dumps(calls),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if says is not None:
        says.append(done.stderr)
    return [version for target, _ in calls for version in installed_in(Path(target))]


def installed_in(target: Path) -> list[str]:
    return [path.name.split("-")[1].removesuffix(".dist") for path in target.glob("fusedops-*")]


INSTALLERS = (install_with_uv, install_with_pip)


@pytest.mark.nightly
def test_twenty_releases_are_small_and_all_install(
    rebuild: Callable[[], Path], address: tuple[str, str], tmp_path: Path
) -> None:
    out = rebuild()
    size = sum(path.stat().st_size for path in out.rglob("*"))
    assert size < 20e6
    assert not list(out.rglob("*.whl*"))
    wanted = [f"fusedops=={version}" for version in VERSIONS]
    small = [f"fusedops=={version}+cu130" for version in (VERSIONS[0], NEWEST)]
    for install in INSTALLERS:
        assert install(address[0], ["fusedops"], tmp_path / "newest") == [NEWEST]
        assert install(address[0], wanted, tmp_path / "all") == VERSIONS
        versions = install(address[0], small, tmp_path / "small")
        assert versions == [f"{version}+cu130" for version in (VERSIONS[0], NEWEST)]


def test_a_yanked_wheel_is_skipped_and_can_be_named(
    rebuild: Callable[[str], Path], address: tuple[str, str], tmp_path: Path
) -> None:
    reason = "wrong sums; use another"
    rebuild(f'yanked: {{fusedops=={NEWEST}: "{reason}"}}')
    # Of a version that is yanked as a whole, `==` takes the highest local version.
    wanted = ["fusedops", f"fusedops==={NEWEST}", f"fusedops=={NEWEST}+cu130"]
    for install in INSTALLERS:
        versions = install(address[0], wanted, tmp_path / "yanked")
        assert versions == [BEFORE, NEWEST, f"{NEWEST}+cu130"]
    says: list[str] = []
    install_with_pip(address[0], wanted[1:2], tmp_path / "warned", says=says)
    assert reason in says[0]
    rebuild("")
    for install in INSTALLERS:
        assert install(address[0], wanted[:1], tmp_path / "again") == [NEWEST]


def test_a_pin_of_a_yanked_version_moves_no_torch(
    rebuild: Callable[[str], Path], address: tuple[str, str], tmp_path: Path
) -> None:
    rebuild(f"yanked: {{fusedops=={NEWEST}: wrong sums}}")
    for install in INSTALLERS:
        for group in ("cu130", "cpu"):  # who uses them may have any torch
            found = install(address[0], [f"fusedops=={NEWEST}"], tmp_path / group, group)
            assert found == [NEWEST]


def test_a_wheel_that_was_deleted_is_not_offered(
    place: Path, rebuild: Callable[[str], Path], address: tuple[str, str], tmp_path: Path
) -> None:
    wheel = f"fusedops-{NEWEST}-py3-none-manylinux_2_17_x86_64.whl"
    asset = place / "store" / f"v{NEWEST}" / wheel
    aside = asset.rename(tmp_path / wheel)
    try:
        rebuild(f"removed: {{fusedops=={NEWEST}: built from the wrong commit}}")
        for install in INSTALLERS:
            assert install(address[0], ["fusedops"], tmp_path / "next") == [BEFORE]
    finally:
        aside.rename(asset)


@pytest.mark.nightly
def test_poetry_installs_from_it(
    rebuild: Callable[[str], Path], address: tuple[str, str], tmp_path: Path
) -> None:
    rebuild(f"yanked: {{fusedops=={NEWEST}: wrong sums}}")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        f"""
[project]
name = "user"
version = "1"
requires-python = ">=3.10,<4"
dependencies = ["fusedops"]
[tool.poetry]
package-mode = false
[[tool.poetry.source]]
name = "ours"
url = "{address[0]}/index/{GROUP}/"
priority = "primary"
[[tool.poetry.source]]
name = "torch"
url = "{address[0]}/pypi/simple/"
priority = "supplemental"
"""
    )
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    env |= {f"POETRY_{name}": str(tmp_path / name) for name in ("CACHE_DIR", "CONFIG_DIR")}
    env |= {"POETRY_VIRTUALENVS_IN_PROJECT": "true", "PYTHON_KEYRING_BACKEND": _NO_KEYRING}
    poetry = [uv.find_uv_bin(), "tool", "run", "--python", sys.executable, "--from", POETRY]
    done = subprocess.run(
        [*poetry, "poetry", "install", "--no-interaction", "--no-root", "--no-ansi"],
        cwd=project,
        env=env,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (site,) = (project / ".venv").glob("lib/python3*/site-packages")
    assert installed_in(site) == [BEFORE]
    assert list(site.glob("torch-2.15.0.dist-info"))
    assert list(site.glob("torchwheel_runtime-0.1.3.dist-info"))


_NO_KEYRING = "keyring.backends.null.Keyring"
