"""What single gates say of other states: of kinds of wheels, of limits, of METADATA."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from gate_facts import (
    ATEN,
    CODE,
    CUDA,
    KERNELS,
    LIBRARY,
    LIMITS,
    OWN,
    PARTS,
    RIGHT,
    ROCM_CLAIMS,
    ROCM_CODE,
    Change,
    claims,
    code,
    cuda,
    failed,
    have,
    meant,
    module,
    needing,
    needs,
    results,
    rocm_archs,
    symbol,
    tagged,
    tags,
    then,
    universal,
    wheel,
)

from torchwheel.check.audit import Audit, provided_by_torch, symbol_causes
from torchwheel.check.facts import Limits
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import Claims, LibraryFlags
from torchwheel_runtime.inspect.elf import GpuCode, UndefinedSymbol
from wheelmaker import PURE, stable

NO_CODE = "claimed, but no machine code with a kernel for"
HOPPER = code(CODE[0], GpuCode("sass", parse("9.0a"), (*KERNELS, "_Z5hopper")), CODE[2])
CPU = wheel(claims=Claims("cpu-torch2.11-cp312", "aten", "2.11"))
NOTHING = have(gpu_code={})
NO_GPU_CODE = have(gpu_code={OWN: ()})
TWO = have(libraries=(LIBRARY, dataclasses.replace(LIBRARY, name="demo/_D.so")))
HELP = have(
    libraries=(
        dataclasses.replace(LIBRARY, name="demo/libhelp.so", soname="libhelp.so.1"),
        dataclasses.replace(LIBRARY, needed=("libhelp.so.1",)),
    )
)


def too_new(cause: str) -> Change:
    """A wheel that a stricter tag does not fit for one cause."""
    return have(audit=Audit("manylinux_2_34_x86_64", (), (cause,)))


ANY = tags("py3-none-any")
PURE_CLAIMS = dataclasses.replace(PURE, toolkit="cu130", torch_release="2.11")
IS_PURE = then(ANY, wheel(purelib=True, claims=PURE_CLAIMS))
ALIASED = then(
    tags("py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64"),
    have(audit=Audit("manylinux_2_17_x86_64", ("manylinux2014_x86_64",), ())),
)
ONE_PYTHON = tagged("cp312-cp312")
DRIVER = then(ONE_PYTHON, needing(OWN, "libcuda.so.1"), symbol("cuTensorMapEncodeTiled"))
MEANT_RUNTIME, MEANT_ARCHS = meant("runtime"), meant("archs")
CPP = "_ZN2at4_ops3add4callE"
BORROWED = ("libc10_cuda.so", "libcudart.so.13", "libtorch_cuda.so")
STABLE_BORROWING = then(needs(*BORROWED), claims(borrowed=BORROWED))


def ordinary(*needed: str, **claimed: object) -> Change:
    """An ordinary CUDA extension, which needs these libraries too."""
    return then(needs("libc10_cuda.so", *needed), claims(ATEN, **claimed))


STATES: Mapping[str, Sequence[tuple[str | None, Change, Limits]]] = {
    "metadata": [
        *(
            ("one cp3x-cp3x, cp3x-abi3 or py3-none expected", tagged(pair), LIMITS)
            for pair in ("cp39-none", "cp312-cp311", "py3-abi3")
        ),
        *(
            (None, tagged(pair), LIMITS)
            for pair in ("cp312-cp312", "cp39-abi3", "cp310-abi3", "py3-none")
        ),
        ("py3-none expected, got cp310-abi3", tags("cp310-abi3-any"), LIMITS),
        (None, then(tags("cp310-abi3-any"), claims(borrowed=BORROWED)), LIMITS),
    ],
    "archs": [
        ("", wheel(claims=stable()), LIMITS),
        ("", wheel(claims=stable(archs=())), LIMITS),
        ("", wheel(claims=stable(archs=("8.0",), backend="rocm")), LIMITS),
        (f"{NO_CODE} sm_80, sm_90a; ", then(NOTHING, have(libraries=())), LIMITS),
        ("no backend is claimed, but code for sm_80, sm_90a", CPU, LIMITS),
        (None, then(CPU, NOTHING), LIMITS),
        ("but code for 8.0", then(NOTHING, claims(abi="aten", backend=None)), LIMITS),
        ("holds machine code: demo/_C.so", IS_PURE, LIMITS),
        # By declaration a kernel is for some of the archs, or a library has none.
        ("sm_80 lacks 1 kernels", HOPPER, LIMITS),
        ("sm_80 lacks 1 kernels", HOPPER, meant("archs", "demo/_D.so")),
        (None, HOPPER, MEANT_ARCHS),
        ("machine code not claimed: sm_100", code(*CODE, module("sass", "10.0")), MEANT_ARCHS),
        (NO_CODE, NO_GPU_CODE, LIMITS),
        (NO_CODE, NO_GPU_CODE, meant("archs", "demo/_D.so")),
        (None, NO_GPU_CODE, MEANT_ARCHS),
        (NO_CODE, then(NO_GPU_CODE, TWO), meant("archs", OWN)),
        (None, then(NO_GPU_CODE, TWO), MEANT_ARCHS),
    ],
    "torch-symbols": [
        ("no list of torch 2.99", claims(torch_release="2.99"), LIMITS),
        ("", have(libraries=()), LIMITS),
        *(
            (says, then(tagged(pair), symbol(name)), LIMITS)
            for pair, name, says in (
                ("cp312-cp312", "_PyThreadState_UncheckedGet", None),
                ("cp39-abi3", "PyErr_Clear", None),
                ("cp39-abi3", "PyType_FromModuleAndSpec", "is in the limited API since Python 3.1"),
                ("cp310-abi3", "PyType_FromModuleAndSpec", None),
                ("cp39-abi3", "_PyThreadState_UncheckedGet", "is not in Python's limited API"),
                ("py3-none", "PyErr_Clear", "is a symbol of Python; a wheel tagged none may use"),
                ("py3-none", CPP, None),
            )
        ),
        (None, then(ONE_PYTHON, symbol(CPP), symbol("PyErr_Clear")), LIMITS),
        *(
            (None, then(ONE_PYTHON, symbol(name)), LIMITS)
            for name in (
                *("THPVariableClass", "_ZN3c10lsERSoNS_10DeviceTypeE", "_ZN5torch7LibraryD1Ev"),
                "_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv",
                "_ZNKRSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEE3strEv",
                "_ZSt28__throw_bad_array_new_lengthv",
                # Operators delete that know the size: torch 2.6 defines them itself.
                *("_ZdlPvm", "_ZdaPvm", "_ZdlPvSt11align_val_t"),
                # torch's libraries bring libgomp: torch-cluster compiles with -fopenmp alone.
                *("GOMP_parallel", "omp_get_num_threads"),
            )
        ),
        # The second is asked for by a libstdc++ that is linked in.
        *(
            (None if weak else name, then(ONE_PYTHON, symbol(name, weak=weak)), LIMITS)
            for name in ("__pthread_key_create", "pthread_once")
            for weak in (True, False)
        ),
        ("cudaLaunchKernel", then(ONE_PYTHON, symbol("cudaLaunchKernel")), LIMITS),
        # Headers of CUDA 13.2 call the dynamic loader, and no setup.py links with it.
        ("dlsym is undefined", then(ONE_PYTHON, symbol("dlsym")), LIMITS),
        (None, then(ONE_PYTHON, symbol("dlsym"), needs("libc10.so")), LIMITS),
        # A project's own build for every torch from 2.11 on: C symbols of torch, whichever of its
        # libraries has them, and the limited API.
        *(
            (says, then(tags("cp310-abi3-manylinux_2_17_x86_64"), symbol(name)), LIMITS)
            for name, says in {
                "PyErr_SetString": None,
                "aoti_torch_get_current_cuda_stream": None,
                CPP: f"{CPP} is no C symbol of torch; its stable ABI has no other",
                "torch_no_such": "torch_no_such is not in every torch from 2.11 on",
                "_PyThing": "_PyThing is not in Python's limited API",
            }.items()
        ),
        ("cuTensorMapEncodeTiled", DRIVER, LIMITS),
        (None, DRIVER, MEANT_RUNTIME),
    ],
    "runtime": [
        (None, HELP, LIMITS),
        *(
            row
            for name in ("libcudart.so.13", "libgomp.so.1", "libcusparse.so.12")
            for row in (
                (None, ordinary(name, borrowed=(name,)), LIMITS),
                (f"needs {name}, which is not allowed", ordinary(name), LIMITS),
                (f"claims to need {name} of torch, but doe", ordinary(borrowed=(name,)), LIMITS),
            )
        ),
        *(
            ("is not allowed", ordinary(name, borrowed=(name,)), LIMITS)
            for name in ("libcudart.so.12", "libcuda.so.1", "libssl.so.3", "libcudart.so")
        ),
        # One that keeps to the stable ABI is linked with a torch for its GPUs.
        (None, STABLE_BORROWING, LIMITS),
        ("needs libc10_cuda.so, which is not allowed", needs("libc10_cuda.so"), LIMITS),
        # The driver, and what manylinux admits, are needed by declaration alone.
        ("libcuda.so.1", DRIVER, LIMITS),
        (None, DRIVER, MEANT_RUNTIME),
        ("libcuda.so.1", DRIVER, meant("runtime", "demo/_D.so")),
        ("libcurl.so.4", needs("libcuda.so.1", "libcurl.so.4"), MEANT_RUNTIME),
        ("libz.so.1", needs("libz.so.1"), LIMITS),
        (None, needs("libz.so.1"), MEANT_RUNTIME),
        (None, needs("libmvec.so.1"), LIMITS),  # glibc's, by -ffast-math
    ],
    "platform-tag": [
        *(
            (says, then(), Limits(1, newest_glibc=newest))
            for newest, says in (
                ("2.28", "manylinux_2_34_x86_64 is for newer systems than glibc 2.28: GLIBC_2.34"),
                ("2.34", None),
                ("2.100", None),
            )
        ),
        *(
            (says, too_new(cause), Limits(1, newest_glibc="2.28"))
            for cause, says in (
                (
                    "GLIBC_2.34 by pow",
                    '; build without these functions, or set containers.glibc: "2.34"',
                ),
                (
                    "GLIBCXX_3.4.29 by _ZSt28__throw",
                    "; link libstdc++ in, build.environment: {LDFLAGS: "
                    '"-static-libstdc++ -Wl,--exclude-libs,libstdc++.a"}; else build without',
                ),
            )
        ),
        (None, ALIASED, LIMITS),
        ("holds machine code for manylinux_2_34_x86_64", IS_PURE, LIMITS),
    ],
}


@pytest.mark.parametrize(
    ("gate", "says", "change", "limits"),
    [(gate, *row) for gate, rows in STATES.items() for row in rows],
)
def test_a_state_of_one_gate(
    tmp_path: Path, gate: str, says: str | None, change: Change, limits: Limits
) -> None:
    """`says` is None where the gate holds; other gates may fail too."""
    found = results(change(cuda(tmp_path)), limits)[gate]
    assert found.ok == (says is None), found.says
    assert found.ok or str(says) in found.says


@pytest.mark.parametrize(
    ("gate", "says", "change"),
    [
        ("runtime", "libcuda.so.1 in demo/_C.so is meant: it is so", DRIVER),
        ("archs", "no code for a GPU by declaration: it is so", NO_GPU_CODE),
        (
            "archs",
            "sm_80 sm_90a + PTX sm_90a, 0 kernels in each, 3 in some by declaration",
            HOPPER,
        ),
    ],
)
def test_what_is_meant_is_said(tmp_path: Path, gate: str, says: str, change: Change) -> None:
    assert results(change(cuda(tmp_path)), meant(gate))[gate].says.endswith(says)


INFO = "demo-1.0.0+cu130.dist-info/METADATA"
METADATA = "Metadata-Version: 2.1\n{}Requires-Dist: torch>=2.11\n"
REQUIRES = "torch>=2.11 expected, got"


def with_fields(text: str) -> dict[str, object]:
    """A wheel of other fields of METADATA."""
    return {"bend": lambda members: members.update({INFO: METADATA.format(text).encode()})}


@pytest.mark.parametrize(
    ("made", "says"),
    [
        *(
            ({"requires": requires}, REQUIRES)
            for requires in (
                (),
                ("torch>=2.12",),
                ("torch>=2.11,<3",),
                ("torch>=2.11", "torch!=2.12"),
                ("torch>=2.11; python_version < '3'",),
                ("torch",),
                ("Torch[x]>=2.11",),
                ("numpy>=2.11",),
            )
        ),
        ({"requires": ("torchwheel<0.2", "torch>=2.11", "torch_geometric; extra == 'x'")}, None),
        (with_fields("Name: other\nVersion: 1.0.0+cu130\n"), "Name: demo expected, got other"),
        (with_fields("Name: demo\nVersion: 1.0.0\n"), "1.0.0+cu130 expected, got 1.0.0"),
    ],
)
def test_metadata_of_a_file(tmp_path: Path, made: dict[str, object], says: str | None) -> None:
    found = failed(cuda(tmp_path, **made))
    assert list(found) == (["metadata"] if says else [])
    assert says is None or says in found["metadata"]


@pytest.mark.parametrize(
    ("claimed", "ok", "says"),
    [
        (
            {"parts": (dataclasses.replace(PARTS[0], file="demo/gone.so"), *PARTS[1:])},
            *(False, "part cu130: no demo/gone.so in the wheel"),
        ),
        (
            {"parts": (dataclasses.replace(PARTS[0], sha256="00" * 32), *PARTS[1:])},
            *(False, f"sha256 of {CUDA}: sha256=AAAA"),
        ),
        (
            {"parts": (dataclasses.replace(PARTS[0], sha256="x"), *PARTS[1:])},
            *(False, f"sha256 of {CUDA}: x expected, got sha256="),
        ),
        (
            {"flags": (LibraryFlags(CUDA, ("cuda: --use_fast_math",)),)},
            *(True, "; flags cuda: --use_fast_math"),
        ),
        (
            {"flags": (LibraryFlags("demo/gone.so", ("cuda: --use_fast_math",)),)},
            *(False, "flags of demo/gone.so: no such file in the wheel"),
        ),
    ],
)
def test_metadata_of_parts(tmp_path: Path, claimed: dict[str, object], ok: bool, says: str) -> None:
    found = results(universal(tmp_path, **claimed))["metadata"]
    assert found.ok == ok
    assert says in found.says


def test_features_are_compared_whatever_their_order(tmp_path: Path) -> None:
    change = then(
        code(module("hsaco", "gfx90a:sramecc+:xnack-"), *ROCM_CODE[1:]),
        rocm_archs("gfx90a:xnack-:sramecc+", "gfx942", "gfx1100"),
    )
    assert not failed(change(RIGHT["rocm"](tmp_path)))


def test_what_torch_provides() -> None:
    newer = dataclasses.replace(ROCM_CLAIMS, toolkit_version="7.2")
    assert "libamdhip64.so.6" in provided_by_torch(ROCM_CLAIMS)
    assert "libamdhip64.so.7" in provided_by_torch(newer)
    ten = dataclasses.replace(ROCM_CLAIMS, toolkit_version="10.1")
    assert "libamdhip64.so.7" in provided_by_torch(ten)
    assert not any(name.startswith("libamdhip64") for name in provided_by_torch(stable()))


def test_causes_are_the_versions_a_stricter_policy_lacks() -> None:
    undefined = (
        *(UndefinedSymbol(f"f{n}", version="GLIBC_2.34", library="libc.so.6") for n in range(8)),
        UndefinedSymbol("g", version="GLIBC_2.9", library="libc.so.6"),
        UndefinedSymbol("old", version="GLIBC_2.5"),
        UndefinedSymbol("q", version="OTHER_9"),
        UndefinedSymbol("n"),
    )
    found = dataclasses.replace(LIBRARY, undefined=undefined)
    assert symbol_causes((found,), {"GLIBC": frozenset({"2.5"})}) == (
        "GLIBC_2.34 by f0, f1, f2, f3, f4, f5 and 2 more",
        "GLIBC_2.9 by g",
    )
