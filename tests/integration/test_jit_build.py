"""fusedops built at its first call: real compilers, a real torch that is told it has GPUs.

The kernel itself is not run: the call is redispatched to the GPU's key with tensors of the CPU,
which the reference takes and the native library refuses with a sentence of its own.
"""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from checkout import python_path
from programmaker import run_python
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.toolkit.headers import torch_headers

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
CALL = """
import json, sys, warnings
import torch
torch.version.cuda = "13.0"
import fusedops
gpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
call = torch.ops.fusedops.vector_add.default.redispatch
print("ready", flush=True)
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    first = call(gpu.add(torch._C.DispatchKey.BackendSelect), torch.ones(2), torch.ones(2)).tolist()
try:
    call(gpu, torch.ones(2), torch.ones(2))
    native = None
except RuntimeError as error:
    native = str(error)
(status,) = [one for one in fusedops.status().operators if one.operator == "vector_add"]
print(json.dumps({
    "first": first, "native": native, "way": status.way, "library": str(status.library),
    "reason": status.reason, "warnings": [str(one.message) for one in heard],
}))
"""


@pytest.fixture(scope="module")
def filled(nvcc, tmp_path_factory):
    """A toolkit, one arch, and a cache that the tests fill one after the other."""
    return {
        **os.environ,
        "PYTHONPATH": python_path(),
        "CUDA_HOME": str(nvcc.parents[1]),
        "TORCH_CUDA_ARCH_LIST": "9.0",
        "TORCHWHEEL_CACHE": str(tmp_path_factory.mktemp("jit") / "cache"),
    }


@pytest.fixture
def environ(filled, tmp_path):
    """The same, with a cache of the test's own."""
    return {**filled, "TORCHWHEEL_CACHE": str(tmp_path / "cache")}


def call(environ, script=CALL):
    """What the script found, and what was said."""
    done = run_python(script, env=environ, cwd="/", timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_a_library_is_built_once(filled):
    begun = time.monotonic()
    found, said = call(filled)
    seconds = time.monotonic() - begun
    assert found["way"] == "jit build", found
    assert found["first"] == [2.0, 2.0]
    assert found["native"] == "vector_add: a: expected a tensor on a GPU, found cpu"
    assert found["warnings"] == []
    assert "fusedops.vector_add: building it" in said
    assert seconds < 60
    library = Path(found["library"])
    assert library.is_relative_to(Path(filled["TORCHWHEEL_CACHE"], "jit"))
    again, said = call(filled)
    assert (again["way"], again["library"]) == ("jit cache", found["library"])
    assert again["native"] == found["native"]
    assert "building" not in said


@pytest.mark.nightly
def test_an_arch_and_a_flag_have_a_library_of_their_own(filled):
    found, _ = call(filled)
    other_arch, _ = call({**filled, "TORCH_CUDA_ARCH_LIST": "8.0"})
    assert other_arch["way"] == "jit build"

    changes = (
        "flags=__import__('torchwheel_runtime.builder').builder.Flags(cuda=('--use_fast_math',))"
    )
    other_flag, said = call(filled, with_extension(changes) + CALL)
    assert other_flag["way"] == "jit build"
    assert "building it" in said
    libraries = {one["library"] for one in (found, other_arch, other_flag)}
    assert len(libraries) == 3
    again, _ = call(filled)
    assert (again["way"], again["library"]) == ("jit cache", found["library"])


def test_without_a_compiler_it_runs_on_plain_pytorch_and_says_so_once(environ, tmp_path):
    bare = {**environ, "PATH": str(tmp_path)}
    bare.pop("CXX", None)
    found, _ = call(bare)
    assert found["way"] == "fallback"
    assert found["first"] == [2.0, 2.0]
    (warning,) = found["warnings"]
    assert warning.startswith("fusedops: vector_add on plain PyTorch: ")
    assert "no C++ compiler (g++, c++ or clang++) on the PATH" in warning
    assert "`python -m fusedops` says what fixes it" in warning


def test_a_mistake_in_a_source_is_named(environ, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "pkg" / "fusedops", tree / "pkg" / "fusedops")
    shutil.copytree(ROOT / "csrc", tree / "csrc")
    (tree / "pyproject.toml").touch()
    source = tree / "csrc" / "kernels" / "vector_add.cu"
    source.write_text(source.read_text() + "\nint mistake = ;\n")
    found, _ = call({**environ, "PYTHONPATH": python_path(ROOT, tree / "pkg")})
    assert found["way"] == "fallback"
    (warning,) = found["warnings"]
    assert "building obj/kernels/vector_add.cu.o failed" in warning
    assert "expected an expression" in warning


def with_extension(changes: str) -> str:
    """The beginning of a script: fusedops' extension, called `old`, with these changes."""
    return f"""
import dataclasses, importlib.util, sys
path = {str(ROOT / "pkg" / "fusedops" / "extension.py")!r}
spec = importlib.util.spec_from_file_location("fusedops.extension", path)
sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
old = module.EXTENSION
module.EXTENSION = dataclasses.replace(old, {changes})
"""


@pytest.mark.nightly
def test_an_older_torch_gets_the_aten_flavour(environ, cache):
    """What torch below the stable ABI's floor would have: forced here, on this torch."""
    script = with_extension('torch="99.0"') + CALL
    # torch for CPUs lacks one header of CUDA's, which holds macros.
    include = torch_headers("2.11", cache, Quiet()) / "torch" / "include"
    found, _ = call({**environ, "CPLUS_INCLUDE_PATH": str(include)}, script)
    assert found["way"] == "jit build", found
    assert found["native"] == "vector_add: a: expected a tensor on a GPU, found cpu"


def test_an_operator_that_is_switched_off_is_not_built(environ):
    found, said = call({**environ, "FUSEDOPS_BUILD_OP_VECTOR_ADD": "0"})
    assert found["way"] == "fallback"
    assert found["first"] == [2.0, 2.0]
    (warning,) = found["warnings"]
    assert "found it switched off; set FUSEDOPS_BUILD_OP_VECTOR_ADD=1" in warning
    assert "building" not in said


def test_the_command_line_builds_nothing_for_a_torch_for_cpus(filled):
    jit = "import sys; from torchwheel.cli import main; sys.exit(main(['jit', sys.argv[1]]))"
    done = run_python(jit, "fusedops", env=filled, cwd="/")
    assert done.returncode == 0, done.stderr
    plain = f"plain PyTorch, as torch {torch.__version__} is for CPUs"
    assert done.stdout == f"fusedops: nothing to build: {plain}\n"
    for package, says in (("json", "is no extension"), ("nonesuch", "cannot be imported")):
        done = run_python(jit, package, env=filled, cwd="/")
        assert done.returncode == 2
        assert says in done.stderr


WITHOUT_LIBRARY = ("(prebuilt:", "none", "in", "this", "installation)")


@pytest.mark.nightly
def test_the_command_line_builds_all_of_it_beforehand(filled):
    """For a torch that says it has GPUs; it finds what a call built.

    That every family can be built by itself is test_jit_families.py's.
    """
    script = (
        with_extension("operators=(old.operator('vector_add'), old.operator('layout'))")
        + "import torch; torch.version.cuda = '13.0'\n"
        "from torchwheel.cli import main\n"
        "raise SystemExit(main(['jit', 'fusedops']))"
    )
    call(filled)
    done = run_python(script, env=filled, cwd="/")
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["vector_add", "jit", "cache,", "vector_add.so", *WITHOUT_LIBRARY],
        ["layout", "jit", "build,", "layout.so", *WITHOUT_LIBRARY],
    ]
    forbidden = run_python(script, env={**filled, "TORCHWHEEL_MODE": "fallback"}, cwd="/")
    plain = "plain PyTorch, as TORCHWHEEL_MODE=fallback asks"
    assert (forbidden.returncode, forbidden.stdout) == (
        0,
        f"fusedops: nothing to build: {plain}\n",
    )
