"""`torchwheel build` on projects of others: real torch, compiler, auditwheel, gates, pip."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates
from torchwheel.inspect.wheel import read_wheel
from torchwheel.sdist.sandbox import find_sandbox
from torchwheel.smoke import trial_environment
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.files import sha256

pytestmark = pytest.mark.integration

# What the suite's smoke tests run with, so that nothing more is installed for these.
TORCH = "2.13.0"
CPU = ("--cpu", "--torch", TORCH)
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
OPT_IN = "TORCHWHEEL_TEST_CUDA_TORCH"

PLAIN_C = """\
from setuptools import Extension, setup
setup(
    name="plain",
    version="1.0+git.7",
    py_modules=["plain"],
    ext_modules=[Extension("plain_c", ["plain.c"])],
)
"""
MODULE = """\
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "plain_c", 0, -1, 0};
PyMODINIT_FUNC PyInit_plain_c(void) { return PyModule_Create(&module); }
"""


@pytest.fixture
def project(tmp_path):
    return Path(shutil.copytree(Path(__file__).parent / "ordinary", tmp_path / "ordinary"))


@pytest.fixture
def plain(tmp_path):
    """A project that compiles in a moment: C, and no torch in it."""
    folder = tmp_path / "plain"
    folder.mkdir()
    for name, text in {
        "setup.py": PLAIN_C,
        "plain.c": MODULE,
        "plain.py": "import plain_c",
    }.items():
        (folder / name).write_text(text)
    return folder


def the_wheel(dist: Path) -> Path:
    (wheel,) = dist.glob("*.whl")
    return wheel


def one_line(done: subprocess.CompletedProcess[str], status: int) -> str:
    """The message of a call that failed as it should."""
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("torchwheel: ")]
    return line


def said_by_installed(wheel: Path, call: str, tmp_path: Path, cache: Path) -> bytes:
    """What a call prints where the command that a build prints installed its wheel."""
    base = trial_environment.base_environment(cache, ("pytest", f"torch=={TORCH}"), Quiet())
    env = trial_environment.layered_environment(base, tmp_path / "env")
    install = [sys.executable, "-m", "torchwheel", "install", str(wheel)]
    subprocess.run([*install, "--python", str(env.python)], check=True)
    said = subprocess.run(
        [env.python, "-c", call], env=env.environ, cwd=tmp_path, stdout=subprocess.PIPE, check=True
    )
    return said.stdout


def test_an_sdist_becomes_a_wheel_whose_gates_hold(project, tmp_path, torchwheel, cache):
    sdist = tmp_path / "scaled-0.3.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(project, "scaled-0.3")
    done = torchwheel("build", sdist, *CPU, cwd=tmp_path, status=0)
    wheel = the_wheel(tmp_path / "dist")
    assert re.fullmatch(
        rf"scaled-0\.3\+cputorch2\.13-{TAG}-{TAG}-manylinux_2_\d+_\w+\.whl", wheel.name
    )
    results = run_gates(wheel, Limits(max_size_mib=10))
    assert all(result.ok for result in results), results
    facts = read_wheel(wheel)
    assert sorted(map(str, facts.metadata.requires_dist or ())) == ["packaging", "torch==2.13.*"]
    assert facts.claims is not None
    assert (facts.claims.backend, facts.claims.torch_range) == (None, "==2.13.*")

    record = json.loads((tmp_path / "dist" / f"{wheel.name}.json").read_text())
    assert record["source_sha256"] == sha256(sdist)
    assert record["wheel"]["sha256"] == sha256(wheel)
    assert [gate["ok"] for gate in record["gates"]] == [True] * len(results)
    assert [one["name"] for one in record["imported"]] == ["scaled"]
    assert record["wheel"]["steps"].keys() == {"torch", "build", "repair", "proof"}

    *table, _, _, command = done.stdout.splitlines()
    assert command == f"  torchwheel install dist/{wheel.name}"
    assert all(len(line) <= 80 for line in table)
    # Built for this torch, it runs with it, installed by the command that is printed.
    call = "import torch, scaled; print(scaled.scale(torch.ones(2), 3).tolist())"
    assert said_by_installed(wheel, call, tmp_path, cache) == b"[3.0, 3.0]\n"


OVERWRITES = """\
import pathlib
for name in (".git/config", "plain.py", "new"):
    with pathlib.Path(name).open("a") as file:
        file.write("# of setup.py\\n")
"""


def test_a_copy_of_a_folder_is_built_and_the_folder_stays_clean(plain, tmp_path, torchwheel):
    subprocess.run(["git", "init", "--quiet", plain], check=True)
    setup = plain / "setup.py"
    setup.write_text(OVERWRITES + setup.read_text())
    (plain / "link.py").symlink_to("plain.py")
    before = {path: path.read_bytes() for path in plain.rglob("*") if path.is_file()}
    torchwheel("build", plain, *CPU, "--dist", tmp_path / "out", cwd=tmp_path, status=0)
    # The local version it gives itself is kept, before ours.
    wheel = the_wheel(tmp_path / "out")
    assert wheel.name.startswith(f"plain-1.0+git.7.cputorch2.13-{TAG}-{TAG}-manylinux")
    assert b"of setup.py" in zipfile.ZipFile(wheel).read("plain.py"), "it writes to its copy"
    after = {path: path.read_bytes() for path in plain.rglob("*") if path.is_file()}
    assert after == before
    assert {path.owner() for path in plain.rglob("*")} == {plain.owner()}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "cuda",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(
                not os.environ.get(OPT_IN), reason=f"installs 5 GB of torch: {OPT_IN}=1"
            ),
        ),
    ],
)
def test_a_project_of_cmake_becomes_a_wheel(tmp_path, torchwheel, cache, cuda):
    """scikit-build-core, `find_package(Torch)`, and a kernel where torch is one for CUDA."""
    project = Path(shutil.copytree(Path(__file__).parent / "cmake", tmp_path / "cmake"))
    target = ("--torch", TORCH, "--archs", "9.0") if cuda else CPU
    torchwheel("build", project, *target, cwd=tmp_path, seconds=1800, status=0)
    wheel = the_wheel(tmp_path / "dist")
    toolkit = "cu130" if cuda else "cpu"
    # Its one library needs no Python, as wheel.py-api says.
    assert wheel.name.startswith(f"halved-1.0+{toolkit}torch2.13-py3-none-manylinux_2_")
    assert all(result.ok for result in run_gates(wheel, Limits(max_size_mib=10)))
    if cuda:
        return
    call = "import torch, halved; print(halved.halved(torch.ones(2)).tolist())"
    assert said_by_installed(wheel, call, tmp_path, cache) == b"[0.5, 0.5]\n"


HOSTILE = """\
import os, pathlib, socket

def attempts():
    def tried(name, attempt):
        try:
            attempt()
        except (OSError, KeyError):
            return
        done.append(name)

    done = []
    tried("network", lambda: socket.create_connection(("127.0.0.1", PORT), 5))
    tried("home", lambda: pathlib.Path("HOME/.ssh/id_rsa").read_text())
    tried("files", lambda: pathlib.Path("HOME/../outside").write_text("x"))
    tried("system", lambda: pathlib.Path("/etc/shadow").read_text())
    tried("variables", lambda: os.environ["GH_TOKEN"])
    return f"done: {','.join(done)}"
"""


def test_code_of_others_reaches_no_network_home_or_file_of_mine(plain, tmp_path, torchwheel):
    found = find_sandbox("auto", tmp_path, (), print)
    if isinstance(found, str):
        pytest.skip(f"no sandbox here: {found}")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_rsa").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        hostile = HOSTILE.replace("PORT", str(server.getsockname()[1])).replace("HOME", str(home))
        nothing = "assert attempts() == 'done: ', attempts()\n"
        setup = plain / "setup.py"
        setup.write_text(hostile + nothing + setup.read_text())
        (plain / "plain.py").write_text(f"{hostile}\nraise ImportError(attempts())\n")
        env = {"HOME": str(home), "GH_TOKEN": "x"}
        line = one_line(torchwheel("build", plain, *CPU, cwd=tmp_path, **env), 1)
    assert "smoke: import plain: ImportError: done: (the wheel" in line
    assert not (tmp_path / "outside").exists()


OF_ITS_OWN = """\
schema: 1
project: {name: plain, source: .}
abis: {ordinary: {}}
build:
  environment: {PLAIN_LEVEL: "2"}
  config_settings: {--global-option: --quiet}
toolkits:
  cu130: {backend: cuda, version: "13.0", abis: [ordinary], archs: ["9.0"], source: pypi}
torch: {"2.13": {toolkits: [cu130], pythons: ["3.11"]}}
platforms: [linux_x86_64]
"""


def test_the_matrix_of_a_project_and_its_call_reach_setup_py(plain, tmp_path, torchwheel):
    """The folder is named as users name it: by a dot."""
    setup = plain / "setup.py"
    says = "import os, sys\nraise SystemExit(f\"{os.environ['PLAIN_LEVEL']} {sys.argv[1:]}\")\n"
    setup.write_text(says + setup.read_text())
    (plain / "matrix.yaml").write_text(OF_ITS_OWN)
    options = ("--config-setting=--global-option=--verbose", "--dist", tmp_path / "dist")
    done = torchwheel("build", ".", *CPU, *options, cwd=plain)
    assert "; its last line: 2 [" in (line := one_line(done, 1))
    assert "'--verbose'" in line
    assert "'--quiet'" not in line
    assert "matrix.yaml of the project: PLAIN_LEVEL=2, " in done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("build", ["plain", "ordinary"])
def test_a_plan_compiles_nothing_where_no_ninja_divides_it(
    project, plain, tmp_path, torchwheel, build
):
    setup, without = project / "setup.py", "BuildExtension.with_options(use_ninja=False)"
    setup.write_text(setup.read_text().replace('": BuildExtension', f'": {without}'))
    for source in (plain / "plain.c", project / "csrc/scaled.cpp"):
        source.write_text("#error it was compiled\n")
    folder = {"plain": plain, "ordinary": project}[build]
    line = one_line(torchwheel("build", folder, *CPU, "--plan", cwd=tmp_path), 1)
    assert "expected compile steps in a ninja graph" in line
    assert "(use_ninja=False, make or CMake?); build it as a whole" in line


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("open('../README.md')", "the sandbox hides {}/README.md; --sandbox off does not"),
        (
            "__import__('urllib.request').request.urlopen('https://example.org')",
            "the sandbox hides the network; --sandbox off does not",
        ),
    ],
)
def test_a_failure_names_the_sandbox_that_hid_something(plain, tmp_path, torchwheel, code, says):
    if isinstance(found := find_sandbox("auto", tmp_path, (), print), str):
        pytest.skip(f"no sandbox here: {found}")
    (tmp_path / "README.md").touch()
    setup = plain / "setup.py"
    setup.write_text(f"{code}\n{setup.read_text()}")
    line = one_line(torchwheel("build", plain, *CPU, cwd=tmp_path), 1)
    assert says.format(tmp_path) in line
    if "README" in code:
        torchwheel("build", plain, *CPU, "--sandbox", "off", cwd=tmp_path, status=0)


@pytest.mark.nightly
def test_objects_of_a_build_that_failed_are_used_again(project, tmp_path, torchwheel):
    """Until it ends, and only for the same inputs: what failed here is no input of an object."""
    counts = []
    for name in ("nonesuch", "nonesuch", "scaled"):
        call = ("build", project, *CPU, "--no-launcher", "--import", name)
        done = torchwheel(*call, cwd=tmp_path)
        assert done.returncode == (name == "nonesuch"), done.stdout + done.stderr
        counts.append("compiling scaled.cpp" in done.stderr)
    assert counts == [True, False, False]


@pytest.mark.nightly
def test_openmp_is_the_one_that_torch_has_loaded(plain, tmp_path, torchwheel):
    setup = plain / "setup.py"
    openmp = '["plain.c"], extra_compile_args=["-fopenmp"], extra_link_args=["-fopenmp"])'
    setup.write_text(setup.read_text().replace('["plain.c"])', openmp))
    loop = "int n = 0;\n#pragma omp parallel for\nfor (int i = 0; i < 9; ++i) n += i;\n return"
    (plain / "plain.c").write_text(MODULE.replace("return", loop))
    torchwheel("build", plain, *CPU, cwd=tmp_path, status=0)
    facts = read_wheel(the_wheel(tmp_path / "dist"))
    assert facts.claims is not None
    assert facts.claims.borrowed == ("libgomp.so.1",)
    assert not [name for name in facts.members if "libgomp" in name]


def test_a_compile_error_is_the_compilers_line(project, tmp_path, torchwheel):
    (project / "csrc" / "scaled.cpp").write_text("#error no such luck\n")
    line = one_line(torchwheel("build", project, *CPU, cwd=tmp_path), 1)
    assert "scaled.cpp:1:2: error: #error no such luck (all of it in " in line
    assert Path(line.rpartition(" in ")[2].rstrip(")")).is_file()
    assert not (tmp_path / "dist").exists()


@pytest.mark.nightly
def test_a_requirement_nobody_declares_is_named_and_can_be_added(plain, tmp_path, torchwheel):
    setup = plain / "setup.py"
    setup.write_text("import markdown_it\n" + setup.read_text())
    line = one_line(torchwheel("build", plain, *CPU, cwd=tmp_path), 1)
    assert "ModuleNotFoundError: No module named 'markdown_it'" in line
    assert "--with" in line
    torchwheel("build", plain, *CPU, "--with", "markdown-it-py", cwd=tmp_path, status=0)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        pytest.param(
            *("plain.py", "raise ImportError('not today')", "smoke: import plain: .*not today"),
            marks=pytest.mark.nightly,
        ),
        ("plain.c", MODULE.replace("{ return", "{ extern int nobody(void); nobody(); return"), ""),
    ],
)
def test_a_wheel_that_does_not_pass_is_kept_out(plain, tmp_path, torchwheel, name, text, says):
    (plain / name).write_text(text)
    line = one_line(torchwheel("build", plain, *CPU, cwd=tmp_path), 1)
    assert re.search(says or "gate torch-symbols: nobody is undefined", line)
    (rejected,) = (tmp_path / "dist" / "rejected").iterdir()
    assert line.endswith(f"(the wheel is kept as {rejected.relative_to(tmp_path)})")
    assert not list((tmp_path / "dist").glob("*.whl*"))


@pytest.mark.nightly
def test_another_torch_than_the_one_it_is_for_is_not_brought_in(project, tmp_path, torchwheel):
    pyproject = project / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace("torch>=2.0", "torch<2.0"))
    line = one_line(torchwheel("build", project, *CPU, cwd=tmp_path), 1)
    assert f"cannot install the build requirements beside torch {TORCH}" in line


def test_a_hostile_archive_is_refused(tmp_path, torchwheel):
    sdist = tmp_path / "demo-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(__file__, "../outside.py")
    line = one_line(torchwheel("build", sdist, *CPU, cwd=tmp_path), 1)
    assert "demo-1.0.tar.gz: member '../outside.py' leaves its folder" in line


@pytest.mark.skipif(
    not os.environ.get(OPT_IN), reason=f"installs 5 GB of torch and compiles 10 min: {OPT_IN}=1"
)
def test_torch_scatter_becomes_a_wheel_whose_gates_hold(tmp_path, torchwheel):
    options = ("--torch", "2.11.0", "--archs", "9.0")
    torchwheel("build", "torch-scatter==2.1.2", *options, cwd=tmp_path, seconds=3600, status=0)
    facts = read_wheel(the_wheel(tmp_path / "dist"))
    assert facts.claims is not None
    assert facts.claims.borrowed == ("libcudart.so.13",)
    assert facts.claims.archs == ("9.0",)
