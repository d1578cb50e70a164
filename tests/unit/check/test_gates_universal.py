"""The gates on a universal wheel: each library is judged by the claims of its part."""

import dataclasses
import hashlib
from pathlib import Path

import pytest
from gate_facts import Change, Violations, code, flat, only, with_library

from torchwheel.check.audit import Audit
from torchwheel.check.facts import Fact, Limits, WheelFacts
from torchwheel.check.gates import judge
from torchwheel.inspect.wheel import read_wheel
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import Claims, LibraryFlags, Part
from torchwheel_runtime.inspect.elf import GpuCode, Library, UndefinedSymbol
from wheelmaker import make_wheel

TAG = "manylinux_2_34_x86_64"
KERNEL = ("_Z1kPf",)
FILES = {
    name: name.encode()
    for name in ("demo/cu130.so", "demo/rocm72.so", "demo/stable.so", "demo/old.so", "demo/dl.so")
}
CUDA, ROCM, STABLE, OLD, DLPACK = FILES


def part(kind: str, name: str, file: str, **changes: object) -> Part:
    digest = hashlib.sha256(FILES[file]).hexdigest()
    return Part(kind, name, file, digest, **changes)  # type: ignore[arg-type]


PARTS = (
    part(
        *("kernels", "cu130", CUDA),
        backend="cuda",
        toolkit_version="13.0",
        archs=(parse("9.0+PTX"),),
    ),
    part(
        *("kernels", "rocm7.2", ROCM),
        backend="rocm",
        toolkit_version="7.2",
        archs=(parse("gfx942"),),
    ),
    part("front_end", "stable", STABLE, torch_release="2.11"),
    part("front_end", "torch2.6", OLD, torch_release="2.6", abi="aten"),
    part("entry_points", "dlpack", DLPACK, torch_release="2.10"),
)
CLAIMS = Claims("universal", "universal", "2.6", parts=PARTS)
NEEDED = {ROCM: ("libamdhip64.so.7",), STABLE: ("libtorch.so",), OLD: ("libtorch.so",)}
UNDEFINED = {
    STABLE: (UndefinedSymbol("torch_call_dispatcher"),),
    OLD: (UndefinedSymbol("_ZN3c105ErrorC1Ev"),),
    DLPACK: (UndefinedSymbol("PyModule_Create2"),),
}
CODE = {
    CUDA: (GpuCode("sass", parse("9.0"), KERNEL), GpuCode("ptx", parse("9.0"))),
    ROCM: (GpuCode("hsaco", parse("gfx942"), KERNEL),),
}


def library(name: str) -> Library:
    needed = ("libc.so.6", *NEEDED.get(name, ()))
    return Library(name, "x86_64", None, needed, UNDEFINED.get(name, ()))


@pytest.fixture
def facts(tmp_path: Path) -> WheelFacts:
    return facts_of(tmp_path, CLAIMS)


def facts_of(folder: Path, claims: Claims) -> WheelFacts:
    wheel = make_wheel(
        folder,
        tag=f"py3-none-{TAG}",
        files={"demo/__init__.py": b"", **FILES},
        claims=claims,
        requires=("torch>=2.6",),
    )
    return WheelFacts(
        Fact(read_wheel(wheel)),
        Fact(tuple(map(library, FILES))),
        Fact({name: CODE.get(name, ()) for name in FILES}),
        Fact(Audit(TAG)),
    )


def test_a_right_wheel_passes_every_gate(facts):
    results = judge(facts, Limits(max_size_mib=1))
    assert all(result.ok for result in results), results
    says = {result.name: result.says for result in results}
    assert says["archs"] == (
        "cu130: sm_90 + PTX sm_90, 1 kernels in each; rocm7.2: gfx942, 1 kernels in each"
    )


def asks(name: str, symbol: str) -> Change:
    return lambda facts: with_library(facts, name, undefined=(UndefinedSymbol(symbol),))


def needs(name: str, needed: str) -> Change:
    return lambda facts: with_library(facts, name, needed=(needed,))


NEEDS = [
    (CUDA, "libtorch.so"),
    (CUDA, "libamdhip64.so.7"),
    (ROCM, "libamdhip64.so.6"),
    (DLPACK, "libtorch.so"),
    (STABLE, "libtorch_cuda.so"),
    (OLD, "libtorch_python.so"),
]
NOT_ITS_KIND = "is undefined, and a library of {} may not ask torch for it"
ASKS = [
    (CUDA, f"aoti_torch_get_device {NOT_ITS_KIND.format('kernels')}"),
    (DLPACK, f"torch_call_dispatcher {NOT_ITS_KIND.format('entry_points')}"),
    (STABLE, "_ZN3c105ErrorC1Ev is a C++ symbol of torch"),
    (OLD, "cudaLaunchKernel is undefined and neither torch nor Python"),
    (OLD, "PyModule_Create2 is for one Python; a universal front end serves every Python"),
    (OLD, "_Z16THPVariable_WrapN2at10TensorBaseE is for one Python; a universal front end"),
    (DLPACK, "PyUnicode_AsUTF8 is not in Python's limited API, which cp310-abi3"),
    (DLPACK, "PyObject_GetBuffer is in the limited API since Python 3.11, after cp310"),
]
GFX90A = GpuCode("hsaco", parse("gfx90a"), KERNEL)
NO_CODE = "claimed, but no machine code with a kernel for"
VIOLATIONS: Violations = {
    "archs": [
        (f"{CUDA}: {NO_CODE} sm_90", code(name=CUDA)),
        (f"{ROCM}: {NO_CODE} gfx942; machine code not claimed: gfx90a", code(GFX90A, name=ROCM)),
        (
            f"{STABLE}: GPU code in a library that is not for kernels",
            code(*CODE[CUDA], name=STABLE),
        ),
    ],
    "runtime": [
        (f"{name} needs {needed}, which is not allowed: ", needs(name, needed))
        for name, needed in NEEDS
    ],
    "torch-symbols": [(f"{name}: {found}", asks(name, found.split()[0])) for name, found in ASKS],
}


@pytest.mark.parametrize(("gate", "says", "change"), flat(VIOLATIONS))
def test_a_violation_fails_just_its_gate(facts, gate, says, change):
    assert only(change(facts), gate).startswith(says)


def test_a_stable_front_end_asks_python_for_nothing(facts):
    assert "serves every Python" in only(asks(STABLE, "PyErr_Occurred")(facts), "torch-symbols")


def test_a_library_that_no_part_claims(facts):
    extra = Library("demo/extra.so", "x86_64", None, ("libc.so.6",), ())
    changed = dataclasses.replace(facts, libraries=Fact((*facts.libraries.read(), extra)))
    assert only(changed, "torch-symbols") == (
        "demo/extra.so: is in the wheel, but none of its parts"
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"file": "demo/gone.so"}, "part cu130: no demo/gone.so in the wheel"),
        ({"sha256": "00" * 32}, f"sha256 of {CUDA}: sha256=AAAA"),
        ({"sha256": "x"}, f"sha256 of {CUDA}: x expected, got sha256="),
    ],
)
def test_a_part_has_its_file(tmp_path, changes, says):
    parts = (dataclasses.replace(PARTS[0], **changes), *PARTS[1:])
    facts = facts_of(tmp_path, dataclasses.replace(CLAIMS, parts=parts))
    failed = {r.name: r.says for r in judge(facts, Limits(max_size_mib=1)) if not r.ok}
    assert says in failed["metadata"]


def test_the_flags_of_libraries_are_printed_and_each_library_is_there(tmp_path):
    for file, says in (
        (CUDA, "; flags cuda: --use_fast_math"),
        ("demo/gone.so", "flags of demo/gone.so: no such file in the wheel"),
    ):
        flags = (LibraryFlags(file, ("cuda: --use_fast_math",)),)
        facts = facts_of(tmp_path, dataclasses.replace(CLAIMS, flags=flags))
        (found,) = [r for r in judge(facts, Limits(max_size_mib=1)) if r.name == "metadata"]
        assert found.ok == (file == CUDA), found.says
        assert found.says.endswith(says)
