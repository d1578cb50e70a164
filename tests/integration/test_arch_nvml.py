"""NVIDIA's GPUs through a real shared library that stands for the driver's."""

import json
import subprocess
from pathlib import Path

import pytest

from programmaker import run_python
from torchwheel_runtime.arch import devices
from torchwheel_runtime.arch.devices import Gpu, visible_gpus
from torchwheel_runtime.arch.model import CudaArch
from torchwheel_runtime.errors import TorchwheelError

pytestmark = pytest.mark.integration
SOURCE = Path(__file__).with_name("nvml.cpp")
# Whoever loads this has CUDA's library in the process; it says so by a file.
CUDA_LIBRARY = """
#include <cstdlib>
#include <fstream>
__attribute__((constructor)) static void loaded() { std::ofstream(std::getenv("CUDA_LOADED")); }
"""
TWO = """
driver 580.95.05
cuda 13000
board 7 5 GPU-cd33 2560 1590 Tesla T4
board 9 0 GPU-ab22 16896 1980 NVIDIA H200
"""
IN_A_PROCESS = """
import dataclasses, json, os, sys
from torchwheel_runtime.arch.devices import visible_gpus
def told():
    return [f"{gpu.index} {gpu.name} {gpu.arch}" for gpu in visible_gpus("cuda").gpus]
parent = told()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, json.dumps(told()).encode())
    os._exit(0)
os.wait()
child = json.loads(os.read(read, 10000))
others = [name for name in sys.modules if name.split(".")[0] in ("torch", "packaging", "rich")]
print(json.dumps([parent, child, told(), others]))
"""


def shared(source: str, path: Path, *options: str) -> Path:
    command = ["g++", "-x", "c++", "-std=c++17", "-shared", "-fPIC", *options, "-o", str(path), "-"]
    subprocess.run(command, input=source, text=True, check=True)
    return path


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> Path:
    """A folder with the drivers' libraries, under the names that a loader looks for."""
    folder = tmp_path_factory.mktemp("driver")
    shared(SOURCE.read_text(), folder / devices.NVML)
    shared(SOURCE.read_text(), folder / "libold.so", "-DOLD")
    shared(CUDA_LIBRARY, folder / "libcuda.so.1")
    return folder


@pytest.fixture
def driver(libraries, tmp_path, monkeypatch):
    """Says what the driver answers; gives the library's path."""

    def answers(text: str, library: str = devices.NVML) -> str:
        (tmp_path / "answers").write_text(text)
        monkeypatch.setenv("FAKE_NVML", str(tmp_path / "answers"))
        return str(libraries / library)

    return answers


def names(library: str, **environ: str) -> str:
    return ", ".join(gpu.name for gpu in visible_gpus("cuda", environ, library=library).gpus)


def test_gpus_and_driver(driver):
    library = driver(TWO)
    assert visible_gpus("cuda", {}, library=library).gpus == (
        Gpu(0, "NVIDIA H200", CudaArch(9, 0)),
        Gpu(1, "Tesla T4", CudaArch(7, 5)),
    )
    assert devices.nvidia_driver(library) == devices.Driver("cuda", "580.95.05", "13.0")
    assert names(library, CUDA_DEVICE_ORDER="PCI_BUS_ID") == "Tesla T4, NVIDIA H200"
    assert names(library, CUDA_VISIBLE_DEVICES="GPU-cd") == "Tesla T4"
    assert devices.nvidia_driver(driver(TWO.replace("13000", "12090"))).cuda == "12.9"


def test_it_is_started_and_ended_each_time(driver):
    """The stand-in answers nothing before nvmlInit, nor after as many nvmlShutdown."""
    library = driver(TWO)
    for _ in range(3):
        assert len(devices.nvidia_boards(library)) == 2
        assert devices._Nvml(devices.ctypes.CDLL(library)).call("nvmlShutdown") == 1


def test_a_lost_gpu_is_not_there(driver):
    library = driver("lost\n" + TWO)
    assert names(library, CUDA_DEVICE_ORDER="PCI_BUS_ID") == "Tesla T4, NVIDIA H200"


def test_mig_instances_stand_for_their_gpu(driver):
    library = driver(TWO + "slice MIG-1a\nslice MIG-1b\n")
    assert names(library, CUDA_VISIBLE_DEVICES="MIG-1b") == "NVIDIA H200"
    assert names(library, CUDA_VISIBLE_DEVICES="MIG-1a,MIG-1b") == "NVIDIA H200"
    assert names(library, CUDA_VISIBLE_DEVICES="MIG-2") == ""


def test_an_old_drivers_library_lacks_functions(driver):
    library = driver("driver 418.0\n" + TWO.replace("cuda 13000\n", ""), "libold.so")
    assert names(library) == "Tesla T4, NVIDIA H200"
    assert devices.nvidia_driver(library).cuda is None


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("init 18", "Driver/library version mismatch; the driver was updated under it: restart"),
        ("init 9", r"Driver Not Loaded; load the driver's kernel module \(modprobe nvidia\)"),
        ("init 3", r"\?$"),
    ],
)
def test_a_driver_that_does_not_answer_says_why(driver, answer, says):
    library = driver(answer)
    for ask in (devices.nvidia_boards, devices.nvidia_driver):
        with pytest.raises(TorchwheelError, match=f"^the NVIDIA driver does not answer: {says}"):
            ask(library)
    assert visible_gpus("cuda", {}, library=library).why is not None


def test_a_library_that_is_none_of_nvidias(libraries):
    why = visible_gpus("cuda", {}, library="libc.so.6").why
    assert why == "the NVIDIA driver does not answer: error 13"


def test_a_machine_without_gpus(driver):
    assert (
        visible_gpus("cuda", {}, library=driver("driver 1.0")).why == "the driver knows of no GPU"
    )


def test_a_process_can_fork_before_and_after_and_cuda_is_never_loaded(
    driver, libraries, tmp_path, monkeypatch
):
    driver(TWO)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    monkeypatch.setenv("CUDA_LOADED", str(tmp_path / "cuda-was-loaded"))
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    done = run_python(IN_A_PROCESS)
    assert done.returncode == 0, done.stderr
    expected = ["0 NVIDIA H200 9.0", "1 Tesla T4 7.5"]
    assert json.loads(done.stdout) == [expected, expected, expected, []]
    assert not (tmp_path / "cuda-was-loaded").exists()
    # The stand-in for CUDA's library does tell when it is loaded.
    run_python("import ctypes; ctypes.CDLL('libcuda.so.1')")
    assert (tmp_path / "cuda-was-loaded").exists()
