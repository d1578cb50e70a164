"""Gates over a ROCm library: real code objects of hipcc's, linked by gcc, put in a wheel."""

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from torchwheel.arch.model import parse
from torchwheel.check.facts import Limits
from torchwheel.check.gates import GateResult, all_passed, gates_text, run_gates
from torchwheel.claims import Claims
from wheelmaker import stable, wheel_around

pytestmark = pytest.mark.integration

LIMITS = Limits(max_size_mib=8)
OUTPUTS = Path(__file__).parents[1] / "unit" / "inspect" / "outputs"
RUNTIME = "int hipLaunchKernel(void) { return 0; }\n"
VERSIONS = "hip_4.2 { global: hip*; local: *; };\n"
SOURCE = """
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
CLAIMS = stable(
    variant="rocm5.7-stable",
    backend="rocm",
    toolkit="rocm5.7",
    toolkit_version="5.7",
    archs=("gfx90a", "gfx1100"),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the builder makes, as far as gates can see: hipcc is not needed for it."""
    if not (gcc := shutil.which("gcc")):
        pytest.skip("no gcc on PATH")
    folder = tmp_path_factory.mktemp("rocm")
    shutil.copy(OUTPUTS / "two_files_5.7.hip_fatbin", folder / "code")
    for name, text in (("hip.c", RUNTIME), ("hip.map", VERSIONS), ("x.c", SOURCE)):
        (folder / name).write_text(text)
    for arguments in (
        ("hip.c", "-Wl,-soname,libamdhip64.so.5,--version-script=hip.map", "-o", "libhip.so"),
        ("x.c", "libhip.so", "-o", "_C.so"),
    ):
        subprocess.run([gcc, "-shared", "-fPIC", *arguments], cwd=folder, check=True)
    return (folder / "_C.so").read_bytes()


def pack(folder: Path, library: bytes, claims: Claims = CLAIMS) -> Path:
    return wheel_around(folder, library, claims, f"manylinux_2_5_{os.uname().machine}")


def failures(results: tuple[GateResult, ...]) -> dict[str, str]:
    return {result.name: result.says for result in results if not result.ok}


@pytest.fixture
def no_cuobjdump(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Machines that only ever see ROCm wheels have none."""
    monkeypatch.setenv("TORCHWHEEL_CUOBJDUMP", str(tmp_path / "none"))


@pytest.mark.usefixtures("no_cuobjdump")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="glibc's first versions are x86_64's")
def test_a_right_wheel_passes(tmp_path: Path, library: bytes) -> None:
    results = run_gates(pack(tmp_path, library), LIMITS)
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
        ({"archs": (*CLAIMS.archs, parse("gfx942"))}, "archs", "with a kernel for gfx942"),
        ({"backend": "cuda", "toolkit_version": "13.0"}, "archs", "archs of backend cuda expected"),
        ({"toolkit_version": "6.4"}, "runtime", "needs libamdhip64.so.5, which is not allowed"),
    ],
)
def test_a_claim_that_does_not_hold(
    tmp_path: Path, library: bytes, changes: dict[str, object], gate: str, says: str
) -> None:
    claims = dataclasses.replace(CLAIMS, **changes)  # type: ignore[arg-type]
    found = failures(run_gates(pack(tmp_path, library, claims), LIMITS))
    assert gate in found
    assert says in found[gate]


@pytest.mark.usefixtures("no_cuobjdump")
def test_an_entry_under_another_name(tmp_path: Path, library: bytes) -> None:
    """An entry's name is compared with the ELF header of what is in it."""
    name = b"hipv4-amdgcn-amd-amdhsa--gfx1100"
    assert name in library
    bent = library.replace(name, name.replace(b"gfx1100", b"gfx1101"))
    found = failures(run_gates(pack(tmp_path, bent), LIMITS))
    assert list(found) == ["archs"]
    assert "gfx1101' of .hip_fatbin holds code for gfx1100" in found["archs"]
