"""The GPUs of this machine as torchwheel finds them, against what torch finds by starting CUDA."""

import json
import os
import subprocess
import sys

import pytest

from torchwheel_runtime.arch import devices

pytestmark = pytest.mark.gpu
# In processes of their own: nothing may have started CUDA in one before.
COMPARED = """
import json, os, time
import torch
from torchwheel_runtime.arch.devices import visible_gpus
backend = "rocm" if torch.version.hip else "cuda"
def told():
    return [[gpu.index, str(gpu.arch)] for gpu in visible_gpus(backend).gpus]
def torchs():
    found = []
    for i in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(i)
        name = facts.gcnArchName.split(":")[0] if torch.version.hip else None
        found.append([i, name or f"{facts.major}.{facts.minor}"])
    return found
def works():
    return all(float(torch.ones(9, device=f"cuda:{i}").sum()) == 9 for i, _ in torchs())
start = time.perf_counter()
ours = told()
seconds = time.perf_counter() - start
started = torch.cuda.is_initialized()
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(write, json.dumps([told(), torchs(), works()]).encode())
    os._exit(0)
os.close(write)
with open(read) as pipe:
    child = json.loads(pipe.read() or "[0, 1, false]")
os.waitpid(pid, 0)
names = [gpu.name for gpu in visible_gpus(backend).gpus]
print(json.dumps({
    "parent": [ours, torchs(), works()], "child": child, "started": started,
    "names": [names, [torch.cuda.get_device_name(i) for i, _ in torchs()]],
    "seconds": seconds, "hip": bool(torch.version.hip),
}))
"""
COUNTED = """
import ctypes, json
from torchwheel_runtime.arch.devices import visible_gpus
ours = len(visible_gpus("cuda").gpus)
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
before = cuda.cuDeviceGetCount(ctypes.byref(count))
cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
print(json.dumps([ours, count.value, before]))
"""
NOT_INITIALIZED = 3  # CUDA's answer to whoever has not started it
DRIVER = """
import ctypes, json, os
import torch
from torchwheel_runtime.arch import devices
told = devices.nvidia_driver()
started = torch.cuda.is_initialized()
pid = os.fork()
if pid == 0:
    os._exit(devices.nvidia_driver() != told or float(torch.ones(9, device="cuda").sum()) != 9)
child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
torch.ones(9, device="cuda")
number = ctypes.c_int(0)
ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
print(json.dumps([told.release, told.cuda, number.value, started, child]))
"""


@pytest.fixture(scope="module", autouse=True)
def hip() -> bool:
    """Whether it is AMD's; skip without a GPU. Another process asks: this one stays as it is."""
    pytest.importorskip("torch", reason="torch is not installed")
    ask = "import torch; print(torch.cuda.is_available(), bool(torch.version.hip))"
    told = subprocess.run(
        [sys.executable, "-c", ask], stdout=subprocess.PIPE, text=True, check=True
    )
    works, is_hip = told.stdout.split()
    if works == "False":
        pytest.skip("no GPU that torch can use")
    return is_hip == "True"


@pytest.fixture
def nvidia(hip: bool) -> None:
    if hip:
        pytest.skip("asks NVIDIA's driver")


def run(program: str, **environ: str):
    env = {name: value for name, value in os.environ.items() if "VISIBLE_DEVICES" not in name}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**env, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_they_are_torchs_and_a_process_can_fork_before_and_after():
    found = run(COMPARED)
    assert found["parent"][0]
    for ours, torchs, works in (found["parent"], found["child"]):
        assert ours == torchs
        assert works
    assert not found["started"]
    assert found["hip"] or found["names"][0] == found["names"][1]
    print(f"visible(): {found['seconds'] * 1000:.1f} ms, {found['names'][0]}")


@pytest.mark.parametrize("value", ["", "0"])
def test_the_same_of_hidden_ones(value):
    found = run(COMPARED, CUDA_VISIBLE_DEVICES=value)
    for ours, torchs, works in (found["parent"], found["child"]):
        assert ours == torchs
        assert works


@pytest.mark.usefixtures("nvidia")
@pytest.mark.parametrize(
    "value",
    ["", "-1", "0", "00", "+0", " 0", "0,0", "99", "0,99", "0,99,0", "0,-1", "0,x,0", "0x", "x"]
    + ["{uuid}", "{uuid:.12}", "{upper}", "{uuid},{uuid}", "{uuid},0", "0,{uuid}", "GPU-"]
    + ["{uuid},GPU-zz,{uuid}", "GPU-zz", "gpu-{uuid}", " {uuid}", "MIG-zz", "MIG-"],
)
def test_a_variable_means_what_it_means_to_cuda(value):
    uuid = devices.nvidia_boards()[0].uuid
    upper = f"GPU-{uuid.removeprefix('GPU-').upper()}"
    told = run(COUNTED, CUDA_VISIBLE_DEVICES=value.format(uuid=uuid, upper=upper))
    ours, cudas, before = told
    assert ours == cudas
    assert before == NOT_INITIALIZED


@pytest.mark.usefixtures("nvidia")
def test_the_driver_is_asked_without_starting_cuda():
    release, cuda, number, started, child = run(DRIVER)
    assert release.count(".") >= 1
    assert cuda == f"{number // 1000}.{number % 1000 // 10}"
    assert not started
    assert child == 0
