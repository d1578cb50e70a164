"""The pure-Python wheel on this GPU: built at its first call, by the compilers of this machine."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from carried import BITS, DIST, ROOT, installed


@pytest.fixture
def wheels():
    """The pure wheel, and a stable one for this torch's GPUs."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    backend = "rocm" if torch.version.hip else "cu"
    pure = sorted(DIST.glob("fusedops-*-py3-none-any.whl"))
    stable = sorted(DIST.glob(f"fusedops-*+{backend}*-py3-none-*x86_64.whl"))
    if not pure or not stable:
        pytest.skip("dist/ has not the pure wheel and a stable one: run `nox -s wheels` first")
    return pure[-1], stable[-1]


def run(wheel: Path, folder: Path, **more: str) -> dict[str, object]:
    env = installed(wheel, folder)
    done = subprocess.run(
        [env.python, str(BITS)],
        cwd=folder,
        env={**env.environ, "TORCHWHEEL_CACHE": str(folder.parent / "cache"), **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.gpu
def test_what_is_built_here_gives_the_bits_of_what_is_prebuilt(wheels, tmp_path):
    pure, stable = wheels
    begun = time.monotonic()
    built = run(pure, tmp_path / "built", TORCHWHEEL_MODE="error")
    print(f"built and run in {time.monotonic() - begun:.1f} s: {built['library']}")
    assert "jit build" in str(built["library"])
    again = run(pure, tmp_path / "again", TORCHWHEEL_MODE="error")
    assert "jit cache" in str(again["library"])
    prebuilt = run(stable, tmp_path / "prebuilt")
    assert "prebuilt" in str(prebuilt["library"])
    assert built["bits"] == again["bits"] == prebuilt["bits"]


@pytest.mark.gpu
def test_without_a_compiler_it_falls_back_and_passes_the_smoke_tests(wheels, tmp_path):
    pure, _ = wheels
    folder = tmp_path / "bare"
    env = installed(pure, folder)
    environ = {**env.environ, "PATH": str(folder), "TORCHWHEEL_CACHE": str(tmp_path / "cache")}
    for name in ("CXX", "CUDA_HOME", "ROCM_PATH"):
        environ.pop(name, None)
    shutil.copytree(ROOT / "tests" / "smoke", folder / "smoke")
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [env.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "smoke"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "bias_act on plain PyTorch: " in done.stdout
    assert "no C++ compiler (g++, c++ or clang++) on the PATH" in done.stdout
