"""Set-ups that are broken before anything is built: what is installed does not load or run."""

import shutil
import subprocess

import pytest
from doctor_bench import CUDA_TORCH, LOADS, RELEASE, calling, row

import wheelmaker

MINOR = RELEASE.rpartition(".")[0]


@row("no torch", torch=None)
def no_torch(bench):
    bench.install(bench.compiled())


@row("a torch that cannot be imported", torch=CUDA_TORCH)
def broken_torch(bench):
    (bench.setup.site / "torch" / "lib").unlink()
    bench.install(bench.compiled())


@row("a torch older than the wheel is for", torch={"__version__": "2.6.0+cpu"})
def old_torch(bench):
    bench.install(bench.compiled())


@row("a torch for CPUs, a wheel for CUDA and a GPU", gpu={})
def cpu_torch(bench):
    bench.install(bench.kernels("80"))


@row("a torch for CPUs, and an ordinary extension for CUDA")
def cpu_torch_ordinary(bench):
    cuda = bench.stub("libc10_cuda.so", "_ZN3c104cuda14current_deviceEv")
    code = calling("_ZN3c104cuda14current_deviceEv")
    claims = wheelmaker.stable(abi="aten", torch_release=MINOR)
    bench.install(bench.compiled(code, cuda), claims=claims)


@row("a torch for CPUs, and an extension for a CUDA that its release on PyPI has not")
def cpu_torch_other_cuda(bench):
    runtime = bench.stub("libcudart.so.12", "cudaMalloc")
    code = calling("cudaMalloc", "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs")
    bench.install(bench.compiled(code, runtime), claims=wheelmaker.PURE, requires=("torch>=2.5.1",))


@row("a torch for CPUs, and libraries for CUDA that the import can do without", status=0)
def cpu_torch_optional(bench):
    cuda = bench.stub("libc10_cuda.so", "_ZN3c104cuda14current_deviceEv")
    code = calling("aoti_torch_get_current_cuda_stream", "_ZN3c104cuda14current_deviceEv")
    claims, imports = wheelmaker.PURE, "import torch\n"
    bench.install(bench.compiled(code, cuda), code=imports, claims=claims)


@row(
    "a torch for ROCm, a wheel for CUDA",
    torch={"__version__": f"{RELEASE}+rocm6.4", "hip": "6.4.43482"},
)
def rocm_torch(bench):
    bench.install(bench.kernels("80"))


@row("a wheel for another major release of CUDA", torch=CUDA_TORCH)
def cuda_major(bench):
    runtime = bench.stub("libcudart.so.12", "cudaMalloc")
    code = calling("cudaMalloc", "_ZN3c1015GetCPUAllocatorEv")
    claims = wheelmaker.stable(
        variant="cu124-torch2.13-cp312",
        abi="aten",
        torch_release=MINOR,
        toolkit="cu124",
        toolkit_version="12.4",
    )
    bench.install(bench.compiled(code, runtime), claims=claims)


@row(
    "a driver older than the wheel's CUDA",
    torch=CUDA_TORCH,
    gpu={"DRIVER": '"535.104.05"', "CUDA": 12020, "ARCH": 80, "NAME": '"NVIDIA A100"'},
)
def old_driver(bench):
    bench.install(bench.kernels("80"))


@row("a GPU that the wheel has no code for", torch=CUDA_TORCH, gpu={})
def other_arch(bench):
    bench.install(bench.kernels("80"))


@row("PTX that is newer than the driver", torch=CUDA_TORCH, gpu={})
def new_ptx(bench):
    claims = wheelmaker.stable(toolkit="cu132", toolkit_version="13.2", archs=("8.0+PTX",))
    bench.install(bench.kernels("80+PTX"), claims=claims)


@row("a driver that is not loaded", torch=CUDA_TORCH, gpu={"STATUS": 9})
def no_driver(bench):
    bench.install(bench.kernels("80"))


@row("GPUs that are hidden", torch=CUDA_TORCH, gpu={})
def hidden(bench):
    bench.install(bench.kernels("80"))
    return {"CUDA_VISIBLE_DEVICES": ""}


@row("no GPU, which is no fault", status=0, torch=CUDA_TORCH)
def no_gpu(bench):
    bench.install(bench.kernels("80"))


@row("a C library older than the wheel asks for")
def old_glibc(bench):
    libc = bench.stub("libc.so.6", "of_tomorrow", "GLIBC_2.99")
    code = calling("of_tomorrow")
    bench.install(bench.compiled(code, "-nostdlib", libc))


@row("a libstdc++ older than the wheel asks for")
def old_libstdcxx(bench):
    library = bench.stub("libstdc++.so.6", "of_tomorrow", "GLIBCXX_3.4.99")
    code = calling("of_tomorrow")
    bench.install(bench.compiled(code, library))


@row("a library of the system that is not there")
def absent(bench):
    library = bench.stub("libnuma.so.99", "numa_available")
    code = calling("numa_available")
    bench.install(bench.compiled(code, library))


@row("built for another torch: undefined symbol")
def undefined(bench):
    code = calling("_ZNK3c106SymInt6sym_neERKS0_")
    bench.install(bench.compiled(code))


@row("built with the strings of old compilers")
def old_strings(bench):
    code = calling("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs")
    bench.install(bench.compiled(code))


@row("linked without torch")
def unlinked(bench):
    bench.install(bench.compiled(links=()))


@row("a library for another machine")
def other_machine(bench):
    if not (gcc := shutil.which("aarch64-linux-gnu-gcc")):
        pytest.skip("no compiler for aarch64 on PATH")
    (bench.folder / "arm.c").write_text("void f(void) {}")
    command = [gcc, "-shared", "-fPIC", "-nostdlib", "arm.c", "-o", "arm.so"]
    subprocess.run(command, cwd=bench.folder, check=True)
    bench.install((bench.folder / "arm.so").read_bytes())


@row("a wheel for another Python")
def other_python(bench):
    # pip would refuse it; a copied site-packages, or PYTHONPATH, brings it about.
    bench.install(bench.compiled(), code="from demo import _C", tag="cp39-cp39-linux_x86_64")


@row("torch is imported after the extension's library")
def import_order(bench):
    code = "import ctypes, pathlib\n"
    code += "ctypes.CDLL(pathlib.Path(__file__).with_name('_C.so'))\nimport torch\n"
    bench.install(bench.compiled(), code=code)


@row("a module that the package imports is not installed")
def dependency(bench):
    bench.install(bench.compiled(), code="import einops_of_nobody\n" + LOADS)


@row("the import raises")
def raises(bench):
    bench.install(code='import torch\nraise RuntimeError("no kernels today")')


@row("the import crashes Python")
def crashes(bench):
    code = (
        "#include <stdlib.h>\n__attribute__((constructor)) void f(void) { *(volatile int *)0 = 1; }"
    )
    bench.install(bench.compiled(code))


@row("the import does not end", arguments=("demo", "--seconds", "5"))
def hangs(bench):
    bench.install(code="import time\ntime.sleep(1000)")


@row("no package of that name", arguments=("dmeo",))
def misspelt(bench):
    bench.install(bench.compiled())


@row("a folder of the same name in the way")
def shadowed(bench):
    bench.install(bench.compiled())
    (bench.setup.here / "demo").mkdir()
    (bench.setup.here / "demo" / "__init__.py").touch()


@row("half removed: a file is gone")
def half_removed(bench):
    bench.install(bench.compiled())
    (bench.setup.site / "demo" / "_C.so").unlink()


@row("installed twice")
def twice(bench):
    bench.install(bench.compiled())
    bench.install(bench.compiled(), version="1.1.0")


@row("malformed metadata (torchwheel.json)")
def malformed(bench):
    bench.install(bench.compiled())
    (path,) = bench.setup.site.glob("demo-*.dist-info/torchwheel.json")
    text = path.read_text()
    path.write_text(text.replace('"schema": 5', '"schema": 7'))
