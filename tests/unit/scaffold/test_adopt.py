"""What `torchwheel adopt` makes of a foreign project."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from foreign_project import FILES, SETUP, write_foreign_project, write_tagged_project
from linkmaker import LEAVING, plant
from torchwheel.cli import main
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.variants import select
from torchwheel.pipeline.wheels import can_build_twice
from torchwheel.scaffold.adopt import matrix_text, plan, project_files, report, write_files
from torchwheel.scaffold.foreign import read_project
from torchwheel.scaffold.new import new_project
from torchwheel_runtime.errors import UsageError

ROOT = Path(__file__).parents[3]
NEW = (
    ROOT
    / "pkg"
    / "torchwheel"
    / "src"
    / "torchwheel"
    / "scaffold"
    / "templates"
    / "new"
    / "matrix.yaml.in"
)


@pytest.fixture
def foreign(tmp_path):
    return write_foreign_project(tmp_path / "foreign")


def adopt(folder, wheel, *replace):
    files = project_files(read_project(folder), ".", [wheel])
    planned = plan(folder, files, replace)
    write_files(folder, planned)
    return {one.path: one.action for one in planned}


def matrix_of(folder):
    """The text of the matrix of a project, and what it says."""
    text = matrix_text(read_project(folder), ".", "torchwheel_runtime-1-py3-none-any.whl")
    return text, yaml.safe_load(text)


def containers_of_new():
    section = re.search(r"^containers:\n(?:  .*\n)+", NEW.read_text(), re.MULTILINE)[0]
    return yaml.safe_load(section)["containers"]


def asking(folder):
    """The foreign project, with all that a person is asked about."""
    text = SETUP.replace("import torch\n", "import torch, odd\n").replace(
        "flags =", "HAS_GPU = torch.cuda.is_available()\nflags ="
    )
    text = text.replace('["torch>=2.6", "einops"]', "requirements()")
    text = text.replace('", "FALSE") == "TRUE"', '", NO) == "TRUE"')
    return write_foreign_project(folder, setup=text)


def by_cmake(folder):
    """A project that scikit-build-core and CMake build."""
    return Path(shutil.copytree(ROOT / "tests" / "integration" / "cmake", folder))


def asking_by_cmake(folder):
    file = by_cmake(folder) / "CMakeLists.txt"
    file.write_text(
        "if(DEFINED ENV{FORCE_CUDA} OR $ENV{DEMO_DEBUG})  # $ENV{NOT_READ}\n"
        f"execute_process(COMMAND nvidia-smi)\nendif()\n{file.read_text()}"
    )
    return folder


def tagged(folder):
    folder.mkdir()
    write_tagged_project(folder, "setup.cfg")
    return folder


def of_the_stable_abi(folder):
    return Path(shutil.copytree(ROOT / "tests" / "integration" / "existing", folder))


PROJECTS = {
    "foreign": write_foreign_project,
    "asking": asking,
    "cmake": by_cmake,
    "asking-cmake": asking_by_cmake,
    "tagged": tagged,
    "stable": of_the_stable_abi,
}


@pytest.mark.parametrize("name", PROJECTS)
def test_the_report_and_the_matrix_of_a_project(golden, tmp_path, name):
    """What was read, and what a person must do: a line of both for each."""
    folder = PROJECTS[name](tmp_path / name)
    project = read_project(folder)
    text, matrix = matrix_of(folder)
    golden(f"{name}.txt", f"{report(project, folder, [])}\n\n{text}")
    for line in project.todo:
        assert f"#   TODO {line}" in text.splitlines()
    # Last year's tag builds with last year's packages.
    assert matrix["containers"] == containers_of_new()


def test_the_matrix_resolves_at_once_and_its_comments_are_right(foreign, wheel):
    assert set(adopt(foreign, wheel).values()) == {"written", "extended"}
    assert set(adopt(foreign, wheel).values()) == {"unchanged"}
    # The wheel that it carries is not among the ignored ones.
    assert (foreign / ".torchwheel" / ".gitignore").read_text().endswith("!*.whl\n")
    assert (foreign / ".gitignore").read_text().startswith(FILES[".gitignore"])
    file = foreign / "matrix.yaml"
    matrix = load(file)
    (first,) = select(matrix, ["default"])
    assert first.id.startswith("cu130-torch")
    assert len(select(matrix, ["release"])) == 8
    assert select(matrix, ["pull-request"]) == select(matrix, ["default"])
    # Workflows ask for it everywhere; a foreign build seldom gives equal bytes.
    assert not can_build_twice(matrix)
    text = file.read_text().replace("  # bundled: ", "  bundled: ")
    file.write_text(text + "\ngates: {reproducible: true}\n")
    assert can_build_twice(load(file))
    assert load(file).project.bundled == (f".torchwheel/{wheel.name}",)


@pytest.mark.parametrize(
    ("old", "new", "key", "value"),
    [
        ("code=sm_80", "code=sm_90a", "archs_by", "declared"),
        ("compute_80,code=sm_80", "compute_XX", "archs_by", "replaced"),
        ('packages=find_packages(exclude=["tests"])', "packages=['a', 'a.b']", "imports", ["a"]),
        ("from packaging.version import Version", "", "requires", ["ninja"]),
        ("BuildExtension}", "BuildExtension.with_options(use_ninja=False)}", "requires", None),
    ],
)
def test_what_another_setup_script_gives(tmp_path, old, new, key, value):
    assert old in SETUP
    folder = write_foreign_project(tmp_path / "foreign", setup=SETUP.replace(old, new))
    _, matrix = matrix_of(folder)
    assert matrix["build"][key] == (["packaging"] if value is None else value)


@pytest.fixture
def cmake(tmp_path):
    return by_cmake(tmp_path / "cmake")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("set(CMAKE_CUDA_ARCHITECTURES 80 90)", "CMAKE_CUDA_ARCHITECTURES"),
        ("  SET ( TORCH_CUDA_ARCH_LIST 8.0)", "TORCH_CUDA_ARCH_LIST"),
        ('set_target_properties(_C PROPERTIES CUDA_ARCHITECTURES "80")', "CUDA_ARCHITECTURES"),
        ("# set(CMAKE_CUDA_ARCHITECTURES 80)", None),
        ("message(${CMAKE_CUDA_ARCHITECTURES})", None),
    ],
)
def test_archs_that_cmake_files_set_are_replaced(cmake, line, found):
    file = cmake / "CMakeLists.txt"
    file.write_text(f"{line}\n{file.read_text()}")
    project = read_project(cmake)
    matrix = parse(matrix_of(cmake)[0], "matrix.yaml")
    assert matrix.own_build.archs_by == ("replaced" if found else "environment")
    says = f"CMakeLists.txt:1: sets {found}; nvcc gets the matrix's archs instead"
    assert (says in project.todo) == bool(found)
    decides = "the project sets them" if found else "TORCH_CUDA_ARCH_LIST decides"
    assert f"hard-coded: none; {decides}" in report(project, cmake, [])


def test_cmake_that_setup_py_starts_is_in_the_build_environment(tmp_path):
    """As natten's does. An image has no make, so it gets ninja."""
    calls = "import subprocess\nfrom setuptools import setup\nsubprocess.run(['cmake', 'csrc'])\n"
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "CMakeLists.txt").write_text("project(demo LANGUAGES CUDA)\n")
    (tmp_path / "setup.py").write_text(f"{calls}setup(name='demo', version='1')\n")
    build = matrix_of(tmp_path)[1]["build"]
    assert build["requires"] == ["cmake", "ninja"]
    assert build["environment"] == {"CMAKE_GENERATOR": "Ninja"}


def test_nothing_of_the_author_is_overwritten(foreign, wheel):
    (foreign / "noxfile.py").write_text("mine\n")
    (foreign / ".github" / "workflows").mkdir(parents=True)
    (foreign / ".github" / "workflows" / "release.yml").write_text("mine\n")
    before = {path: path.read_bytes() for path in foreign.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"\.github/workflows/release\.yml.*noxfile\.py") as caught:
        adopt(foreign, wheel)
    assert len(str(caught.value).splitlines()) == 1
    assert {path: path.read_bytes() for path in foreign.rglob("*") if path.is_file()} == before
    done = adopt(foreign, wheel, "noxfile.py", ".github/workflows/release.yml")
    assert done["noxfile.py"] == "replaced"
    assert done["matrix.yaml"] == "written"
    for name, text in FILES.items():
        assert (foreign / name).read_text().startswith(text), name


@pytest.mark.parametrize(
    ("name", "target", "says"),
    [
        ("noxfile.py", "file", "noxfile.py"),
        (".github", "folder", "a link or something else at .github; nothing was"),
        ("noxfile.py", "missing", "at noxfile.py; nothing was"),
    ],
)
def test_nothing_is_written_through_a_link(foreign, wheel, tmp_path, name, target, says):
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_text("mine\n")
    (foreign / name).symlink_to(outside / target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=re.escape(says)):
        adopt(foreign, wheel, "all")
    assert (outside / "file").read_text() == "mine\n"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("case", LEAVING)
def test_a_link_that_leads_out_is_refused_before_anything_is_written(foreign, capsys, case):
    plant(foreign, LEAVING[case])
    before = sorted(foreign.rglob("*"))
    assert main(["adopt", str(foreign)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f": expected a link that stays in {foreign}, found one to " in line
    assert sorted(foreign.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["setup.py", "pyproject.toml", "setup.cfg", "PKG-INFO", "CMakeLists.txt", "tests"]
)
def test_a_link_that_leads_out_is_not_read_even_if_git_ignores_it(foreign, tmp_path, name):
    subprocess.run(["git", "-C", foreign, "init", "--quiet"], check=True)
    (foreign / ".gitignore").write_text("*\n")
    (foreign / name).rename(tmp_path / name) if (foreign / name).exists() else None
    (foreign / name).symlink_to(tmp_path / name)
    with pytest.raises(UsageError, match=f"{name}: expected a link that stays in "):
        read_project(foreign)


def test_a_link_inside_is_read(foreign, wheel):
    (foreign / "setup.py").rename(foreign / "real.py")
    (foreign / "setup.py").symlink_to("real.py")
    (foreign / "tests").rename(foreign / "checks")
    (foreign / "tests").symlink_to("checks")
    adopt(foreign, wheel)
    assert yaml.safe_load((foreign / "matrix.yaml").read_text())["build"]["tests"] == "tests"


@pytest.mark.parametrize("name", [".gitignore", "matrix.yaml", ".torchwheel", ".github/workflows"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["fifo", "folder"])
def test_what_is_no_file_stops_all_writing(foreign, wheel, name, make):
    place = foreign / name
    if place.name in {".torchwheel", "workflows"}:
        make = os.mkfifo  # a folder of the name is right
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    make(place)
    before = sorted(foreign.rglob("*"))
    with pytest.raises(UsageError, match=rf"at {re.escape(name)}; nothing was written"):
        adopt(foreign, wheel, "all")
    assert sorted(foreign.rglob("*")) == before


@pytest.mark.parametrize("name", ["setup.py", "setup.cfg", "pyproject.toml"])
def test_a_fifo_is_not_read(tmp_path, name):
    """Its reading would wait for ever for somebody who writes."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'demo'\n")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with ends_in_time(), pytest.raises(UsageError, match=rf"{name}: .* something that is no file"):
        read_project(tmp_path)


def test_a_fifo_among_the_tests_is_left_out(foreign):
    os.mkfifo(foreign / "tests" / "test_a.py")
    with ends_in_time():
        assert read_project(foreign).tests == "tests"


@contextlib.contextmanager
def ends_in_time(seconds=10):
    """Raise an error in the block if it does not end in time."""

    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_new_project_gets_the_same_files(foreign, wheel, tmp_path):
    adopt(foreign, wheel)
    made = new_project("foreign-demo", tmp_path / "new", [wheel])
    for name in ("release", "wheels", "smoke", "index"):
        path = f".github/workflows/{name}.yml"
        assert (made / path).read_bytes() == (foreign / path).read_bytes()
    same = ("noxfile.py", ".torchwheel/requirements.txt", ".github/actions/nox/action.yml")
    for path in same:
        ours, theirs = ((folder / path).read_text() for folder in (made, foreign))
        assert ours.replace('["wheels"]', '["matrix"]') == theirs


CONFIG = """\
[metadata]
name = from-config
[options]
python_requires = >=3.12
install_requires =
    torch>=2.14
    scipy
"""
PKG_INFO = "Name: from-sdist\nRequires-Python: >=3.12\nRequires-Dist: torch>=2.14\n\nText\n"
PYPROJECT = """\
[project]
name = "from-pyproject"
requires-python = ">=3.12"
dependencies = ["torch>=2.14"]
"""
CALL = 'setup(name="from-setup", python_requires=">=3.12", install_requires=["torch>=2.14"])\n'
BY_CODE = "setup(name=NAME, python_requires=PYTHON, install_requires=NEEDS)\n"


@pytest.mark.parametrize(
    ("name", "setup", "files"),
    [
        ("from-setup", CALL, {}),
        ("from-config", "setup()\n", {"setup.cfg": CONFIG}),
        ("from-pyproject", "", {"pyproject.toml": PYPROJECT}),
        ("from-pyproject", "setup()\n", {"pyproject.toml": PYPROJECT, "PKG-INFO": PKG_INFO}),
        # Of an sdist, what code makes is declared in another file, so nobody is asked.
        ("from-sdist", BY_CODE, {"PKG-INFO": PKG_INFO}),
        ("from-config", BY_CODE, {"setup.cfg": CONFIG}),
    ],
)
def test_metadata_is_read_wherever_it_is_declared(tmp_path, name, setup, files):
    (tmp_path / "demo").mkdir()
    for path, text in {"setup.py": setup, "demo/__init__.py": "", **files}.items():
        (tmp_path / path).write_text(text)
    project = read_project(tmp_path)
    declared = project.declared
    assert (declared.name, declared.python, declared.torch) == (name, ">=3.12", ">=2.14")
    assert project.imports == ("demo",)
    assert project.todo == ()


def test_what_comes_from_an_address_is_not_asked_of_an_index(tmp_path):
    needs = "['pytest', 'fast_soft_sort @ git+https://host.test/x.git', 'numpy']"
    (tmp_path / "setup.py").write_text(f"setup(name='demo', extras_require={{'test': {needs}}})\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_demo.py").write_text("import fast_soft_sort, numpy\n")
    project = read_project(tmp_path)
    assert project.test_requires == ("numpy",)
    assert "tests imports fast_soft_sort: add its distribution to smoke.requires" in project.todo


def test_metadata_that_code_makes_is_a_todo(tmp_path):
    (tmp_path / "setup.py").write_text(BY_CODE)
    project = read_project(tmp_path, "demo")
    assert project.declared.name == "demo"
    assert project.todo == (
        "setup.py:1: python_requires of setup() is made by code; under `torch:` of matrix.yaml, "
        "leave the Pythons that it wants",
        "setup.py:1: install_requires of setup() is made by code; under `torch:` of matrix.yaml, "
        "leave the minors that it wants",
        "no package was found: fill in build.imports",
    )


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("pyproject.toml", "[project\n", r"pyproject\.toml: expected TOML, found "),
        ("setup.cfg", "no section\n", r"setup\.cfg: expected an INI file, found "),
        ("setup.py", "setup(name=f())\n", "expected the project's name"),
        ("setup.py", "setup(\n", r"setup\.py:1: expected Python"),
        ("pyproject.toml", '[project]\nname = "../x"\n', "expected the project's name"),
        (
            "pyproject.toml",
            '[project]\nname = "x"\ndependencies = ["torch<2"]\n',
            "found torch<2 with Python; widen",
        ),
    ],
)
def test_a_project_that_cannot_be_read_is_one_line(foreign, capsys, name, content, says):
    (foreign / name).write_text(content)
    if "torch<2" in content:
        (foreign / "setup.py").write_text("setup()\n")
    assert main(["adopt", str(foreign)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(says, line)
    assert not (foreign / "matrix.yaml").exists()


def test_a_folder_without_a_project_is_one_line(tmp_path, capsys):
    assert main(["adopt", str(tmp_path)]) == 2
    assert "expected a setup.py or a pyproject.toml, found neither" in capsys.readouterr().err
    assert main(["adopt", str(tmp_path), "--into", str(tmp_path / "a")]) == 2
    assert "expected --into and --source together" in capsys.readouterr().err


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_whatever_a_project_says_gives_a_matrix_or_one_line(tmp_path_factory, name, value, note):
    folder = tmp_path_factory.mktemp("any")
    text = (
        f"import os\nx = os.getenv('FORCE_CUDA') == {value!r}\ny = os.getenv({note!r})\n"
        f"setup(name='demo', packages=[{name!r}], ext_modules=[CUDAExtension({name!r}, z)])\n"
    )
    (folder / "setup.py").write_text(text, encoding="utf-8", errors="replace")
    try:
        _, matrix = matrix_of(folder)
    except UsageError as error:
        lines = str(error).splitlines()
    else:
        lines = [json.dumps(matrix["build"]["environment"].get("FORCE_CUDA"))]
    assert len(lines) == 1
