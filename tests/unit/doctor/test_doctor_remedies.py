"""A fix clears the other findings as well: autoawq-kernels and torchao, as PyPI has them."""

import dataclasses

from doctor_cases import CPU_TORCH, CUDA_TORCH, H200, SITE, case, links, native, package

from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.doctor.dist_info import DistInfo
from torchwheel_runtime.doctor.importing import ImportResult
from torchwheel_runtime.doctor.verdict import judge
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.machine.facts import Absent

RAISED = ImportResult("raised", ("ImportError: libc10.so",), folders=(SITE / "demo",), torch=True)
IMPORTED = ImportResult("imported", folders=(SITE / "demo",), torch=True)
NO_GPU = {"gpus": (), "driver": None, "driver_problem": Absent("no NVIDIA driver")}
OLD_STRINGS = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
NEWER = "_ZNK3c106SymInt6sym_neERKS0_"
CUDA_SHIM = "aoti_torch_get_current_cuda_stream"


def foreign(runtime, *undefined, absent=(), imported=RAISED, torch=">=2.5.1"):
    """A package without claims, whose library is not loaded."""
    library = native(
        "demo/_C.so",
        loaded=False,
        code=(GpuCode("sass", parse("9.0"), ("kernel",)),),
        needed=("libc10.so", runtime, "libc10_cuda.so"),
        links=links(undefined=frozenset(undefined), absent=dict.fromkeys(absent, "_C.so")),
    )
    info = DistInfo(name="demo", version="0.0.9", packages=("demo",), torch=torch)
    return package(info=info, natives=(library,), imported=imported)


def test_a_torch_of_pypi_that_does_not_fit_either_is_not_the_fix():
    """Of autoawq-kernels: CUDA 12 and old strings, which PyPI's torch 2.11 has not."""
    made = foreign("libcudart.so.12", OLD_STRINGS, absent=("libcudart.so.12", "libc10_cuda.so"))
    verdict = judge(case(made, torch=CPU_TORCH, **NO_GPU))
    assert verdict.findings[0].rule == "backend"
    assert verdict.fix == (
        "`pip install 'torch==2.6.*'` brings PyPI's, which it fits (CUDA 12, strings of before "
        "GCC 5); or keep torch 2.11.0+cpu and install a wheel for it: `torchwheel install demo "
        "--index URL`"
    )


def test_after_that_the_doctor_does_not_lead_back():
    """With a torch for CUDA 13, another wheel alone is no fix of old strings."""
    made = foreign("libcudart.so.12", OLD_STRINGS, absent=("libcudart.so.12",))
    verdict = judge(case(made, torch=CUDA_TORCH))
    fixes = {finding.fix for finding in verdict.findings if finding.rule != "import"}
    assert len(fixes) == 1
    assert "'torch==2.6.*'" in verdict.fix
    assert "torchwheel install demo --index URL" in verdict.fix


def test_pytorchs_own_index_has_builds_that_pypi_has_not():
    made = foreign("libcudart.so.12", absent=("libcudart.so.12",), torch="==2.11.*")
    verdict = judge(case(made, torch=CUDA_TORCH))
    assert verdict.fix == (
        "`pip install --force-reinstall 'torch==2.11.*' --index-url "
        "https://download.pytorch.org/whl/cu129` brings one that it fits (CUDA 12); or keep torch "
        "2.11.0+cu130 and install a wheel for it: `torchwheel install demo --index URL`"
    )


def test_where_no_torch_fits_another_wheel_is_the_fix():
    made = foreign("libcudart.so.11", NEWER, absent=("libcudart.so.11",))
    verdict = judge(case(made, torch=CPU_TORCH, **NO_GPU))
    assert verdict.fix == (
        "install a wheel for torch 2.11.0+cpu: `torchwheel install demo --index URL`; no torch is "
        "known that this one fits"
    )


def test_a_torch_of_pypi_that_fits_is_still_the_fix():
    made = foreign("libcudart.so.13", absent=("libcudart.so.13", "libc10_cuda.so"))
    verdict = judge(case(made, torch=CPU_TORCH, **NO_GPU))
    fix = "`pip install --force-reinstall torch==2.11.0` brings PyPI's, which has CUDA"
    assert verdict.fix == fix
    assert {f.fix for f in verdict.findings if f.rule in ("backend", "library")} == {fix}


def test_a_torch_for_cpus_without_a_gpu_is_no_fault_if_the_import_works():
    """Of torchao: its import goes on without its libraries."""
    made = foreign(
        "libcudart.so.13",
        CUDA_SHIM,
        absent=("libc10_cuda.so", "libtorch_cuda.so"),
        imported=IMPORTED,
    )
    verdict = judge(case(made, torch=CPU_TORCH, **NO_GPU))
    assert verdict.ok, verdict
    assert "and torch 2.11.0+cpu is for CPUs, so its kernels lie idle" in verdict.says


def test_with_a_gpu_every_finding_of_that_torch_has_one_fix():
    made = foreign(
        "libcudart.so.13",
        CUDA_SHIM,
        absent=("libc10_cuda.so", "libtorch_cuda.so"),
        imported=IMPORTED,
    )
    verdict = judge(case(made, torch=CPU_TORCH, gpus=(H200,)))
    assert [f.rule for f in verdict.findings][:2] == ["backend", "library"]
    fix = "`pip install --force-reinstall torch==2.11.0` brings PyPI's, which has CUDA"
    assert {f.fix for f in verdict.findings} == {fix}
    assert "LD_LIBRARY_PATH" not in repr(verdict)


def test_a_library_of_nobodys_torch_still_has_its_own_fix():
    made = foreign("libnuma.so.99", absent=("libnuma.so.99",))
    made = dataclasses.replace(
        made, natives=(dataclasses.replace(made.natives[0], needed=("libnuma.so.99",), code=()),)
    )
    verdict = judge(case(made, torch=CPU_TORCH, **NO_GPU))
    assert "add its folder to LD_LIBRARY_PATH" in verdict.fix
