"""The whole path on a small extension: real toolkit, compiler, auditwheel, gates, pip."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from smalldisk import small_disk
from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates
from torchwheel.inspect.wheel import read_wheel
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.toolkit import provision

pytestmark = pytest.mark.integration


def wheels_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.whl"))


def wait_for_the_last_of(group: int) -> None:
    """Killed children die after their leader."""
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            time.sleep(0.01)


def finished_everywhere(dist: Path) -> None:
    """What lies where a person or pip looks is whole: every wheel passes every gate."""
    for wheel in dist.glob("*.whl"):
        results = run_gates(wheel, Limits(max_size_mib=2))
        assert all(result.ok for result in results), results


@pytest.fixture(scope="module")
def made(tmp_path_factory, request):
    """One build of the default selection, shared by the tests that only look at it."""
    folder = tmp_path_factory.mktemp("made")
    project = shutil.copytree(Path(__file__).parent / "tiny", folder / "tiny")
    done = subprocess.run(
        [sys.executable, "-m", "torchwheel", "wheels"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Another test touches the project and builds it again.
    shutil.copytree(project / "dist", folder / "first")
    return project, done


def test_the_default_selection_gives_proven_wheels_and_an_index(made):
    project, done = made
    native, pure = wheels_in(project / "dist")
    assert re.fullmatch(r"tiny-0\.1\+cu130-py3-none-manylinux_2_\d+_x86_64\.whl", native)
    assert pure == "tiny-0.1-py3-none-any.whl"
    finished_everywhere(project / "dist")
    record = json.loads((project / "dist/smoke/cu130-stable.json").read_text())
    assert "not run on a GPU" in record["verdict"]
    claims = read_wheel(project / "dist" / native).claims
    assert claims is not None
    (library,) = claims.flags
    assert library.file == "tiny/_lib/cu130-stable.so"
    # What no probe gives is not there, and nothing passed a shell.
    assert library.flags == (
        "cxx: -DBLANK='a b' $(c)",
        "cxx: -DHAS_DLOPEN",
        "cuda: --use_fast_math",
        "libraries: dl",
    )
    for line in done.stdout.splitlines():
        assert len(line) <= 80 or line.lstrip().startswith("pip install"), line


def test_the_printed_command_installs_the_wheel(made, tmp_path):
    _, done = made
    command = re.search(r"  pip install --index-url (\S+) \"(tiny==\S+cu130)\"\n", done.stdout)
    assert command is not None, done.stdout
    assert command[1].endswith("/dist/index/cu130")
    target = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
        + ["--index-url", command[1], command[2]],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert (target / "tiny" / "_lib" / "cu130-stable.so").is_file()


def test_nothing_touched_means_nothing_done_and_a_touched_kernel_compiles_alone(made, torchwheel):
    project, _ = made
    again = torchwheel("wheels", cwd=project, status=0)
    assert again.stderr.count("nothing to do") == 2
    before = read_wheel(next((project / "dist").glob("*manylinux*.whl")))
    source = project / "csrc" / "scale.cu"
    source.write_text(source.read_text() + "\n// touched\n")
    touched = torchwheel("wheels", "cu130-stable", cwd=project, status=0)
    assert "CUDA scale.cu" in touched.stderr
    assert "C++ stable.cpp" not in touched.stderr
    # A comment changes no byte of the library: the wheel is the same one.
    after = read_wheel(next((project / "dist").glob("*manylinux*.whl")))
    assert before.name == after.name


@pytest.mark.nightly
def test_two_folders_give_the_same_bytes(made, tmp_path, torchwheel):
    here, _ = made
    project = Path(shutil.copytree(Path(__file__).parent / "tiny", tmp_path / "somewhere/else"))
    torchwheel("wheels", "cu130-stable", "--no-launcher", cwd=project, status=0)
    (wheel,) = (project / "dist").glob("*.whl")
    assert wheel.read_bytes() == (here.parent / "first" / wheel.name).read_bytes()


def test_a_compile_error_names_the_file_and_leaves_the_other_variant(tiny, torchwheel):
    (tiny / "csrc" / "scale.cu").write_text("this is no C++\n")
    done = torchwheel("wheels", cwd=tiny, status=1)
    assert "failed: cu130-stable: building obj/scale.cu.o failed" in done.stdout
    assert "scale.cu" in done.stdout
    assert "To install" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert wheels_in(tiny / "dist") == ["tiny-0.1-py3-none-any.whl"]


def test_a_failing_smoke_test_keeps_the_wheel_out(tiny, torchwheel):
    (tiny / "smoke" / "test_more.py").write_text("def test_wrong():\n    assert 1 == 2\n")
    done = torchwheel("wheels", "pure", cwd=tiny, status=1)
    assert "smoke" in done.stdout
    assert wheels_in(tiny / "dist") == []
    assert not list((tiny / "dist" / "index").rglob("*.whl"))


def test_a_failing_gate_keeps_the_wheel_out(tiny, torchwheel):
    matrix = tiny / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("max_size_mib: 2", "max_size_mib: 1"))
    (tiny / "tiny" / "noise.bin").write_bytes(random.Random(0).randbytes(2 << 20))
    project = tiny / "pyproject.toml"
    project.write_text(project.read_text() + '[tool.setuptools.package-data]\ntiny = ["*.bin"]\n')
    done = torchwheel("wheels", "pure", cwd=tiny, status=1)
    assert "gate size" in done.stdout
    assert wheels_in(tiny / "dist") == []
    assert [p.name for p in (tiny / "dist" / "rejected").iterdir()] == [
        "tiny-0.1-py3-none-any.whl.rejected"
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonesuch"], "nonesuch"),
        (["--archs", "9.x"], '"9.x" is not an arch'),
        (["--archs", "3.5"], "cannot compile"),
        (["--archs", "gfx90a"], "gfx90a: no variant that is asked for is built for such a GPU"),
        (["--matrix", "nonesuch.yaml"], "nonesuch.yaml"),
    ],
)
def test_a_wrong_call_is_one_line_and_builds_nothing(tiny, torchwheel, arguments, says):
    done = torchwheel("wheels", *arguments, cwd=tiny, status=2)
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tiny / "dist").exists()


def test_an_unknown_toolkit_is_a_wrong_call(tiny, torchwheel):
    done = torchwheel("toolkit", "cu13", cwd=tiny, status=2)
    assert "no toolkit 'cu13' in matrix.yaml" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.nightly
def test_a_toolkit_of_the_system_serves_as_well(tiny, torchwheel, cache):
    cuda = provision.provision_pypi("13.0", "linux_x86_64", cache, Quiet())[0]
    matrix = tiny / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("source: pypi", "source: system"))
    done = torchwheel("wheels", "cu130-stable", cwd=tiny, CUDA_HOME=str(cuda), status=0)
    finished_everywhere(tiny / "dist")
    done = torchwheel("wheels", "cu130-stable", cwd=tiny, CUDA_HOME=str(tiny), status=0)
    (tiny / "csrc" / "scale.cu").write_text("// changed\n")
    done = torchwheel("wheels", "cu130-stable", cwd=tiny, CUDA_HOME=str(tiny), status=1)
    assert "has no bin/nvcc" in done.stdout


def test_no_compiler_is_one_line(tiny, torchwheel, tmp_path):
    empty = tmp_path / "bin"
    empty.mkdir()
    done = torchwheel("wheels", "cu130-stable", cwd=tiny, PATH=str(empty), CXX="", status=1)
    assert "no C++ compiler" in done.stdout
    assert wheels_in(tiny / "dist") == []


@pytest.mark.nightly
def test_a_full_disk_is_one_line_and_the_next_run_goes_on(tiny, torchwheel, tmp_path):
    small = tmp_path / "small"
    with small_disk(small, "size=48k") as change:
        done = torchwheel("wheels", "cu130-stable", "--dist", small / "dist", cwd=tiny, status=1)
        assert "no space left" in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert wheels_in(small / "dist") == []
        change("size=64m")
        done = torchwheel("wheels", "cu130-stable", "--dist", small / "dist", cwd=tiny, status=0)
        finished_everywhere(small / "dist")


@pytest.mark.nightly
def test_killed_at_any_moment_nothing_half_made_is_left(tiny, cache):
    command = [sys.executable, "-m", "torchwheel", "wheels", "--archs", "9.0"]
    env = {**os.environ, "TORCHWHEEL_CACHE": str(cache)}
    rng = random.Random()
    # A run says some 18 lines. Each kill is in another third of it.
    for moment in (rng.randrange(6), rng.randrange(6, 12), rng.randrange(12, 18)):
        # A run killed at its very start has made none.
        shutil.rmtree(tiny / "dist", ignore_errors=True)
        (tiny / "csrc" / "scale.cu").touch()
        process = subprocess.Popen(
            command,
            cwd=tiny,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with process.stderr as lines:
            for _ in range(moment):
                lines.readline()
            time.sleep(rng.uniform(0.0, 0.5))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        wait_for_the_last_of(process.pid)
        finished_everywhere(tiny / "dist")
        for indexed in (tiny / "dist").glob("index/**/*.whl"):
            assert zipfile.is_zipfile(indexed)
    subprocess.run(command, cwd=tiny, env=env, check=True, capture_output=True)
    assert len(wheels_in(tiny / "dist")) == 2
    assert not list((tiny / "dist" / ".torchwheel").glob("making-*"))
