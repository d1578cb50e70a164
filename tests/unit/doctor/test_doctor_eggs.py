"""Packages that no wheel installed: eggs, what `setup.py` leaves, links to a source tree."""

import zipfile
from pathlib import Path

import pytest
from dist_infos import put

from torchwheel.inspect.inspection import inspect_package
from torchwheel_runtime.doctor import dist_info
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC

INFO = "Metadata-Version: 1.2\nName: my-op\nVersion: 1.2\n"
REQUIRES = "numpy\ntorch>=2.6\n\n[dev]\ntorch<2\n"


def tree(root: Path) -> Path:
    """The package my_op with a library in it, and one beside it."""
    (root / "my_op").mkdir(parents=True)
    (root / "my_op" / "__init__.py").touch()
    for library in ("my_op/_C.so", "my_op_cuda.so"):
        (root / library).write_bytes(ELF_MAGIC)
    return root


def describe(folder: Path, **files: str) -> None:
    folder.mkdir()
    files = {
        "PKG-INFO": INFO,
        "requires.txt": REQUIRES,
        "top_level.txt": "my_op\nmy_op_cuda\n",
    } | files
    for name, text in files.items():
        (folder / name).write_text(text)


def egg(site: Path) -> list[Path]:
    """`setup.py install` of setuptools, which lists the egg in easy-install.pth."""
    describe(tree(site / "my_op-1.2-py3.11.egg") / "EGG-INFO")
    return [site, site / "my_op-1.2-py3.11.egg"]


def zipped(site: Path) -> list[Path]:
    with zipfile.ZipFile(site / "my_op-1.2-py3.11.egg", "w") as archive:
        archive.writestr("EGG-INFO/PKG-INFO", INFO)
        archive.writestr("my_op/__init__.py", "")
    return [site, site / "my_op-1.2-py3.11.egg"]


def single_version(site: Path) -> list[Path]:
    """`setup.py install --single-version-externally-managed`: old pip, conda, Debian."""
    describe(tree(site) / "my_op-1.2-py3.11.egg-info")
    return [site]


def distutils(site: Path) -> list[Path]:
    tree(site).joinpath("my_op-1.2.egg-info").write_text(INFO)
    return [site]


def conda(site: Path) -> list[Path]:
    """Of conda or a distribution: a dist-info without RECORD."""
    tree(site)
    describe(
        site / "my_op-1.2.dist-info",
        METADATA=f"{INFO}Requires-Dist: torch>=2.6\n",
        WHEEL="Wheel-Version: 1.0\n",
    )
    (site / "my_op-1.2.dist-info" / "INSTALLER").write_text("conda\n")
    (site / "~y_op-1.1.dist-info").mkdir()  # of a pip that was stopped
    return [site]


def develop(site: Path) -> list[Path]:
    """`setup.py develop` and old `pip install -e`, as easy-install.pth has the source's folder."""
    describe(tree(site.parent / "source") / "my_op.egg-info")
    (site / "my-op.egg-link").write_text(f"{site.parent}/source\n.")
    return [site, site.parent / "source"]


def develop_of_a_tree_that_is_gone(site: Path) -> list[Path]:
    (site / "my-op.egg-link").write_text("/gone/source\n.")
    return [site]


BOTH = {"my_op/_C.so", "my_op_cuda.so"}
CASES = {
    egg: ("egg", "1.2", ">=2.6", BOTH),
    zipped: ("zipped egg", "1.2", None, set()),
    single_version: ("setup.py", "1.2", ">=2.6", BOTH),
    conda: ("wheel", "1.2", ">=2.6", BOTH),
    distutils: ("setup.py", "1.2", None, {"my_op/_C.so"}),
    develop: ("setup.py", "1.2", ">=2.6", BOTH),
    develop_of_a_tree_that_is_gone: ("egg-link", "", None, set()),
}


@pytest.fixture
def site(tmp_path):
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


@pytest.mark.parametrize("install", CASES)
def test_what_no_wheel_installed_is_found_and_read(site, install):
    path = [str(root) for root in install(site)]
    (found,) = dist_info.find_distribution("my-op", dist_info.dist_infos(path))
    info = dist_info.read_dist_info(found)
    libraries = dist_info.native_libraries(found.parent, info, ())
    names = {str(library.relative_to(found.parent)) for library in libraries}
    assert (info.kind, info.version, info.torch, names) == CASES[install]
    assert info.ours is False
    gone = install is develop_of_a_tree_that_is_gone
    assert bool(info.problems) == gone, info.problems
    if gone:
        assert info.problems == ('my-op.egg-link leads to "/gone/source", where it is not',)


@pytest.mark.parametrize("install", [egg, single_version, develop, conda])
def test_it_is_found_by_its_module_and_inspected(site, install, monkeypatch):
    for root in reversed(install(site)):
        monkeypatch.syspath_prepend(str(root))
    found = inspect_package("my_op_cuda")
    assert found.title == "my-op 1.2"
    assert found.kind == "package"
    assert set(found.members) == {*BOTH, "my_op/__init__.py"}
    assert "torch>=2.6" in [str(one) for one in found.metadata.requires_dist]


def lone(site: Path) -> None:
    (site / "my_op.cpython-311-x86_64-linux-gnu.so").write_bytes(ELF_MAGIC)
    (site / "my_op.so").write_bytes(ELF_MAGIC)


def namespace(site: Path) -> None:
    (site / "my_op" / "part").mkdir(parents=True)


def editable(site: Path) -> None:
    describe(site / "my_op-1.2.dist-info", METADATA=INFO, RECORD="my_op.pth,,\n")
    origin = '{"dir_info": {"editable": true}, "url": "file:///src"}'
    (site / "my_op-1.2.dist-info" / "direct_url.json").write_text(origin)


@pytest.mark.parametrize("install", [tree, lone, namespace, editable])
def test_what_nothing_says_anything_of_is_not_judged(site, install, monkeypatch):
    install(site)
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(UsageError, match="not judged; name its libraries one by one"):
        inspect_package("my_op")


def test_a_source_tree_on_the_path_is_no_second_installation(site):
    put(site, name="my_op")
    path = [str(site), *(f"{root}/" for root in develop(site))]  # a folder is one by any spelling
    (found,) = dist_info.find_distribution("my-op", dist_info.dist_infos(path))
    assert found.name == "my_op-1.0.0.dist-info"


def test_an_egg_beside_a_wheel_is_a_second_installation(site):
    put(site, name="my_op")
    path = [str(root) for root in egg(site)]
    found = dist_info.find_distribution("my-op", dist_info.dist_infos(path))
    assert [one.name for one in found] == ["my_op-1.0.0.dist-info", "EGG-INFO"]
