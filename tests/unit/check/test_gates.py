"""Every gate on facts in memory: a right wheel passes all, each violation fails just its gate."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from gate_facts import (
    CODE,
    CUDA,
    DLPACK,
    KERNELS,
    LIMITS,
    OLD,
    PART_CODE,
    RIGHT,
    ROCM,
    ROCM_CLAIMS,
    ROCM_CODE,
    STABLE,
    TAG,
    Change,
    claims,
    code,
    cuda,
    failed,
    have,
    library,
    module,
    needing,
    needs,
    rocm_archs,
    symbol,
    tags,
    wheel,
    with_sbom,
)
from packaging.tags import parse_tag

from torchwheel.check.audit import Audit
from torchwheel.check.facts import Fact, fact
from torchwheel.check.gates import OF_CLAIMS, all_passed, gates_text, judge, run_gates
from torchwheel.findings import CheckResult
from torchwheel_runtime.inspect.elf import GpuCode, Library, UndefinedSymbol
from wheelmaker import make_wheel

CUDART = "libcudart.so.13"
NO_CODE = "claimed, but no machine code with a kernel for"
NOT_ALLOWED = "which is not allowed: cudart is linked"
NO_STATIC = "needs libamdhip64.so.6, which is not allowed: HIP has no static runtime"
SAY = "the symbols say manylinux_2_34_x86_64, the file name"
STREAM = "aoti_torch_get_current_cuda_stream"
NOT_ITS_KIND = "is undefined, and a library of {} may not ask torch for it"


def asks(name: str, undefined: str) -> Change:
    found = (UndefinedSymbol(undefined),)
    return library(lambda one: dataclasses.replace(one, undefined=found), name)


VIOLATIONS: Mapping[str, Mapping[str, Sequence[tuple[str, Change]]]] = {
    "cuda": {
        "metadata": [
            ("cu132 expected, got cu130", claims(toolkit="cu132")),
            ("WHEEL Tag", wheel(wheel_tags=parse_tag("py3-none-any"))),
            ("Root-Is-Purelib", wheel(purelib=True)),
            (
                "stable wheel: py3-none expected, got cp312-cp312",
                tags(TAG.replace("py3-none", "cp312-cp312")),
            ),
        ],
        "archs": [
            (f"{NO_CODE} sm_80, sm_90a; claimed with +PTX", code()),
            (f"{NO_CODE} sm_80", code(*CODE[1:])),
            ("claimed with +PTX, but no PTX for sm_90a", code(*CODE[:2])),
            ("machine code not claimed: sm_120", code(*CODE, module("sass", "12.0"))),
            ("machine code not claimed: sm_120", code(*CODE, module("sass", "12.0", ()))),
            ("PTX not claimed: sm_80", code(*CODE, module("ptx", "8.0"))),
            (f"{NO_CODE} sm_80", code(module("sass", "8.0", ()), *CODE[1:])),
            ("machine code not claimed: sm_90", code(module("sass", "9.0"), *CODE)),
            ("sm_80 lacks 1 kernels", code(module("sass", "8.0", KERNELS[:1]), *CODE[1:])),
            ("2 modules of machine code, but only 1 of", code(*CODE, module("sass", "9.0a"))),
        ],
        "torch-symbols": [
            ("C++ symbol of torch", symbol("_ZN2at4_ops3add4callE")),
            ("C++ symbol of torch", symbol("_ZNK3c1010TensorImpl5sizesEv")),
            ("C++ symbol of torch", symbol("_ZN5torch7LibraryC1Ev", weak=True)),
            ("not in torch 2.11", symbol("torch_no_such_thing")),
            ("not in torch 2.11", symbol("aoti_torch_no_such", weak=True)),
            ("only in libtorch_cuda.so: declare it", symbol(STREAM)),
            ("PyErr_SetString is undefined", symbol("PyErr_SetString")),
            ("cudaLaunchKernel is undefined", symbol("cudaLaunchKernel")),
            ("surprise is undefined", symbol("surprise", weak=True)),
            ("__gmon_start__ is undefined", symbol("__gmon_start__")),
        ],
        "runtime": [
            *(
                (f"demo/_C.so needs {name}, {NOT_ALLOWED}", needs(name))
                for name in (CUDART, "libpython3.12.so.1.0", "libtorch_cuda.so", "libcuda.so.1")
            ),
        ],
        "platform-tag": [
            *(
                (f"{SAY} {tag}: GLIBC_2.34 by dlopen", tags(f"py3-none-{tag}"))
                for tag in ("manylinux_2_17_x86_64", "manylinux_2_35_x86_64", "any")
            ),
            (
                "no manylinux policy admits it: GLIBC_2.99 by f",
                have(audit=Audit("linux_x86_64", (), ("GLIBC_2.99 by f",))),
            ),
            ("no machine code", have(audit=Audit(None))),
        ],
        "size": [("2.00 MiB; at most 1 MiB expected", wheel(size=2 << 20))],
    },
    "rocm": {
        "archs": [
            (f"{NO_CODE} gfx90a:xnack-, gfx942, gfx1100", code()),
            (f"{NO_CODE} gfx1100", code(*ROCM_CODE[:2])),
            *(
                (f"machine code not claimed: {arch}", code(*ROCM_CODE, module("hsaco", arch)))
                for arch in ("gfx1030", "gfx90a")
            ),
            ("machine code not claimed: sm_90", code(*ROCM_CODE, module("sass", "9.0"))),
            ("PTX not claimed: sm_90", code(*ROCM_CODE, module("ptx", "9.0"))),
            ("with a kernel for gfx1100", code(*ROCM_CODE[:2], module("hsaco", "gfx1100", ()))),
            (
                "gfx1100 lacks 1 kernels",
                code(*ROCM_CODE[:2], module("hsaco", "gfx1100", KERNELS[:1])),
            ),
            (
                "gfx90a:xnack- lacks 1 kernels",
                code(*ROCM_CODE, module("hsaco", "gfx942", ("_Z1n",))),
            ),
            ("archs of backend rocm expected, got 9.0", rocm_archs("9.0")),
            ("archs of backend rocm expected, got 9.0", rocm_archs("gfx942", "9.0+PTX")),
            (
                "machine code not claimed: gfx90a:sramecc+:xnack-",
                code(module("hsaco", "gfx90a:sramecc+:xnack-"), *ROCM_CODE[1:]),
            ),
        ],
        "runtime": [
            (NO_STATIC, claims(ROCM_CLAIMS, toolkit_version="5.7")),
            (NO_STATIC, claims(ROCM_CLAIMS, toolkit_version="7.2")),
            *(
                (f"needs {name}, which", needs(name))
                for name in ("libtorch_hip.so", "libhsa-runtime64.so.1", "libamdhip64.so")
            ),
        ],
        "torch-symbols": [("hipGetLastError is undefined", symbol("hipGetLastError"))],
    },
    "universal": {
        "archs": [
            (f"{CUDA}: {NO_CODE} sm_90", code(name=CUDA)),
            (
                f"{ROCM}: {NO_CODE} gfx942; machine code not claimed: gfx90a",
                code(module("hsaco", "gfx90a", KERNELS[:1]), name=ROCM),
            ),
            (
                f"{STABLE}: GPU code in a library that is not for kernels",
                code(*PART_CODE[CUDA], name=STABLE),
            ),
        ],
        "runtime": [
            (f"{name} needs {needed}, which is not allowed: ", needing(name, needed))
            for name, needed in (
                (CUDA, "libtorch.so"),
                (CUDA, "libamdhip64.so.7"),
                (ROCM, "libamdhip64.so.6"),
                (DLPACK, "libtorch.so"),
                (STABLE, "libtorch_cuda.so"),
                (OLD, "libtorch_python.so"),
            )
        ],
        "torch-symbols": [
            *(
                (f"{name}: {says}", asks(name, says.split()[0]))
                for name, says in (
                    (CUDA, f"aoti_torch_get_device {NOT_ITS_KIND.format('kernels')}"),
                    (DLPACK, f"torch_call_dispatcher {NOT_ITS_KIND.format('entry_points')}"),
                    (STABLE, "_ZN3c105ErrorC1Ev is a C++ symbol of torch"),
                    (OLD, "cudaLaunchKernel is undefined and neither torch nor Python"),
                    (OLD, "PyModule_Create2 is for one Python; a universal front end serves every"),
                    (OLD, "_Z16THPVariable_WrapN2at10TensorBaseE is for one Python; a universal"),
                    (DLPACK, "PyUnicode_AsUTF8 is not in Python's limited API, which cp310-abi3"),
                    (DLPACK, "PyObject_GetBuffer is in the limited API since Python 3.11, after"),
                )
            ),
            ("serves every Python", asks(STABLE, "PyErr_Occurred")),
            (
                "demo/extra.so: is in the wheel, but none of its parts",
                lambda facts: have(
                    libraries=(
                        *facts.libraries.read(),
                        Library("demo/extra.so", "x86_64", None, ("libc.so.6",), ()),
                    )
                )(facts),
            ),
        ],
    },
}


@pytest.mark.parametrize(
    ("kind", "gate", "says", "change"),
    [
        (kind, gate, *row)
        for kind, gates in VIOLATIONS.items()
        for gate, rows in gates.items()
        for row in rows
    ],
)
def test_a_violation_fails_just_its_gate(
    tmp_path: Path, kind: str, gate: str, says: str, change: Change
) -> None:
    found = failed(change(RIGHT[kind](tmp_path)))
    assert list(found) == [gate]
    assert says in found[gate]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (
            "cuda",
            (
                "ok      archs          sm_80 sm_90a + PTX sm_90a, 2 kernels in each",
                "ok      torch-symbols  2 C symbols of torch, all in 2.11",
                "ok      runtime        needs libc.so.6, libtorch.so",
                "ok      platform-tag   manylinux_2_34_x86_64: GLIBC_2.34 by dlopen, dlsym",
            ),
        ),
        (
            "rocm",
            (
                "ok      archs          gfx90a:xnack- gfx942 gfx1100, 2 kernels in each",
                "ok      runtime        needs libamdhip64.so.6, libc.so.6, libtorch.so",
            ),
        ),
        (
            "universal",
            (
                "ok      archs          cu130: sm_90 + PTX sm_90, 1 kernels in each; rocm7.2: "
                "gfx942, 1 kernels in each",
            ),
        ),
    ],
)
def test_a_right_wheel_passes_every_gate(tmp_path: Path, kind: str, rows: tuple[str, ...]) -> None:
    found = judge(with_sbom(RIGHT[kind](tmp_path)), LIMITS)
    assert all_passed(found)
    assert {*rows} <= {*gates_text(found).splitlines()}
    assert not all_passed(found[:-1])
    assert not all_passed([])
    assert not all_passed([*found[:-1], CheckResult("size", False, "")])


def test_a_pure_wheel_passes_every_gate(tmp_path: Path) -> None:
    assert all_passed(run_gates(make_wheel(tmp_path), LIMITS))


def test_a_broken_wheel_fails_every_gate_and_names_the_fact(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    found = run_gates(path, LIMITS)
    assert [result.name for result in found] == list(OF_CLAIMS)
    assert not any(result.ok for result in found)
    assert "not a whole zip archive" in found[0].says
    assert {result.says for result in found[1:]} == {"not judged"}


def test_a_wheel_without_claims_fails_every_gate_that_compares(tmp_path: Path) -> None:
    found = failed(wheel(claims=None)(cuda(tmp_path)))
    compare = ["metadata", "archs", "label", "torch-symbols", "runtime", "platform-tag"]
    assert list(found) == compare
    assert all("claims nothing" in says for says in found.values())


def test_what_breaks_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*_: object) -> str:
        raise ZeroDivisionError("two\nlines")

    facts = cuda(tmp_path)
    with monkeypatch.context() as patch:
        patch.setitem(OF_CLAIMS, "size", bad)
        result = judge(facts, LIMITS)[-1]
    assert result == CheckResult("size", False, "the gate broke: ZeroDivisionError: two lines")
    code_: Fact[Mapping[str, tuple[GpuCode, ...]]] = fact(bad)  # type: ignore[arg-type]
    unread = dataclasses.replace(facts, gpu_code=code_, audit=Fact(fault="x"))
    assert failed(unread) == {"archs": "ZeroDivisionError: two lines", "platform-tag": "x"}


def test_the_table_has_each_gate_once() -> None:
    assert list(OF_CLAIMS) == [
        *("record", "content", "metadata", "archs", "label"),
        *("torch-symbols", "runtime", "platform-tag", "size"),
    ]
