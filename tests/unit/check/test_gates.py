"""Every gate on facts in memory: a right wheel passes all, each violation fails just its gate."""

import dataclasses
from pathlib import Path

import pytest
from gate_facts import (
    LIMITS,
    Change,
    Violations,
    changed,
    code,
    failed,
    flat,
    needs,
    only,
    symbol,
    tags,
    wheel,
    with_library,
    with_symbol,
)
from packaging.metadata import Metadata, RawMetadata
from packaging.tags import parse_tag
from packaging.version import Version

from torchwheel.check import gates
from torchwheel.check.audit import Audit, symbol_causes
from torchwheel.check.facts import Allowed, Fact, Limits, WheelFacts, fact
from torchwheel.check.gates import GATES, all_passed, gates_text, judge, run_gates
from torchwheel.findings import CheckResult
from torchwheel.inspect.wheel import read_wheel
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.inspect.elf import GpuCode, Library, UndefinedSymbol
from wheelmaker import PURE, make_wheel, stable

KERNELS = ("_Z1kPf", "_Z2k2Pf")
TAG = "py3-none-manylinux_2_34_x86_64"
SYMBOLS = (
    UndefinedSymbol("aoti_torch_get_current_cuda_stream", weak=True),
    UndefinedSymbol("torch_call_dispatcher"),
    UndefinedSymbol("_ITM_deregisterTMCloneTable", weak=True),
    UndefinedSymbol("malloc", version="GLIBC_2.2.5", library="libc.so.6"),
)
LIBRARY = Library("demo/_C.so", "x86_64", None, ("libtorch.so", "libc.so.6"), SYMBOLS)
CODE = (
    GpuCode("sass", parse("8.0"), KERNELS),
    GpuCode("sass", parse("9.0a"), KERNELS),
    GpuCode("ptx", parse("9.0a")),
)
CLAIMS = stable(archs=("8.0", "9.0a+PTX"))
AUDIT = Audit("manylinux_2_34_x86_64", (), ("GLIBC_2.34 by dlopen, dlsym",))


@pytest.fixture
def facts(tmp_path: Path) -> WheelFacts:
    found = read_wheel(
        make_wheel(
            tmp_path, version="1.0.0+cu130", tag=TAG, claims=CLAIMS, requires=("torch>=2.11",)
        )
    )

    return WheelFacts(Fact(found), Fact((LIBRARY,)), Fact({"demo/_C.so": CODE}), Fact(AUDIT))


def test_a_native_wheel_without_a_library(facts: WheelFacts) -> None:
    bare = dataclasses.replace(facts, libraries=Fact(()), gpu_code=Fact({}))
    says = "claimed, but no machine code with a kernel for sm_80, sm_90a; "
    assert failed(bare)["archs"].startswith(says)


CUDART = "libcudart.so.13"


def no_policy(facts: WheelFacts) -> WheelFacts:
    return dataclasses.replace(facts, audit=Fact(Audit("linux_x86_64", (), ("GLIBC_2.99 by f",))))


def no_audit(facts: WheelFacts) -> WheelFacts:
    return dataclasses.replace(facts, audit=Fact(Audit(None)))


def borrowed(facts: WheelFacts) -> WheelFacts:
    claims = dataclasses.replace(CLAIMS, borrowed=(CUDART,))
    return changed(needs(CUDART)(facts), claims=claims)


NOT_ALLOWED = "which is not allowed: cudart is linked"
SAY = "the symbols say manylinux_2_34_x86_64, the file name"
BY = ": GLIBC_2.34 by dlopen"


def sass(arch: str, kernels: tuple[str, ...] = KERNELS) -> GpuCode:
    return GpuCode("sass", parse(arch), kernels)


FOR_ONE_PYTHON = TAG.replace("py3-none", "cp312-cp312")
PLATFORMS = ("manylinux_2_17_x86_64", "manylinux_2_35_x86_64", "any")
RUNTIMES = (CUDART, "libpython3.12.so.1.0", "libtorch_cuda.so", "libcuda.so.1")
OTHER_TOOLKIT = dataclasses.replace(CLAIMS, toolkit="cu132")
STREAM = "aoti_torch_get_current_cuda_stream"
VIOLATIONS: Violations = {
    "metadata": [
        ("cu132 expected, got cu130", wheel(claims=OTHER_TOOLKIT)),
        ("WHEEL Tag", wheel(wheel_tags=frozenset(parse_tag("py3-none-any")))),
        ("Root-Is-Purelib", wheel(root_is_purelib=True)),
        (
            "stable wheel: py3-none expected, got cp312-cp312",
            tags(FOR_ONE_PYTHON),
        ),
    ],
    "archs": [
        ("no machine code with a kernel for sm_80, sm_90a; claimed with +PTX", code()),
        ("no machine code with a kernel for sm_80", code(*CODE[1:])),
        ("claimed with +PTX, but no PTX for sm_90a", code(*CODE[:2])),
        ("machine code not claimed: sm_120", code(*CODE, sass("12.0"))),
        ("machine code not claimed: sm_120", code(*CODE, sass("12.0", ()))),
        ("PTX not claimed: sm_80", code(*CODE, GpuCode("ptx", parse("8.0")))),
        ("no machine code with a kernel for sm_80", code(sass("8.0", ()), *CODE[1:])),
        ("machine code not claimed: sm_90", code(sass("9.0"), *CODE)),
        ("sm_80 lacks 1 kernels", code(sass("8.0", KERNELS[:1]), *CODE[1:])),
        ("2 modules of machine code, but only 1 of", code(*CODE, sass("9.0a"))),
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
        *((f"demo/_C.so needs {name}, {NOT_ALLOWED}", needs(name)) for name in RUNTIMES),
        (f"demo/_C.so needs {CUDART}, {NOT_ALLOWED}", borrowed),
    ],
    "platform-tag": [
        *((f"{SAY} {tag}{BY}", tags(f"py3-none-{tag}")) for tag in PLATFORMS),
        ("no manylinux policy admits it: GLIBC_2.99 by f", no_policy),
        ("no machine code", no_audit),
    ],
    "size": [("2.00 MiB; at most 1 MiB expected", wheel(size=2 << 20))],
}


@pytest.mark.parametrize(("gate", "says", "change"), flat(VIOLATIONS))
def test_a_violation_fails_just_its_gate(
    facts: WheelFacts, gate: str, says: str, change: Change
) -> None:
    assert says in only(change(facts), gate)


def test_a_right_wheel_passes_every_gate(facts: WheelFacts) -> None:
    results = judge(facts, LIMITS)
    assert all_passed(results)
    assert gates_text(results).splitlines()[3:7] == [
        "ok      archs          sm_80 sm_90a + PTX sm_90a, 2 kernels in each",
        "ok      torch-symbols  2 C symbols of torch, all in 2.11",
        "ok      runtime        needs libc.so.6, libtorch.so",
        "ok      platform-tag   manylinux_2_34_x86_64: GLIBC_2.34 by dlopen, dlsym",
    ]


def test_a_pure_wheel_passes_every_gate(tmp_path: Path) -> None:
    assert all_passed(run_gates(make_wheel(tmp_path), LIMITS))


def test_passed_needs_every_gate(facts: WheelFacts) -> None:
    results = judge(facts, LIMITS)
    assert not all_passed(results[:-1])
    assert not all_passed([])
    assert not all_passed([*results[:-1], CheckResult("size", False, "")])


def test_a_broken_wheel_fails_every_gate_and_names_the_fact(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    results = run_gates(path, LIMITS)
    assert [result.name for result in results] == list(GATES)
    assert not any(result.ok for result in results)
    assert "not a whole zip archive" in results[0].says
    assert {result.says for result in results[1:]} == {"not judged"}


def test_a_wheel_without_claims_fails_every_gate_that_compares(facts: WheelFacts) -> None:
    found = failed(changed(facts, claims=None))
    assert list(found) == ["metadata", "archs", "torch-symbols", "runtime", "platform-tag"]
    assert all("claims nothing" in says for says in found.values())


def test_a_gate_that_breaks_has_failed(facts: WheelFacts) -> None:
    def bad(_: WheelFacts, __: Limits) -> str:
        raise ZeroDivisionError("two\nlines")

    (result,) = judge(facts, LIMITS, {"bad": bad})
    assert result == CheckResult("bad", False, "the gate broke: ZeroDivisionError: two lines")


def test_a_fact_that_cannot_be_read_fails_its_gates(facts: WheelFacts) -> None:
    def bad() -> tuple[GpuCode, ...]:
        raise OSError("gone")

    assert only(dataclasses.replace(facts, gpu_code=fact(bad)), "archs") == "OSError: gone"
    assert only(dataclasses.replace(facts, audit=Fact(fault="x")), "platform-tag") == "x"


# metadata


@pytest.mark.parametrize(
    ("bent", "fact_"),
    [
        (b"Name: other\nVersion: 1.0.0+cu130\n", "METADATA Name: demo expected, got other"),
        (b"Name: demo\nVersion: 1.0.0\n", "1.0.0+cu130 expected, got 1.0.0"),
    ],
)
def test_bent_metadata(tmp_path: Path, facts: WheelFacts, bent: bytes, fact_: str) -> None:
    info = "demo-1.0.0+cu130.dist-info/METADATA"
    text = b"Metadata-Version: 2.1\n" + bent + b"Requires-Dist: torch>=2.11\n"
    path = make_wheel(
        tmp_path,
        version="1.0.0+cu130",
        tag=TAG,
        claims=CLAIMS,
        bend=lambda members: members.update({info: text}),
    )
    assert fact_ in only(dataclasses.replace(facts, wheel=Fact(read_wheel(path))), "metadata")


@pytest.mark.parametrize(
    "requires",
    [
        (),
        ("torch>=2.12",),
        ("torch>=2.11,<3",),
        ("torch>=2.11", "torch!=2.12"),
        ("torch>=2.11; python_version < '3'",),
        ("torch",),
        ("Torch[x]>=2.11",),
        ("numpy>=2.11",),
    ],
)
def test_requires_dist(tmp_path: Path, facts: WheelFacts, requires: tuple[str, ...]) -> None:
    path = make_wheel(tmp_path, version="1.0.0+cu130", tag=TAG, claims=CLAIMS, requires=requires)
    says = only(dataclasses.replace(facts, wheel=Fact(read_wheel(path))), "metadata")
    assert "torch>=2.11 expected, got" in says


def test_what_else_it_requires_is_free(tmp_path: Path, facts: WheelFacts) -> None:
    requires = ("torchwheel<0.2,>=0.1", "torch>=2.11", "torch_geometric; extra == 'x'")
    path = make_wheel(tmp_path, version="1.0.0+cu130", tag=TAG, claims=CLAIMS, requires=requires)
    found = dataclasses.replace(facts, wheel=Fact(read_wheel(path)))
    assert all(result.ok for result in judge(found, LIMITS) if result.name == "metadata")


# archs


def test_archs_claimed_by_none(facts: WheelFacts) -> None:
    for claims in (stable(), stable(archs=()), stable(archs=("8.0",), backend="rocm")):
        assert "archs" in failed(changed(facts, claims=claims))


def test_a_wheel_without_a_backend_holds_no_code_for_a_gpu(facts: WheelFacts) -> None:
    cpu = changed(facts, claims=Claims("cpu-torch2.11-cp312", "aten", "2.11"))
    assert failed(cpu)["archs"] == "no backend is claimed, but code for sm_80, sm_90a"
    without = dataclasses.replace(cpu, gpu_code=Fact({}))
    assert "archs" not in failed(without)
    claims = dataclasses.replace(CLAIMS, abi="aten", backend=None)
    assert "but code for 8.0" in failed(changed(without, claims=claims))["archs"]


# torch-symbols


def test_a_torch_without_a_list_fails(facts: WheelFacts) -> None:
    found = failed(changed(facts, claims=dataclasses.replace(CLAIMS, torch_release="2.99")))
    assert "no list of torch 2.99" in found["torch-symbols"]


def test_a_binary_wheel_without_a_library_fails(facts: WheelFacts) -> None:
    assert "torch-symbols" in failed(dataclasses.replace(facts, libraries=Fact(())))


# runtime


def test_a_library_of_the_wheel_itself_is_allowed(facts: WheelFacts) -> None:
    helper = dataclasses.replace(LIBRARY, name="demo/libhelp.so", soname="libhelp.so.1")
    user = dataclasses.replace(LIBRARY, needed=("libhelp.so.1",))
    assert not failed(dataclasses.replace(facts, libraries=Fact((helper, user))))


def ordinary(facts: WheelFacts, *needed: str, **claimed: object) -> WheelFacts:
    """The facts of an ordinary CUDA extension, which needs these libraries too."""
    claims = Claims("cu130-torch2.11-cp312", "aten", "2.11", "cuda", "cu130", "13.0", CLAIMS.archs)
    changed_facts = with_library(facts, needed=(*LIBRARY.needed, "libc10_cuda.so", *needed))
    return changed(changed_facts, claims=dataclasses.replace(claims, **claimed))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["libcudart.so.13", "libgomp.so.1", "libcusparse.so.12"])
def test_an_aten_wheel_may_borrow_what_it_claims_to(facts: WheelFacts, name: str) -> None:
    assert "runtime" not in failed(ordinary(facts, name, borrowed=(name,)))
    assert f"needs {name}, which is not allowed" in failed(ordinary(facts, name))["runtime"]
    says = failed(ordinary(facts, borrowed=(name,)))["runtime"]
    assert says == f"claims to need {name} of torch, but does not"


@pytest.mark.parametrize("name", ["libcudart.so.12", "libcuda.so.1", "libssl.so.3", "libcudart.so"])
def test_what_torch_of_that_cuda_does_not_bring_is_not_borrowed(
    facts: WheelFacts, name: str
) -> None:
    assert "is not allowed" in failed(ordinary(facts, name, borrowed=(name,)))["runtime"]


# platform-tag


@pytest.mark.parametrize(("newest", "ok"), [("2.28", False), ("2.34", True), ("2.100", True)])
def test_a_tag_for_newer_systems_than_the_limit(facts: WheelFacts, newest: str, ok: bool) -> None:
    limits = Limits(LIMITS.max_size_mib, newest_glibc=newest)
    if ok:
        assert not failed(facts, limits)
        return
    says = only(facts, "platform-tag", limits)
    assert "manylinux_2_34_x86_64 is for newer systems than glibc 2.28: GLIBC_2.34 by" in says


def test_an_alias_is_the_same_tag(facts: WheelFacts) -> None:
    tags = frozenset(parse_tag("py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64"))
    audit = Audit("manylinux_2_17_x86_64", ("manylinux2014_x86_64",), ())
    right = dataclasses.replace(changed(facts, tags=tags, wheel_tags=tags), audit=Fact(audit))
    assert not failed(right)


def test_a_pure_wheel_with_machine_code(facts: WheelFacts) -> None:
    tags = frozenset(parse_tag("py3-none-any"))
    pure = dataclasses.replace(PURE, toolkit="cu130", torch_release="2.11")
    found = failed(changed(facts, tags=tags, wheel_tags=tags, root_is_purelib=True, claims=pure))
    assert "holds machine code: demo/_C.so" in found["archs"]
    assert "holds machine code for manylinux_2_34_x86_64" in found["platform-tag"]


def test_causes_are_the_versions_a_stricter_policy_lacks() -> None:
    symbols = tuple(
        UndefinedSymbol(f"f{number}", version="GLIBC_2.34", library="libc.so.6")
        for number in range(8)
    )
    symbols += (UndefinedSymbol("g", version="GLIBC_2.9", library="libc.so.6"),)
    extra = (
        UndefinedSymbol("old", version="GLIBC_2.5"),
        UndefinedSymbol("q", version="OTHER_9"),
        UndefinedSymbol("n"),
    )
    library = dataclasses.replace(LIBRARY, undefined=(*symbols, *extra))
    causes = symbol_causes((library,), {"GLIBC": frozenset({"2.5"})})
    assert causes == (
        "GLIBC_2.34 by f0, f1, f2, f3, f4, f5 and 2 more",
        "GLIBC_2.9 by g",
    )


def tagged(facts: WheelFacts, pair: str) -> WheelFacts:
    """The facts as of an aten wheel for these Pythons."""
    claims = Claims("cu130-torch2.11-cp312", "aten", "2.11", "cuda", "cu130", "13.0", CLAIMS.archs)
    tags = parse_tag(f"{pair}-manylinux_2_34_x86_64")
    version = Version(f"1.0.0+{claims.local}")
    metadata = RawMetadata(metadata_version="2.4", name="demo", version=str(version))
    metadata["requires_dist"] = ["torch==2.11.*"]
    read = Metadata.from_raw(metadata)
    return changed(facts, claims=claims, tags=tags, wheel_tags=tags, version=version, metadata=read)


@pytest.mark.parametrize(
    ("pair", "symbol", "fault"),
    [
        ("cp312-cp312", "_PyThreadState_UncheckedGet", None),
        ("cp39-abi3", "PyErr_Clear", None),
        ("cp39-abi3", "PyType_FromModuleAndSpec", "is in the limited API since Python 3.10"),
        ("cp310-abi3", "PyType_FromModuleAndSpec", None),
        ("cp39-abi3", "_PyThreadState_UncheckedGet", "is not in Python's limited API"),
        ("py3-none", "PyErr_Clear", "is a symbol of Python; a wheel tagged none may use none"),
        ("py3-none", "_ZN2at4_ops3add4callE", None),
    ],
)
def test_a_wheel_for_many_pythons_is_proven_by_its_symbols(
    facts: WheelFacts, pair: str, symbol: str, fault: str | None
) -> None:
    found = failed(with_symbol(tagged(facts, pair), UndefinedSymbol(symbol)))
    assert "metadata" not in found
    assert (found.get("torch-symbols") is None) == (fault is None)
    assert fault is None or fault in found["torch-symbols"]


@pytest.mark.parametrize("pair", ["cp39-none", "cp312-cp311", "py3-abi3"])
def test_other_pythons_are_refused(facts: WheelFacts, pair: str) -> None:
    found = failed(tagged(facts, pair))["metadata"]
    assert "one cp3x-cp3x, cp3x-abi3 or py3-none expected" in found


def meant(gate: str, library: str = "demo/*.so") -> Limits:
    return dataclasses.replace(LIMITS, allowed=(Allowed(gate, library, "it is so"),))


def test_the_driver_is_needed_by_declaration_alone(facts: WheelFacts) -> None:
    driver = with_library(
        facts,
        needed=("libtorch.so", "libcuda.so.1"),
        undefined=(*SYMBOLS, UndefinedSymbol("cuTensorMapEncodeTiled")),
    )
    driver = dataclasses.replace(tagged(facts, "cp312-cp312"), libraries=driver.libraries)
    assert "libcuda.so.1" in failed(driver)["runtime"]
    assert "cuTensorMapEncodeTiled" in failed(driver)["torch-symbols"]
    assert not {"runtime", "torch-symbols"} & set(failed(driver, meant("runtime")))
    assert "runtime" in failed(driver, meant("runtime", "demo/_D.so"))
    says = {result.name: result.says for result in judge(driver, meant("runtime"))}["runtime"]
    assert says.endswith("libcuda.so.1 in demo/_C.so is meant: it is so")
    other = with_library(facts, needed=("libtorch.so", "libcuda.so.1", "libcurl.so.4"))
    assert "libcurl.so.4" in failed(other, meant("runtime"))["runtime"]


def test_what_manylinux_admits_is_needed_by_declaration_alone(facts: WheelFacts) -> None:
    compressed = with_library(facts, needed=("libtorch.so", "libz.so.1"))
    assert "libz.so.1" in failed(compressed)["runtime"]
    assert "runtime" not in failed(compressed, meant("runtime"))


def test_kernels_are_for_some_archs_by_declaration_alone(facts: WheelFacts) -> None:
    extra = GpuCode("sass", parse("9.0a"), (*KERNELS, "_Z5hopper"))
    some = dataclasses.replace(facts, gpu_code=Fact({"demo/_C.so": (CODE[0], extra, CODE[2])}))
    assert "sm_80 lacks 1 kernels" in only(some, "archs")
    says = {result.name: result.says for result in judge(some, meant("archs"))}["archs"]
    assert says == "sm_80 sm_90a + PTX sm_90a, 0 kernels in each, 3 in some by declaration"
    assert "archs" in failed(some, meant("archs", "demo/_D.so"))
    unclaimed = (*CODE, GpuCode("sass", parse("10.0"), KERNELS))
    more = dataclasses.replace(facts, gpu_code=Fact({"demo/_C.so": unclaimed}))
    assert "machine code not claimed: sm_100" in failed(more, meant("archs"))["archs"]


def test_aten_symbols(facts: WheelFacts) -> None:
    aten = tagged(facts, "cp312-cp312")
    good = with_symbol(
        with_symbol(aten, UndefinedSymbol("_ZN2at4_ops3add4callE")), UndefinedSymbol("PyErr_Clear")
    )
    assert "torch-symbols" not in failed(good)
    for name in (
        *("THPVariableClass", "_ZN3c10lsERSoNS_10DeviceTypeE", "_ZN5torch7LibraryD1Ev"),
        *(
            "_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv",
            "_ZNKRSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEE3strEv",
            "_ZSt28__throw_bad_array_new_lengthv",
            # Operators delete that know the size: torch 2.6 defines them itself.
            *("_ZdlPvm", "_ZdaPvm", "_ZdlPvSt11align_val_t"),
        ),
    ):
        assert "torch-symbols" not in failed(with_symbol(aten, UndefinedSymbol(name))), name
    for name in ("__pthread_key_create", "pthread_once"):
        # The second is asked for by a libstdc++ that is linked in.
        asks_for_threads = UndefinedSymbol(name, weak=True)
        assert "torch-symbols" not in failed(with_symbol(aten, asks_for_threads)), name
        assert "torch-symbols" in failed(with_symbol(aten, UndefinedSymbol(name))), name
    assert "torch-symbols" in failed(with_symbol(aten, UndefinedSymbol("cudaLaunchKernel")))


def test_the_dynamic_loader_comes_with_torch(facts: WheelFacts) -> None:
    """Headers of CUDA 13.2 call it, and no setup.py links with it."""
    asks = with_symbol(tagged(facts, "cp312-cp312"), UndefinedSymbol("dlsym"))
    assert "dlsym is undefined" in failed(asks)["torch-symbols"]
    (library,) = asks.libraries.read()
    needs = dataclasses.replace(library, needed=(*library.needed, "libc10.so"))
    assert "torch-symbols" not in failed(dataclasses.replace(asks, libraries=Fact((needs,))))


def test_the_table_has_each_gate_once() -> None:
    assert list(gates.GATES) == [
        *("record", "content", "metadata", "archs"),
        *("torch-symbols", "runtime", "platform-tag", "size"),
    ]


def test_a_wheel_has_no_gpu_code_by_declaration_alone(facts: WheelFacts) -> None:
    none = dataclasses.replace(facts, gpu_code=Fact({"demo/_C.so": ()}))
    assert "claimed, but no machine code with a kernel for" in only(none, "archs")
    assert "claimed, but no machine" in only(none, "archs", meant("archs", "demo/_D.so"))
    says = {result.name: result.says for result in judge(none, meant("archs"))}["archs"]
    assert says == "no code for a GPU by declaration: it is so"
    (library,) = none.libraries.read()
    second = dataclasses.replace(library, name="demo/_D.so")
    both = dataclasses.replace(none, libraries=Fact((library, second)))
    assert "claimed, but no machine" in failed(both, meant("archs", "demo/_C.so"))["archs"]
    assert "archs" not in failed(both, meant("archs"))
