"""A universal wheel without code for this GPU: built at the first call, else plain PyTorch.

Make the wheel with kernels in machine code for 8.0 alone, without PTX, where there is a compiler:

    nox -s wheels -- universal --archs 8.0 --dist dist/no-code

Carry dist/no-code to a machine with a GPU of 9.0 or later and nvcc (CUDA_HOME or the PATH), and run

    python -m pytest -rs -s tests/gpu/test_gpu_without_code.py
"""

import json
import subprocess
from pathlib import Path

import pytest
from carried import DIST, installed

from torchwheel.inspect.wheel import read_wheel
from torchwheel.smoke.trial_environment import Environment
from torchwheel_runtime.arch.devices import visible_gpus
from torchwheel_runtime.arch.runs import runs_on

pytestmark = pytest.mark.gpu
WHY = "no kernel library serves GPU 0 ("
SCRIPT = """
import json, time, warnings
import torch
import fusedops

def calls(device):
    x, bias = inputs[0].to(device), inputs[1].to(device)
    return fusedops.bias_gelu(x, bias), fusedops.vector_add(x, x, gamma=0.5)

def close(found):
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(one.cpu(), other, atol=1e-5) for one, other in pairs)

def microseconds():
    x = inputs[0].to("cuda")
    fusedops.vector_add(x, x)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(1000):
        fusedops.vector_add(x, x)
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) * 1e3

torch.manual_seed(1)
inputs = torch.randn(64, 512), torch.randn(512)
expected = calls("cpu")
imported = fusedops.status().choices
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always", RuntimeWarning)
    try:
        right, error = close(calls("cuda")) and close(calls("cuda")), None
    except RuntimeError as raised:
        right, error = False, str(raised)
found = {"right": right, "error": error, "imported": imported}
if error is None:
    on_gpu = [one.to("cuda") for one in inputs]
    compiled = torch.compile(lambda: calls("cuda"), backend="aot_eager")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = fusedops.bias_gelu(*on_gpu)
    graph.replay()
    grad = on_gpu[0].requires_grad_()
    fusedops.bias_gelu(*on_gpu).sum().backward()
    found |= {
        "compiled": close(compiled()),
        "captured": torch.allclose(captured.cpu(), expected[0], atol=1e-5),
        "gradient": bool(grad.grad.isfinite().all()),
        "microseconds": microseconds(),
    }
has = torch._C._dispatch_has_kernel_for_dispatch_key
status = fusedops.status()
print(json.dumps({
    **found, "choices": status.choices,
    "warnings": [str(one.message) for one in heard if one.category is RuntimeWarning],
    "ways": {one.operator: one.way for one in status.operators},
    "routed": has("fusedops::vector_add", "BackendSelect"),
}))
"""
WORKS = ("right", "compiled", "captured", "gradient")


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Environment:
    """This Python with the wheel, on a GPU that the wheel has no code for."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    wheels = sorted((DIST / "no-code").glob("fusedops-*-py3-none-manylinux*.whl"))
    if not wheels:
        pytest.skip("no universal wheel in dist/no-code: the test's first lines say how to make it")
    gpu = visible_gpus("rocm" if torch.version.hip else "cuda").gpus[0]
    parts = read_wheel(wheels[-1]).claims.parts
    if any(runs_on(arch, gpu.arch) for part in parts for arch in part.archs):
        pytest.skip(f"the wheel in dist/no-code has code for {gpu.name} ({gpu.arch})")
    return installed(wheels[-1], tmp_path_factory.mktemp("installed"))


def run(environment: Environment, folder: Path, *, compiler: bool = True, mode: str = "auto"):
    environ = {
        **environment.environ,
        "TORCHWHEEL_MODE": mode,
        "TORCHWHEEL_CACHE": str(folder / "cache"),
        "CUDA_VISIBLE_DEVICES": "0",
    }
    if not compiler:
        environ["PATH"] = str(folder)
        for name in ("CXX", "CUDA_HOME", "ROCM_PATH"):
            environ.pop(name, None)
    done = subprocess.run(
        [environment.python, "-c", SCRIPT],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(found, indent=1))
    assert found["imported"] == []
    return found


def test_the_first_call_builds_kernels_after_one_warning(environment, tmp_path):
    found = run(environment, tmp_path)
    assert all(found[name] for name in WORKS), found
    (warning,) = found["warnings"]
    assert warning.startswith(f"fusedops: built here, because prebuilt: {WHY}"), warning
    assert {found["ways"][name] for name in ("bias_act", "vector_add")} == {"jit build"}
    assert found["ways"]["softmax"] == "waiting"
    assert not found["routed"]
    again = run(environment, tmp_path, mode="error")
    assert {again["ways"][name] for name in ("bias_act", "vector_add")} == {"jit cache"}
    assert again["right"]


def test_mode_prebuilt_runs_plain_pytorch_after_one_warning(environment, tmp_path):
    found = run(environment, tmp_path, mode="prebuilt")
    assert all(found[name] for name in WORKS), found
    (warning,) = found["warnings"]
    assert f"on plain PyTorch: prebuilt: {WHY}" in warning
    assert set(found["ways"].values()) == {"fallback"}


def test_without_a_compiler_it_runs_plain_pytorch_after_one_warning(environment, tmp_path):
    """Beside the front end, which has registered its operators."""
    found = run(environment, tmp_path, compiler=False)
    assert all(found[name] for name in WORKS), found
    (warning,) = found["warnings"]
    assert f"on plain PyTorch: prebuilt: {WHY}" in warning
    assert "no C++ compiler (g++, c++ or clang++) on the PATH" in warning
    assert found["routed"]


def test_mode_error_without_a_compiler_raises_at_the_call(environment, tmp_path):
    found = run(environment, tmp_path, compiler=False, mode="error")
    assert WHY in found["error"]
    assert "no C++ compiler" in found["error"]
    assert found["warnings"] == []
