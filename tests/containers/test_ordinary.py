"""Somebody else's extension, with a matrix.yaml beside its setup.py, in its container."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from foreign_environments import check_all

from gitmaker import repository
from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates
from torchwheel.inspect.wheel import read_wheel
from torchwheel.matrix.load import load
from torchwheel.pipeline.inputs import limits_of
from torchwheel_runtime.files import sha256

pytestmark = pytest.mark.containers
PLUS = Path(__file__).parent / "plus"
EXISTING = Path(__file__).parents[1] / "integration" / "existing"
FOREIGN = Path(__file__).parent / "foreign"
OPT_IN = "TORCHWHEEL_TEST_FOREIGN"
VARIANT = "cu130-torch2.13-cp311"
ROOT = Path(__file__).parents[2]
OF_MATRIX = [
    minor for minor, facts in load(ROOT / "matrix.yaml").torch.items() if "cu130" in facts.toolkits
]
# What authors write: torch's own headers, mathematics that glibc 2.29 has anew, and what the C++
# library of a new compiler has and an old one lacks.
MODULE = """
#include <torch/extension.h>
#include <cmath>
#include <condition_variable>
#include <random>

int add(long long n, const float* a, const float* b, float* out);

double spread(double x) {
  std::mutex mutex;
  std::unique_lock<std::mutex> lock(mutex);
  std::condition_variable().wait_for(lock, std::chrono::microseconds(1));
  std::random_device draw;
  std::vector<double> all(draw() % 2 + 1, std::pow(x, x));
  TORCH_CHECK(x > 0, "x must be positive, found ", x);
  return std::log2(std::exp(all[0])) + torch::ones({2}).sum().item<double>();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("spread", &spread);
  m.def("add", [](torch::Tensor a, torch::Tensor b, torch::Tensor out) {
    return add(a.numel(), a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>());
  });
}
"""
CALLS = """
import math
import pytest
from plus import _C

def test_results_and_errors_cross_into_torch():
    assert math.isclose(_C.spread(1.0), math.log2(math.e) + 2)
    with pytest.raises(RuntimeError, match="x must be positive, found -1"):
        _C.spread(-1.0)
"""


@pytest.fixture
def plus(tmp_path, base):
    assert base
    return shutil.copytree(PLUS, tmp_path / "plus")


def torchwheel(folder, environ, *arguments, timeout=1800, status=0):
    """A finished call of torchwheel in a project's folder; it must end with `status`."""
    command = [sys.executable, "-m", "torchwheel", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert status in (None, done.returncode), done.stdout + done.stderr
    return done


@pytest.fixture
def wheels(environ, plus):
    return lambda **more: torchwheel(plus, environ, "wheels", "--container", **more)


def test_its_wheel_is_built_against_its_torch_stamped_tried_and_proven(plus, wheels):
    wheels()
    (wheel,) = (plus / "dist").glob("*.whl")
    assert wheel.name.startswith("plus-1.0+cu130torch2.13-cp311-cp311-manylinux")
    assert all(result.ok for result in run_gates(wheel, Limits(1)))
    record = json.loads((plus / "dist" / ".torchwheel" / f"{VARIANT}.json").read_text())
    assert record["sha256"] == sha256(wheel)
    assert record["smoke"] == "passed, not run on a GPU"
    assert record["cache"] == {"hits": 0, "misses": 2, "failed": 0}
    smoke = json.loads((plus / "dist" / "smoke" / f"{VARIANT}.json").read_text())
    assert smoke["machine"]["torch"] == "2.13.0+cu130"
    assert [package["file"] for package in smoke["imported"]] == ["plus/__init__.py"]
    again = wheels()
    assert again.stderr.count("nothing to do") == 1


@pytest.mark.nightly
def test_a_project_of_the_stable_abi_gets_one_wheel_for_every_torch_from_its_own_on(plus, environ):
    project = Path(shutil.copytree(EXISTING, plus.parent / "existing"))
    text = (plus / "matrix.yaml").read_text().replace("plus", "axpy")
    stable = 'ordinary: {python: abi3, stable: "2.11"}'
    text = text.replace("ordinary: {}", stable).replace("build: {tests: tests}\n", "")
    (project / "matrix.yaml").write_text(text.replace(", without_gpu: [test_axpy.py]", ""))
    # torch's BuildExtension gives both files of a name one object.
    (project / "axpy" / "csrc" / "axpy.cu").rename(project / "axpy" / "csrc" / "kernel.cu")
    setup = project / "setup.py"
    setup.write_text(setup.read_text().replace("axpy.cu", "kernel.cu"))
    torchwheel(project, environ, "wheels", "--container")
    (wheel,) = (project / "dist").glob("*.whl")
    assert wheel.name.startswith("axpy-0.3+cu130-cp310-abi3-manylinux")
    claims = read_wheel(wheel).claims
    assert (claims.variant, claims.torch_range) == ("cu130-stable-abi3", ">=2.11")
    assert "libcudart.so.13" in claims.borrowed
    assert all(result.ok for result in run_gates(wheel, Limits(1)))


@pytest.mark.nightly
@pytest.mark.parametrize("minor", OF_MATRIX)
def test_every_torch_of_the_matrix_compiles_an_extension_for_old_systems(plus, environ, minor):
    matrix = plus / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace('"2.13"', f'"{minor}"'))
    (plus / "csrc" / "module.cpp").write_text(MODULE)
    (plus / "plus" / "__init__.py").write_text("import torch\nfrom plus import _C\n")
    (plus / "tests" / "test_plus.py").write_text(CALLS)
    done = torchwheel(plus, environ, "wheels", status=None)
    if f"torch=={minor}" in done.stderr + done.stdout and "constraint" in done.stderr:
        pytest.skip(f"this machine's settings of pip leave torch {minor} out")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (plus / "dist").glob("*.whl")
    results = run_gates(wheel, Limits(8, newest_glibc="2.28"))
    assert all(result.ok for result in results), results


@pytest.mark.nightly
def test_archs_that_its_setup_hard_codes_are_named(plus, wheels):
    wheels()
    matrix = plus / "matrix.yaml"
    text = matrix.read_text()
    matrix.write_text(text.replace("build: {", 'build: {environment: {PLUS_ARCHS: "75 90"}, '))
    done = wheels(status=1)
    assert (
        "the project hard-codes the archs 7.5;9.0; expected those of TORCH_CUDA_ARCH_LIST, "
        '8.0;9.0+PTX; pass --archs "7.5;9.0", or replace them: build.archs_by: replaced in '
        "matrix.yaml"
    ) in done.stdout
    # Nothing of a failed build is published, and the earlier wheel is not its.
    assert f"{VARIANT}: FAILED" in done.stderr


@pytest.mark.nightly
def test_a_subfolder_of_a_tag_is_built_with_what_lies_beside_it(plus, environ, tmp_path):
    """hopper/setup.py with sources in ../csrc, whose version is that of git's tag."""
    origin, setup = tmp_path / "repository", plus / "setup.py"
    text = setup.read_text().replace('version="1.0"', "use_scm_version={'root': '..'}")
    setup.write_text(text.replace('"csrc/', '"../csrc/'))
    shutil.copytree(plus, origin / "hopper", ignore=shutil.ignore_patterns("csrc", "*.yaml"))
    shutil.copytree(plus / "csrc", origin / "csrc")
    repository(origin, "v0.4.0+cu13")
    matrix = (plus / "matrix.yaml").read_text()
    source = f'"git+file://{origin}@v0.4.0+cu13#subdirectory=hopper"'
    matrix = matrix.replace("source: .", f"source: {source}")
    folder = tmp_path / "matrix"
    folder.mkdir()
    (folder / "matrix.yaml").write_text(
        matrix.replace("{tests: tests}", "{tests: tests, requires: [setuptools-scm]}")
    )
    torchwheel(folder, environ, "wheels")
    (wheel,) = (folder / "dist").glob("*.whl")
    assert wheel.name.startswith("plus-0.4.0+cu130torch2.13-cp311-cp311-manylinux")
    record = json.loads((folder / "dist" / ".torchwheel" / f"{VARIANT}.json").read_text())
    assert record["smoke"] == "passed, not run on a GPU"


@pytest.mark.nightly
def test_pythons_of_a_torch_share_what_does_not_include_python(plus, environ):
    matrix = plus / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace('["3.11"]', '["3.11", "3.12"]'))
    kernels = plus / "csrc" / "add.cu"
    kernels.write_text(f"#include <ATen/cuda/CUDAContext.h>\n{kernels.read_text()}")
    torchwheel(plus, environ, "wheels", "--at-once", "1")
    records = sorted((plus / "dist" / ".torchwheel").glob("*.json"))
    used = [json.loads(path.read_text())["cache"] for path in records]
    assert used == [
        {"hits": 0, "misses": 2, "failed": 0},
        {"hits": 1, "misses": 1, "failed": 0},
    ]


@pytest.mark.nightly
def test_one_job_links_what_the_jobs_of_two_shards_compiled(plus, environ):
    matrix = plus / "matrix.yaml"
    text = matrix.read_text().replace('"2.13"', '"2.11"')
    matrix.write_text(text.replace("build: {", "build: {shards: 2, "))
    variant = VARIANT.replace("2.13", "2.11")

    def run(*arguments, status=0):
        return torchwheel(plus, environ, *arguments, variant, status=status)

    link = ("wheels", "--container", "--twice", "--kernels", "dist/kernels", "--kernels-only")
    for number in (1, 2):
        done = run("kernels", "--container", "--twice", "--shard", f"{number}/2")
        if number == 1:
            lost = run(*link, status=1)
            assert f"expected all shards of {variant}, found 1/2" in lost.stdout
    manifests = [json.loads(file.read_text()) for file in plus.glob("dist/kernels/*/manifest.json")]
    outputs = sorted(entry["output"] for one in manifests for entry in one["objects"])
    assert outputs == ["0/csrc/add.o", "0/csrc/module.o"]

    done = run(*link)
    record = json.loads((plus / "dist" / ".torchwheel" / f"{variant}.json").read_text())
    assert len(record["kernels"]) == 2
    assert record["smoke"] == "passed, not run on a GPU"
    key = hashlib.sha256(os.fsencode(plus)).hexdigest()[:12]
    build = Path(environ["TORCHWHEEL_CACHE"], "build", f"plus-{key}", f"{variant}-contained")
    log = (build / "build.log").read_text()
    assert "torchwheel: 2 objects of other jobs, none compiled" in log
    assert "add.cu -o" not in log

    object_ = next(plus.glob("dist/kernels/*/*.o"))
    object_.write_bytes(b"another")
    done = run(*link, status=1)
    assert f"{object_}: expected " in done.stdout


@pytest.mark.skipif(
    not os.environ.get(OPT_IN), reason=f"installs six torches and compiles for hours: {OPT_IN}=1"
)
@pytest.mark.parametrize(
    ("project", "count"), [("causal-conv1d", 10), ("torch-scatter", 10), ("torch-memory-saver", 2)]
)
def test_projects_of_others_become_wheels_for_every_torch_python_and_toolkit(
    tmp_path, environ, base, project, count
):
    assert base
    folder = shutil.copytree(FOREIGN / project, tmp_path / project)
    torchwheel(folder, environ, "wheels", timeout=14400)
    wheels = sorted((folder / "dist").glob("*.whl"))
    assert len(wheels) == count
    limits = limits_of(load(folder / "matrix.yaml"), folder, "aten", "2.28")
    for wheel in wheels:
        results = run_gates(wheel, limits)
        assert all(result.ok for result in results), results
    assert check_all(folder / "dist", tmp_path / "environments") == count
