"""A fix clears the other findings as well: autoawq-kernels and torchao, as PyPI has them."""

import dataclasses

import pytest
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


CPU = {"torch": CPU_TORCH, **NO_GPU}
PYPI = "`pip install --force-reinstall torch==2.11.0` brings PyPI's, which has CUDA"
FIXES = {
    # autoawq-kernels: CUDA 12 and old strings, which PyPI's torch 2.11 has not.
    "a torch of PyPI that does not fit either": (
        foreign("libcudart.so.12", OLD_STRINGS, absent=("libcudart.so.12", "libc10_cuda.so")),
        CPU,
        "`pip install 'torch==2.6.*'` brings PyPI's, which it fits (CUDA 12, strings of before "
        "GCC 5); or keep torch 2.11.0+cpu and install a wheel for it: `torchwheel install demo "
        "--index URL`",
    ),
    "PyTorch's own index has builds that PyPI has not": (
        foreign("libcudart.so.12", absent=("libcudart.so.12",), torch="==2.11.*"),
        {"torch": CUDA_TORCH},
        "`pip install --force-reinstall 'torch==2.11.*' --index-url "
        "https://download.pytorch.org/whl/cu129` brings one that it fits (CUDA 12); or keep torch "
        "2.11.0+cu130 and install a wheel for it: `torchwheel install demo --index URL`",
    ),
    "no torch fits": (
        foreign("libcudart.so.11", NEWER, absent=("libcudart.so.11",)),
        CPU,
        "install a wheel for torch 2.11.0+cpu: `torchwheel install demo --index URL`; no torch is "
        "known that this one fits",
    ),
    "a torch of PyPI that fits": (
        foreign("libcudart.so.13", absent=("libcudart.so.13", "libc10_cuda.so")),
        CPU,
        PYPI,
    ),
}


@pytest.mark.parametrize(("made", "machine", "fix"), FIXES.values(), ids=FIXES)
def test_the_fix(made, machine, fix):
    verdict = judge(case(made, **machine))
    assert verdict.fix == fix
    if machine is CPU:
        assert verdict.findings[0].rule == "backend"
    if fix == PYPI:
        assert {f.fix for f in verdict.findings if f.rule in ("backend", "library")} == {fix}


def test_after_that_the_doctor_does_not_lead_back():
    """With a torch for CUDA 13, another wheel alone is no fix of old strings."""
    made = foreign("libcudart.so.12", OLD_STRINGS, absent=("libcudart.so.12",))
    verdict = judge(case(made, torch=CUDA_TORCH))
    fixes = {finding.fix for finding in verdict.findings if finding.rule != "import"}
    assert len(fixes) == 1
    assert "'torch==2.6.*'" in verdict.fix
    assert "torchwheel install demo --index URL" in verdict.fix


TORCHAO = foreign(
    "libcudart.so.13",
    CUDA_SHIM,
    absent=("libc10_cuda.so", "libtorch_cuda.so"),
    imported=IMPORTED,
)


def test_a_torch_for_cpus_without_a_gpu_is_no_fault_if_the_import_works():
    """Of torchao: its import goes on without its libraries."""
    verdict = judge(case(TORCHAO, **CPU))
    assert verdict.ok, verdict
    assert "and torch 2.11.0+cpu is for CPUs, so its kernels lie idle" in verdict.says


def test_with_a_gpu_every_finding_of_that_torch_has_one_fix():
    verdict = judge(case(TORCHAO, torch=CPU_TORCH, gpus=(H200,)))
    assert [f.rule for f in verdict.findings][:2] == ["backend", "library"]
    assert {f.fix for f in verdict.findings} == {PYPI}
    assert "LD_LIBRARY_PATH" not in repr(verdict)


def test_a_library_of_nobodys_torch_still_has_its_own_fix():
    made = foreign("libnuma.so.99", absent=("libnuma.so.99",))
    made = dataclasses.replace(
        made, natives=(dataclasses.replace(made.natives[0], needed=("libnuma.so.99",), code=()),)
    )
    verdict = judge(case(made, **CPU))
    assert "add its folder to LD_LIBRARY_PATH" in verdict.fix
