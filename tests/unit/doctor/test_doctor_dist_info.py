"""Installed distributions: dist-info folders, right, malformed and hostile, and eggs."""

import os
import zipfile
from pathlib import Path

import pytest

import wheelmaker
from torchwheel.inspect.inspection import inspect_package
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.doctor import dist_info
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC
from torchwheel_runtime.variant_format import file_text

FILES = {"demo/__init__.py": b"answer = 42\n", "demo/_C.so": ELF_MAGIC}


def put(root: Path, *, name: str = "demo", version: str = "1.0.0", **files: bytes | None) -> Path:
    """Install `demo` as pip leaves it; `files` of its dist-info replace its own; None: left out."""
    folder = root / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    for path, data in FILES.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(data)
    lines = "".join(wheelmaker.record_line(*item) for item in FILES.items())
    held = {
        "METADATA": wheelmaker.metadata(name, version, ("torch>=2.11", "numpy")),
        "WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-linux_x86_64\n",
        "RECORD": lines.encode(),
        claims_file.FILE: claims_file.dumps(wheelmaker.stable()).encode(),
        **{file.replace("__", "."): data for file, data in files.items()},
    }
    for file, data in held.items():
        if data is not None:
            (folder / file).write_bytes(data)
    return folder


LONG = wheelmaker.metadata("demo", "1.0.0", [f"torch>={'9' * 5000}"])


def test_a_complete_folder_has_no_problems(tmp_path):
    info = dist_info.read_dist_info(put(tmp_path))
    assert (info.name, info.version, info.torch) == ("demo", "1.0.0", ">=2.11")
    assert info.packages == ("demo",)
    assert {str(tag) for tag in info.tags} == {"py3-none-linux_x86_64"}
    assert info.claims == wheelmaker.stable()
    assert info.problems == ()


def test_the_label_of_a_labelled_wheel(tmp_path):
    text = file_text({"null": {}}).encode()
    assert dist_info.read_dist_info(put(tmp_path, variant__json=text)).labels == {"null": {}}


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"METADATA": None}, "demo-1.0.0.dist-info has no METADATA"),
        ({"METADATA": b"\xff\xfe"}, "METADATA cannot be read"),
        ({"METADATA": LONG}, 'METADATA requires "torch>=9'),
        ({"RECORD": None}, "has no RECORD"),
        ({"RECORD": b"a,b\n"}, "RECORD line 1: 3 fields expected, got 2"),
        ({"RECORD": b"a\0.so,,\n"}, 'RECORD names "a\\u0000.so", which no file can be named'),
        ({"RECORD": b"demo/gone.py,,\n"}, '"demo/gone.py" is gone'),
        ({"RECORD": b"demo/_C.so,sha256=x,99\n"}, '"demo/_C.so" has 4 bytes; 99 were installed'),
        ({"WHEEL": b"Tag: nonsense\n"}, 'WHEEL: "nonsense" is not a tag'),
        ({"torchwheel__json": b"{"}, "torchwheel.json: not a torchwheel claims file"),
        ({"torchwheel__json": b'{"schema": 7}'}, "expected schema 5, found 7"),
        ({"torchwheel__json": b"\xff"}, "torchwheel.json cannot be read"),
        ({"variant__json": b"[" * 10_000}, "variant.json: expected at most 32 levels, found more"),
        ({"variant__json": b"\xff"}, "variant.json cannot be read"),
    ],
)
def test_malformed_files_are_reported_and_the_rest_is_read(tmp_path, files, problem):
    info = dist_info.read_dist_info(put(tmp_path, **files))
    assert len(info.problems) == 1
    assert problem in info.problems[0]
    assert (info.name, info.version) == ("demo", "1.0.0")


def irregular(folder, name, kind):
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "name", ["METADATA", "RECORD", "WHEEL", "top_level.txt", "entry_points.txt"]
)
def test_what_is_no_file_is_told_once_and_not_read(tmp_path, name, kind):
    folder = put(tmp_path)
    irregular(folder, name, kind)
    info = dist_info.read_dist_info(folder)
    assert (info.name, info.version) == ("demo", "1.0.0")
    assert (info.irregular, info.problems) == ((folder / name,), ())
    waited_for = [folder / name] if name == "entry_points.txt" else []
    assert dist_info.irregular_entry_points([folder]) == waited_for


def test_a_name_cannot_make_a_command_another(tmp_path):
    folder = put(tmp_path, METADATA=b"Name: demo; rm -rf ~\nVersion: -1 $(x)\n")
    info = dist_info.read_dist_info(folder)
    assert (info.name, info.version) == ("demo__rm_-rf__", "1___x_")


def test_files_that_are_gone_are_counted(tmp_path):
    info = dist_info.read_dist_info(
        put(tmp_path, RECORD=b"a.py,,\nb.py,,\nc.py,,\n__pycache__/a.pyc,,\n")
    )
    assert info.problems == ('"a.py" is gone, and 2 more like it',)


@pytest.mark.parametrize(
    ("requires", "torch"),
    [
        (("torch",), ""),
        (("Torch (>=2.0)",), ">=2.0"),
        (("torchvision>=1",), None),
        (("~~~", "torch==2.6.*; python_version > '3'"), "==2.6.*"),
        (("torch>=2; extra == 'dev'",), None),
        (("torch<2; python_version < '3'", "torch>=2.6", "torch<3"), "<3,>=2.6"),
    ],
)
def test_what_it_requires_of_torch(tmp_path, requires, torch):
    metadata = wheelmaker.metadata("demo", "1.0.0", requires)
    assert dist_info.read_dist_info(put(tmp_path, METADATA=metadata)).torch == torch


def test_its_own_package_comes_first_and_private_ones_last(tmp_path):
    record = b"".join(b"%s/__init__.py,,\n" % name for name in (b"_demo", b"another", b"demo"))
    folder = put(tmp_path, RECORD=record + b"fast.cpython-312-x86_64-linux-gnu.so,,\n")
    assert dist_info.read_dist_info(folder).packages == ("demo", "another", "fast", "_demo")


def test_an_editable_installation_names_its_packages_in_top_level(tmp_path):
    folder = put(tmp_path, RECORD=b"", top_level__txt=b"demo\n_extra\n")
    assert dist_info.read_dist_info(folder).packages == ("demo", "_extra")


def test_a_file_that_may_not_be_read(tmp_path):
    folder = put(tmp_path, METADATA=None)
    os.mkfifo(folder / "unrelated")
    (folder / "METADATA").mkdir()
    (problem,) = dist_info.read_dist_info(folder).problems
    assert "METADATA cannot be read" in problem


# Which distributions are installed, and which libraries are theirs.


@pytest.fixture
def folders(tmp_path):
    put(tmp_path / "a", name="torch_scatter", version="2.1.2", torchwheel__json=None)
    put(tmp_path / "b", name="demo")
    put(tmp_path / "b", name="Fused.Ops", version="1.0", RECORD=b"fusedops/__init__.py,,\n")
    (tmp_path / "b" / "no.dist-info").write_text("a file")
    return dist_info.dist_infos([str(tmp_path / "b"), str(tmp_path / "none"), str(tmp_path / "a")])


def test_folders_come_in_the_order_of_the_path(folders):
    assert [dist_info.name_key(folder) for folder in folders] == [
        "fused-ops",
        "demo",
        "torch-scatter",
    ]


@pytest.mark.parametrize("name", ["torch-scatter", "Torch_Scatter", "torch_scatter"])
def test_a_distribution_is_found_by_any_spelling(folders, name):
    (found,) = dist_info.find_distribution(name, folders)
    assert found.name == "torch_scatter-2.1.2.dist-info"


def test_a_distribution_is_found_by_what_is_imported_from_it(folders):
    (found,) = dist_info.find_distribution("fusedops", folders)
    assert found.name == "Fused.Ops-1.0.dist-info"
    assert dist_info.find_distribution("fused", folders) == []


def test_those_with_claims_and_those_with_a_name_like_it(folders):
    assert dist_info.distributions_with_claims(folders) == ["demo", "fused-ops"]
    assert dist_info.similar_names("torch_scater", folders) == ["torch-scatter"]
    assert dist_info.similar_names("pandas", folders) == []
    assert dist_info.similar_names("x" * 10_000, folders) == []


def test_libraries_are_those_listed_and_those_in_the_packages_folder(tmp_path):
    info = dist_info.read_dist_info(put(tmp_path))
    elsewhere = tmp_path / "src" / "demo"
    (elsewhere / "lib").mkdir(parents=True)
    (elsewhere / "lib" / "libx.so.1").write_bytes(ELF_MAGIC)
    (elsewhere / "notes.so").write_text("no library")
    (tmp_path / "demo.libs").mkdir()
    (tmp_path / "demo.libs" / "libgomp.so.1").write_bytes(ELF_MAGIC)
    found = dist_info.native_libraries(tmp_path, info, [elsewhere, tmp_path / "demo.libs"])
    assert [path.relative_to(tmp_path) for path in found] == [
        (tmp_path / "demo" / "_C.so").relative_to(tmp_path),
        (elsewhere / "lib" / "libx.so.1").relative_to(tmp_path),
    ]


# What no wheel installed: eggs, what `setup.py` leaves, links to a source tree.

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
