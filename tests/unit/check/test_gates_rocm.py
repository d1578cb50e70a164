"""The gates on facts of a ROCm wheel: what differs from CUDA's."""

import dataclasses
from pathlib import Path

import pytest

from torchwheel.arch.model import parse
from torchwheel.check.audit import Audit, provided_by_torch
from torchwheel.check.facts import Fact, Limits, WheelFacts
from torchwheel.check.gates import all_passed, judge
from torchwheel.claims import Claims
from torchwheel.inspect.elf import GpuCode, Library, UndefinedSymbol
from torchwheel.inspect.wheel import read_wheel
from wheelmaker import make_wheel, stable

LIMITS = Limits(max_size_mib=1)
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
    wheel = make_wheel(
        tmp_path, version="1.0.0+rocm6.4", tag=TAG, claims=CLAIMS, requires=("torch>=2.11",)
    )
    audit = Audit("manylinux_2_17_x86_64", ("manylinux2014_x86_64",))
    return WheelFacts(
        Fact(read_wheel(wheel)), Fact((LIBRARY,)), Fact({"demo/_C.so": CODE}), Fact(audit)
    )


def claiming(facts: WheelFacts, **changes: object) -> WheelFacts:
    claims = dataclasses.replace(CLAIMS, **changes)  # type: ignore[arg-type]
    wheel = dataclasses.replace(facts.wheel.read(), claims=claims)
    return dataclasses.replace(facts, wheel=Fact(wheel))


def only(facts: WheelFacts, gate: str) -> str:
    found = {result.name: result.says for result in judge(facts, LIMITS) if not result.ok}
    assert list(found) == [gate]
    return found[gate]


def test_a_right_wheel_passes_every_gate(facts: WheelFacts) -> None:
    results = judge(facts, LIMITS)
    assert all_passed(results)
    says = {result.name: result.says for result in results}
    assert says["archs"] == "gfx90a:xnack- gfx942 gfx1100, 2 kernels in each"
    assert says["runtime"] == "needs libamdhip64.so.6, libc.so.6, libtorch.so"


def test_features_are_compared_whatever_their_order(facts: WheelFacts) -> None:
    both = parse("gfx90a:sramecc+:xnack-")
    code = (GpuCode("hsaco", both, KERNELS), *CODE[1:])
    right = dataclasses.replace(facts, gpu_code=Fact({"demo/_C.so": code}))
    assert all_passed(
        judge(claiming(right, archs=(parse("gfx90a:xnack-:sramecc+"), *CLAIMS.archs[1:])), LIMITS)
    )
    assert "machine code not claimed: gfx90a:sramecc+:xnack-" in only(right, "archs")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ((), "no machine code with a kernel for gfx90a:xnack-, gfx942, gfx1100"),
        (CODE[:2], "no machine code with a kernel for gfx1100"),
        ((*CODE, GpuCode("hsaco", parse("gfx1030"), KERNELS)), "machine code not claimed: gfx1030"),
        ((*CODE, GpuCode("hsaco", parse("gfx90a"), KERNELS)), "machine code not claimed: gfx90a"),
        ((*CODE, GpuCode("sass", parse("9.0"), KERNELS)), "machine code not claimed: sm_90"),
        ((*CODE, GpuCode("ptx", parse("9.0"))), "PTX not claimed: sm_90"),
        ((*CODE[:2], GpuCode("hsaco", parse("gfx1100"))), "with a kernel for gfx1100"),
        ((*CODE[:2], GpuCode("hsaco", parse("gfx1100"), KERNELS[:1])), "gfx1100 lacks 1 kernels"),
        ((*CODE, GpuCode("hsaco", parse("gfx942"), ("_Z1n",))), "gfx90a:xnack- lacks 1 kernels"),
    ],
)
def test_archs(facts: WheelFacts, code: tuple[GpuCode, ...], says: str) -> None:
    assert says in only(dataclasses.replace(facts, gpu_code=Fact({"demo/_C.so": code})), "archs")


@pytest.mark.parametrize("archs", [("9.0",), ("gfx942", "9.0+PTX")])
def test_archs_of_another_backend(facts: WheelFacts, archs: tuple[str, ...]) -> None:
    says = only(claiming(facts, archs=tuple(map(parse, archs))), "archs")
    assert "archs of backend rocm expected, got 9.0" in says


@pytest.mark.parametrize("toolkit", ["5.7", "7.2"])
def test_the_runtime_of_another_major(facts: WheelFacts, toolkit: str) -> None:
    says = only(claiming(facts, toolkit_version=toolkit), "runtime")
    assert "needs libamdhip64.so.6, which is not allowed: HIP has no static runtime" in says


@pytest.mark.parametrize("needed", ["libtorch_hip.so", "libhsa-runtime64.so.1", "libamdhip64.so"])
def test_runtime(facts: WheelFacts, needed: str) -> None:
    library = dataclasses.replace(LIBRARY, needed=(*LIBRARY.needed, needed))
    says = only(dataclasses.replace(facts, libraries=Fact((library,))), "runtime")
    assert f"needs {needed}, which" in says


def test_an_unversioned_symbol_of_the_runtime(facts: WheelFacts) -> None:
    library = dataclasses.replace(
        LIBRARY, undefined=(*LIBRARY.undefined, UndefinedSymbol("hipGetLastError"))
    )
    says = only(dataclasses.replace(facts, libraries=Fact((library,))), "torch-symbols")
    assert "hipGetLastError is undefined" in says


def test_what_torch_provides() -> None:
    assert "libamdhip64.so.6" in provided_by_torch(CLAIMS)
    assert "libamdhip64.so.7" in provided_by_torch(
        dataclasses.replace(CLAIMS, toolkit_version="7.2")
    )
    cuda: Claims = stable()
    assert not any(name.startswith("libamdhip64") for name in provided_by_torch(cuda))
