"""The gates on facts of a ROCm wheel: what differs from CUDA's."""

import dataclasses
from pathlib import Path

import pytest
from gate_facts import LIMITS, Change, Violations, code, flat, needs, only, symbol, wheel

from torchwheel.check.audit import Audit, provided_by_torch
from torchwheel.check.facts import Fact, WheelFacts
from torchwheel.check.gates import all_passed, judge
from torchwheel.inspect.wheel import read_wheel
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.inspect.elf import GpuCode, Library, UndefinedSymbol
from wheelmaker import make_wheel, stable

TAG = "py3-none-manylinux_2_17_x86_64"
KERNELS = ("_Z1kPf", "_Z2k2Pf")
CLAIMS = stable(
    variant="rocm6.4-stable",
    backend="rocm",
    toolkit="rocm6.4",
    toolkit_version="6.4",
    archs=("gfx90a:xnack-", "gfx942", "gfx1100"),
)
CODE = tuple(GpuCode("hsaco", arch, KERNELS) for arch in CLAIMS.archs)
LIBRARY = Library(
    "demo/_C.so",
    "x86_64",
    None,
    ("libtorch.so", "libamdhip64.so.6", "libc.so.6"),
    (
        UndefinedSymbol("aoti_torch_get_current_cuda_stream", weak=True),
        UndefinedSymbol("torch_call_dispatcher"),
        UndefinedSymbol("hipLaunchKernel", version="hip_4.2", library="libamdhip64.so.6"),
    ),
)


@pytest.fixture
def facts(tmp_path: Path) -> WheelFacts:
    path = make_wheel(
        tmp_path, version="1.0.0+rocm6.4", tag=TAG, claims=CLAIMS, requires=("torch>=2.11",)
    )
    audit = Audit("manylinux_2_17_x86_64", ("manylinux2014_x86_64",))
    return WheelFacts(
        Fact(read_wheel(path)), Fact((LIBRARY,)), Fact({"demo/_C.so": CODE}), Fact(audit)
    )


def claiming(archs: tuple[str, ...] = (), **changes: object) -> Change:
    if archs:
        changes["archs"] = tuple(map(parse, archs))
    return wheel(claims=dataclasses.replace(CLAIMS, **changes))  # type: ignore[arg-type]


OF_ANOTHER = "needs libamdhip64.so.6, which is not allowed: HIP has no static runtime"


def hsaco(arch: str, kernels: tuple[str, ...] = KERNELS) -> GpuCode:
    return GpuCode("hsaco", parse(arch), kernels)


RUNTIMES = ("libtorch_hip.so", "libhsa-runtime64.so.1", "libamdhip64.so")
VIOLATIONS: Violations = {
    "archs": [
        ("no machine code with a kernel for gfx90a:xnack-, gfx942, gfx1100", code()),
        ("no machine code with a kernel for gfx1100", code(*CODE[:2])),
        ("machine code not claimed: gfx1030", code(*CODE, hsaco("gfx1030"))),
        ("machine code not claimed: gfx90a", code(*CODE, hsaco("gfx90a"))),
        ("machine code not claimed: sm_90", code(*CODE, GpuCode("sass", parse("9.0"), KERNELS))),
        ("PTX not claimed: sm_90", code(*CODE, GpuCode("ptx", parse("9.0")))),
        ("with a kernel for gfx1100", code(*CODE[:2], hsaco("gfx1100", ()))),
        ("gfx1100 lacks 1 kernels", code(*CODE[:2], hsaco("gfx1100", KERNELS[:1]))),
        ("gfx90a:xnack- lacks 1 kernels", code(*CODE, hsaco("gfx942", ("_Z1n",)))),
        ("archs of backend rocm expected, got 9.0", claiming(archs=("9.0",))),
        ("archs of backend rocm expected, got 9.0", claiming(archs=("gfx942", "9.0+PTX"))),
    ],
    "runtime": [
        (OF_ANOTHER, claiming(toolkit_version="5.7")),
        (OF_ANOTHER, claiming(toolkit_version="7.2")),
        *((f"needs {name}, which", needs(name)) for name in RUNTIMES),
    ],
    "torch-symbols": [("hipGetLastError is undefined", symbol("hipGetLastError"))],
}


@pytest.mark.parametrize(("gate", "says", "change"), flat(VIOLATIONS))
def test_a_violation_fails_just_its_gate(
    facts: WheelFacts, gate: str, says: str, change: Change
) -> None:
    assert says in only(change(facts), gate)


def test_a_right_wheel_passes_every_gate(facts: WheelFacts) -> None:
    results = judge(facts, LIMITS)
    assert all_passed(results)
    says = {result.name: result.says for result in results}
    assert says["archs"] == "gfx90a:xnack- gfx942 gfx1100, 2 kernels in each"
    assert says["runtime"] == "needs libamdhip64.so.6, libc.so.6, libtorch.so"


def test_features_are_compared_whatever_their_order(facts: WheelFacts) -> None:
    both = parse("gfx90a:sramecc+:xnack-")
    right = code(GpuCode("hsaco", both, KERNELS), *CODE[1:])(facts)
    assert all_passed(
        judge(claiming(archs=("gfx90a:xnack-:sramecc+", "gfx942", "gfx1100"))(right), LIMITS)
    )
    assert "machine code not claimed: gfx90a:sramecc+:xnack-" in only(right, "archs")


def test_what_torch_provides() -> None:
    assert "libamdhip64.so.6" in provided_by_torch(CLAIMS)
    assert "libamdhip64.so.7" in provided_by_torch(
        dataclasses.replace(CLAIMS, toolkit_version="7.2")
    )
    cuda: Claims = stable()
    assert not any(name.startswith("libamdhip64") for name in provided_by_torch(cuda))
