"""Gates over real libraries: made by gcc and nvcc, put in wheels, judged from the file.

That for ROCm has real code objects of hipcc's, linked by gcc.
"""

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from torchwheel.check.facts import Limits, read_facts
from torchwheel.check.gates import all_passed, gates_text, judge, run_gates
from torchwheel.findings import CheckResult
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import Claims
from wheelmaker import stable, wheel_around

pytestmark = pytest.mark.integration

LIMITS = Limits(max_size_mib=8)
SOURCE = """
extern "C" int torch_call_dispatcher(int);
extern "C" __attribute__((weak)) int aoti_torch_get_current_cuda_stream(int);
#ifdef MANGLED
namespace at { int add(int); }
#endif
__global__ void kernel(float *p) { *p += 1; }
extern "C" __attribute__((visibility("default"))) int run(float *p) {
    kernel<<<1, 1>>>(p);
#ifdef MANGLED
    return at::add(1);
#endif
    return aoti_torch_get_current_cuda_stream ? torch_call_dispatcher(1) : 0;
}
"""


def build(nvcc: Path, folder: Path, *, define: str = "PLAIN", cudart: str = "static") -> bytes:
    """A library with machine code for 8.0 and 9.0 and PTX for 9.0."""
    (folder / "k.cu").write_text(SOURCE)
    subprocess.run(
        [
            str(nvcc),
            *("-shared", "-cudart", cudart, f"-D{define}", "-Xcompiler", "-fPIC"),
            *(
                "-gencode=arch=compute_80,code=sm_80",
                "-gencode=arch=compute_90,code=[sm_90,compute_90]",
            ),
            *("k.cu", "-o", "_C.so"),
        ],
        cwd=folder,
        check=True,
    )
    return (folder / "_C.so").read_bytes()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, nvcc: Path) -> bytes:
    return build(nvcc, tmp_path_factory.mktemp("library"))


CLAIMS = stable(archs=("8.0", "9.0+PTX"))


def pack(folder: Path, library: bytes, claims: Claims = CLAIMS, tag: str | None = None) -> Path:
    """A wheel around the library; its platform tag is what auditwheel finds unless given."""

    if tag is None:
        draft = wheel_around(folder, library, claims, f"linux_{os.uname().machine}")
        tag = read_facts(draft).audit.read().tag
        draft.unlink()
    assert tag is not None
    return wheel_around(folder, library, claims, tag)


def failures(results: tuple[CheckResult, ...]) -> dict[str, str]:
    return {result.name: result.says for result in results if not result.ok}


def test_a_right_wheel_passes(tmp_path: Path, library: bytes) -> None:
    results = run_gates(pack(tmp_path, library), LIMITS)
    assert all_passed(results), gates_text(results)
    says = {result.name: result.says for result in results}
    assert says["archs"] == "sm_80 sm_90 + PTX sm_90, 1 kernels in each"
    assert "manylinux_2_" in says["platform-tag"]
    assert "GLIBC_2." in says["platform-tag"]


ARCHS = ("8.0", "9.0+PTX")


@pytest.mark.parametrize(
    ("archs", "tag", "gate", "says"),
    [
        ((*ARCHS, "12.0"), None, "archs", "claimed, but no machine code with a kernel for sm_120"),
        (("8.6", "9.0+PTX"), None, "archs", "for sm_86; machine code not claimed: sm_80"),
        (("8.0", "9.0"), None, "archs", "PTX not claimed: sm_90"),
        (("8.0+PTX", "9.0+PTX"), None, "archs", "claimed with +PTX, but no PTX for sm_80"),
        *(
            (ARCHS, tag, "platform-tag", f"the file name {tag}_")
            for tag in ("manylinux_2_17", "manylinux_2_41", "linux")
        ),
    ],
)
def test_a_claim_that_does_not_hold(
    tmp_path: Path, library: bytes, archs: tuple[str, ...], tag: str | None, gate: str, says: str
) -> None:
    claims = dataclasses.replace(CLAIMS, archs=tuple(map(parse, archs)))
    path = pack(tmp_path, library, claims, tag and f"{tag}_{os.uname().machine}")
    found = failures(run_gates(path, LIMITS))
    assert list(found) == [gate]
    assert says in found[gate]


def test_a_mangled_symbol_of_torch(tmp_path: Path, nvcc: Path) -> None:
    path = pack(tmp_path, build(nvcc, tmp_path, define="MANGLED"))
    found = failures(run_gates(path, LIMITS))
    assert list(found) == ["torch-symbols"]
    assert "_ZN2at3addEi is a C++ symbol of torch" in found["torch-symbols"]


def test_shared_cudart(tmp_path: Path, nvcc: Path) -> None:
    path = pack(tmp_path, build(nvcc, tmp_path, cudart="shared"), tag=f"linux_{os.uname().machine}")
    found = failures(run_gates(path, LIMITS))
    assert list(found) == ["runtime", "platform-tag"]
    assert "libcudart.so.13" in found["runtime"]
    assert "libraries outside every manylinux system: libcudart.so.13" in found["platform-tag"]


def test_no_cuobjdump_fails_closed(tmp_path: Path, library: bytes) -> None:
    path = pack(tmp_path, library)
    facts = read_facts(path, tmp_path / "no-cuobjdump")
    assert list(failures(judge(facts, LIMITS))) == ["archs"]


OUTPUTS = Path(__file__).parents[1] / "unit" / "inspect" / "outputs"
HIP_RUNTIME = "int hipLaunchKernel(void) { return 0; }\n"
HIP_VERSIONS = "hip_4.2 { global: hip*; local: *; };\n"
ROCM_SOURCE = """
extern int torch_call_dispatcher(int);
__attribute__((weak)) extern int aoti_torch_get_current_cuda_stream(int);
extern int hipLaunchKernel(void), puts(const char *);
__asm__(".section .hip_fatbin,\\"a\\"\\n.balign 4096\\n.incbin \\"code\\"\\n"
        ".section .hipFatBinSegment,\\"aw\\"\\n.zero 48\\n.text\\n");
int run(void) {
    puts("x");
    return aoti_torch_get_current_cuda_stream ? torch_call_dispatcher(hipLaunchKernel()) : 0;
}
"""
ROCM_CLAIMS = stable(
    variant="rocm5.7-stable",
    backend="rocm",
    toolkit="rocm5.7",
    toolkit_version="5.7",
    archs=("gfx90a", "gfx1100"),
)


@pytest.fixture(scope="module")
def rocm_library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the builder makes, as far as gates can see: hipcc is not needed for it."""
    if not (gcc := shutil.which("gcc")):
        pytest.skip("no gcc on PATH")
    folder = tmp_path_factory.mktemp("rocm")
    shutil.copy(OUTPUTS / "two_files_5.7.hip_fatbin", folder / "code")
    for name, text in (("hip.c", HIP_RUNTIME), ("hip.map", HIP_VERSIONS), ("x.c", ROCM_SOURCE)):
        (folder / name).write_text(text)
    for arguments in (
        ("hip.c", "-Wl,-soname,libamdhip64.so.5,--version-script=hip.map", "-o", "libhip.so"),
        ("x.c", "libhip.so", "-o", "_C.so"),
    ):
        subprocess.run([gcc, "-shared", "-fPIC", *arguments], cwd=folder, check=True)
    return (folder / "_C.so").read_bytes()


def pack_rocm(folder: Path, library: bytes, claims: Claims | None = None) -> Path:
    return pack(folder, library, claims or ROCM_CLAIMS, f"manylinux_2_5_{os.uname().machine}")


@pytest.fixture
def no_cuobjdump(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Machines that only ever see ROCm wheels have none."""
    monkeypatch.setenv("TORCHWHEEL_CUOBJDUMP", str(tmp_path / "none"))


@pytest.mark.usefixtures("no_cuobjdump")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="glibc's first versions are x86_64's")
def test_a_right_wheel_for_rocm_passes(tmp_path: Path, rocm_library: bytes) -> None:
    results = run_gates(pack_rocm(tmp_path, rocm_library), LIMITS)
    assert all_passed(results), gates_text(results)
    says = {result.name: result.says for result in results}
    assert says["archs"] == "gfx90a gfx1100, 2 kernels in each"
    assert "libamdhip64.so.5" in says["runtime"]


@pytest.mark.usefixtures("no_cuobjdump")
@pytest.mark.parametrize(
    ("changes", "gate", "says"),
    [
        ({"archs": (parse("gfx90a"),)}, "archs", "machine code not claimed: gfx1100"),
        (
            {"archs": (parse("gfx90a:xnack-"), parse("gfx1100"))},
            "archs",
            "machine code not claimed: gfx90a",
        ),
        ({"archs": (*ROCM_CLAIMS.archs, parse("gfx942"))}, "archs", "with a kernel for gfx942"),
        ({"backend": "cuda", "toolkit_version": "13.0"}, "archs", "archs of backend cuda expected"),
        ({"toolkit_version": "6.4"}, "runtime", "needs libamdhip64.so.5, which is not allowed"),
    ],
)
def test_a_claim_of_rocm_that_does_not_hold(
    tmp_path: Path, rocm_library: bytes, changes: dict[str, object], gate: str, says: str
) -> None:
    claims = dataclasses.replace(ROCM_CLAIMS, **changes)  # type: ignore[arg-type]
    found = failures(run_gates(pack_rocm(tmp_path, rocm_library, claims), LIMITS))
    assert gate in found
    assert says in found[gate]


@pytest.mark.usefixtures("no_cuobjdump")
def test_an_entry_of_rocm_under_another_name(tmp_path: Path, rocm_library: bytes) -> None:
    """An entry's name is compared with the ELF header of what is in it."""
    name = b"hipv4-amdgcn-amd-amdhsa--gfx1100"
    assert name in rocm_library
    bent = rocm_library.replace(name, name.replace(b"gfx1100", b"gfx1101"))
    found = failures(run_gates(pack_rocm(tmp_path, bent), LIMITS))
    assert list(found) == ["archs"]
    assert "gfx1101' of .hip_fatbin holds code for gfx1100" in found["archs"]
