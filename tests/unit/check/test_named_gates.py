"""Gates for anybody's wheel: what a name or METADATA says, and what is in it."""

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import auditwheel.policy
import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename

from torchwheel.check.gates import OF_NAMES, findings_of, judge_named
from torchwheel.check.named_claims import NamedCase, case_of, claims_of, fit_torch
from torchwheel.check.torch_symbols import ExportTable, hash_of
from torchwheel.data import read
from torchwheel.inspect.inspection import Inspection, inspect_wheel
from torchwheel.inspect.library_facts import GpuRuntime, GpuTarget, LibraryFacts
from torchwheel.inspect.wheel import parse_file_name
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.inspect.elf import UndefinedSymbol
from torchwheel_runtime.versions import version_numbers
from wheelmaker import make_wheel, universal

POLICIES = "manylinux-policy.json"
SHIM, NEW, OLD = "aoti_torch_x", "_ZN3c101fERKNSt7__cxx111SE", "_ZN3c101fERKSs"
TABLE = ExportTable(
    ("2.6", "2.7", "2.8"), {hash_of(SHIM): 0b111, hash_of(NEW): 0b110, hash_of(OLD): 0b001}
)
SASS = GpuTarget("sass", parse("8.0"), 1, 2, 10, 10, ("none",))
HSACO = GpuTarget("hsaco", parse("gfx90a"), 1, 2, 0, 0, ("bundle",))
PTX = GpuTarget("ptx", parse("9.0"), 1, None, 10, 10, ("none",))
GLIBC = UndefinedSymbol("f", version="GLIBC_2.27", library="libc.so.6")
RIGHT = LibraryFacts(
    "demo/_C.so",
    "x86_64",
    needed=("libtorch.so", "libc10.so", "libcudart.so.12", "libc.so.6"),
    undefined=(GLIBC, *map(UndefinedSymbol, (SHIM, NEW, "PyList_New"))),
    size=1000,
    run_paths=("$ORIGIN", "$ORIGIN/../demo.libs"),
    targets=(SASS,),
    runtimes=(GpuRuntime("shared", "cuda", "libcudart.so.12", "12"),),
)
FILE = "demo-1.0+cu126torch2.8-cp312-cp312-manylinux_2_28_x86_64.whl"


def case(
    library: LibraryFacts = RIGHT,
    file: str = FILE,
    torch: str | None = "==2.8.*",
    **changes: object,
) -> NamedCase:
    """The case of a wheel with one library; `changes` are of its facts."""
    named = parse_file_name(file)
    facts = Inspection(
        title=file,
        kind="wheel",
        size=10,
        unpacked=20,
        members=("demo/__init__.py", library.name),
        libraries=(library,),
        named=named,
        wheel_tags=named.tags,
        purelib=False,
    )
    facts = dataclasses.replace(facts, **changes)  # type: ignore[arg-type]
    claims = dataclasses.replace(
        claims_of(facts), torch=None if torch is None else SpecifierSet(torch)
    )
    fit = fit_torch(library, (library,), TABLE)
    return NamedCase(facts, claims, {library.name: fit} if fit else {}, TABLE)


def said(made: NamedCase, gate: str) -> list[str]:
    """The findings of a gate, all others being right."""
    found = findings_of(made)
    assert {finding.rule for finding in found} <= {gate}
    return [f"{finding.level} {finding}" for finding in found]


def changed(**changes: object) -> LibraryFacts:
    return dataclasses.replace(RIGHT, **changes)  # type: ignore[arg-type]


def asking(*names: str, **changes: object) -> LibraryFacts:
    """The library with these undefined symbols."""
    return changed(undefined=(GLIBC, *map(UndefinedSymbol, names)), **changes)


def test_a_right_wheel() -> None:
    assert findings_of(case()) == ()


def test_cuda_is_that_of_the_version_else_of_a_requirement() -> None:
    assert case(file=FILE).claims.cuda == case(file=FILE).claims.local.cuda == "12.6"
    assert case(file="d-1-py3-none-any.whl").claims.cuda is None


PLAIN = "demo-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
FOR_CPUS = PLAIN.replace("1.0-", "1.0+cpu-")
NEW_STRINGS = FILE.replace("cu126torch2.8", "cu124torch2.6cxx11abiTRUE")
FREE_THREADED, WITH_GIL = (
    FILE.replace("cp312-cp312", tag) for tag in ("cp314-cp314t", "cp314-cp314")
)
ONE_PYTHON = "demo/_C.cpython-{}-x86_64-linux-gnu.so"
ONLY = (
    "error demo/_C.cpython-{0}-x86_64-linux-gnu.so: only cp{0} imports it, and the wheel is for {1}"
)
ABI3 = FILE.replace("cp312-cp312", "cp39-abi3")
LACKS = "error demo/_C.so: is for torch 2.6 too, by {}, and c10::f is not in 2.6"
NOT_JUDGED = "warning demo/_C.so: not judged: it is for another torch than torch 2.6 to 2.8 of PyPI"
FOR_2_6 = FILE.replace("cu126torch2.8", "cu124torch2.6")
NOBODYS = "_ZN2at6nobodyEv"
OF_OLD_STRINGS = asking(OLD)
OF_NOBODY = "is a folder of the machine that built it, or of nobody"
OUTSIDE = "error demo/_C.so: needs PyUnicode_Ready of CPython, which is not in the limited API"


def ran(path: str) -> LibraryFacts:
    return changed(run_paths=(path,))


def grafted(how: Literal["shared", "grafted"], name: str, version: str) -> LibraryFacts:
    return changed(runtimes=(GpuRuntime(how, "cuda", name, version),))


def for_rocm(soname: str) -> LibraryFacts:
    """The library, of HIP in place of CUDA."""
    name = f"libamdhip64.so.{soname}"
    return changed(
        needed=("libtorch.so", "libc10.so", name, "libc.so.6"),
        targets=(HSACO,),
        runtimes=(GpuRuntime("shared", "rocm", name, soname),),
    )


OF_LIBSTDCXX = changed(
    needed=(*RIGHT.needed, "libstdc++.so.6"),
    undefined=(*RIGHT.undefined, UndefinedSymbol("g", False, "GLIBCXX_3.4.29", "libstdc++.so.6")),
)

CASES: Mapping[str, Sequence[tuple[NamedCase, Sequence[str]]]] = {
    "record": [(case(faults={"record": "no hash"}), ["error no hash"])],
    "content": [
        (
            case(members=("demo/__init__.py", "evil.pth", "json/__init__.py")),
            [
                "error evil.pth: runs whenever Python starts",
                "error json: has the name of a module of Python",
            ],
        ),
    ],
    "metadata": [
        *((case(faults={name: "odd"}), ["error odd"]) for name in ("metadata", "wheel", "claims")),
        (
            case(purelib=True),
            ["error WHEEL says Root-Is-Purelib: true, and there is machine code in it"],
        ),
        (
            case(wheel_tags=parse_file_name(FILE.replace("manylinux_2_28", "linux")).tags),
            [
                "error WHEEL has the tags cp312-cp312-linux_x86_64, the file name "
                "cp312-cp312-manylinux_2_28_x86_64"
            ],
        ),
    ],
    "gpu-code": [
        (
            case(changed(targets=(), targets_problem="cut short")),
            ["error demo/_C.so: cannot be read: cut short"],
        ),
        (case(changed(targets=(HSACO,))), ["error is for CUDA 12.6, has ROCm code"]),
        (case(changed(targets=())), ["error is for CUDA 12.6, has no GPU code"]),
        (
            case(changed(targets=(PTX,))),
            ["warning demo/_C.so: has PTX or empty modules, and no kernel in machine code"],
        ),
        (case(file=FOR_CPUS), ["error is for CPUs by its version, and has code for GPUs"]),
        (case(changed(targets=()), FOR_CPUS), []),
    ],
    "torch-symbols": [
        (case(file=PLAIN, torch=">=2.6"), [LACKS.format("torch>=2.6")]),
        (case(file=PLAIN, torch=">=2.7"), []),
        # Patch releases count: 2.6.1 is of 2.6.
        (case(file=PLAIN, torch=">2.6.0"), [LACKS.format("torch>2.6.0")]),
        (
            case(file=PLAIN, torch=None),
            ["warning needs torch, and no Requires-Dist says which one"],
        ),
        # A bare requirement is one of any torch.
        (case(file=PLAIN, torch=""), [LACKS.format("a requirement of any torch")]),
        (case(asking(SHIM), PLAIN, torch=""), []),
        (case(file=FOR_2_6), [LACKS.format("its version")]),
        # Some builds of torch 2.6 have the new std::string, and PyPI's has not.
        *(
            (case(file=FOR_2_6.replace(*change), torch="==2.6.*"), [NOT_JUDGED])
            for change in (("cu124", "cu126"), ("torch2.6", "torch2.6cxx11abiTRUE"))
        ),
        # The table has no other torch: nothing is said of a symbol that those have not.
        *(
            (case(asking(SHIM, NOBODYS), PLAIN, torch=other), [NOT_JUDGED])
            for other in ("==2.5.1", "<2.6", ">=2.9")
        ),
        (case(asking("_ZN3c103xpu6streamEv"), PLAIN, torch=""), []),
        (
            case(OF_OLD_STRINGS, NEW_STRINGS),
            [
                NOT_JUDGED,
                "error demo/_C.so: has the old std::string, and its version says new",
            ],
        ),
        (case(OF_OLD_STRINGS, NEW_STRINGS.replace("TRUE", "FALSE")), []),
        (
            case(asking(SHIM, NOBODYS)),
            ["error demo/_C.so: needs at::nobody, which no torch 2.6 to 2.8 of PyPI has"],
        ),
    ],
    "python-abi": [
        (case(changed(name="demo/_C.abi3.so"), ABI3), []),
        *(
            (case(changed(name=ONE_PYTHON.format(own)), file), says)
            for own, file, says in (
                ("312", FILE, []),
                ("310", ABI3, [ONLY.format("310", "cp39-abi3")]),
                ("311", FILE, [ONLY.format("311", "cp312-cp312")]),
                # A free-threaded Python has an ABI of its own, and so have its libraries.
                ("314t", FREE_THREADED, []),
                ("314", WITH_GIL, []),
                ("314", FREE_THREADED, [ONLY.format("314", "cp314-cp314t")]),
                ("314t", WITH_GIL, [ONLY.format("314t", "cp314-cp314")]),
            )
        ),
        (
            case(asking(name=ONE_PYTHON.format("311"), exports=frozenset({"PyInit__C"}))),
            [ONLY.format("311", "cp312-cp312")],
        ),
        (case(asking("PyList_New", "PyUnicode_Ready")), []),
        (case(asking("PyList_New", "PyUnicode_AsUTF8String"), ABI3), []),
        (case(asking("PyList_New", "PyUnicode_Ready"), ABI3), [OUTSIDE]),
        (case(asking("PyUnicode_Ready"), FILE.replace("cp312-cp312", "py3-none")), [OUTSIDE]),
        (
            case(asking("PyType_GetName", "PyList_New"), ABI3),
            [
                "error demo/_C.so: needs PyType_GetName, which the limited API has since Python "
                "3.11, and the wheel is for cp39-abi3"
            ],
        ),
        (case(asking("PyType_GetName"), ABI3.replace("cp39", "cp311")), []),
        (
            case(changed(name="demo/_C.abi3.so"), FREE_THREADED),
            ["error demo/_C.abi3.so: no free-threaded Python imports it, as cp314-cp314t is"],
        ),
        (
            case(asking("_Py_MergeZeroLocalRefcount"), WITH_GIL),
            ["error demo/_C.so: is for free-threaded Pythons, and the wheel for cp314-cp314"],
        ),
        (case(asking("_Py_MergeZeroLocalRefcount"), FREE_THREADED), []),
    ],
    "runtime": [
        *(
            (case(changed(needed=(*RIGHT.needed, name))), [])
            for name in ("libz.so.1", "libexpat.so.1", "libGL.so.1")
        ),
        (
            case(changed(needed=("libnuma.so.1", "libx.so.3"))),
            [
                "error demo/_C.so: needs libnuma.so.1, libx.so.3: not in the wheel, "
                "of torch or in a manylinux policy"
            ],
        ),
        (
            case(changed(needed=("libcuda.so.1",))),
            ["warning demo/_C.so: needs libcuda.so.1: it cannot be loaded where no driver is"],
        ),
        (
            case(grafted("shared", "libcudart.so.13", "13")),
            ["error demo/_C.so: needs libcudart.so.13, and the wheel is for 12.6"],
        ),
        *(
            (
                case(for_rocm(so), FILE.replace("cu126torch2.8", f"rocm{release}")),
                [f"error demo/_C.so: needs libamdhip64.so.{so}, and the wheel is for {release}"]
                if wrong
                else [],
            )
            for release, so, wrong in (
                *(("7.2", "7", False), ("7.2", "6", True)),
                # ROCm 10 comes with HIP 7.
                *(("10.1", "7", False), ("10.1", "6", True), ("10.1", "10", True)),
            )
        ),
        (
            case(grafted("grafted", "libcudart-0a1b2c3d.so.12", "12")),
            ["warning demo/_C.so: needs libcudart-0a1b2c3d.so.12: a second runtime beside torch's"],
        ),
        (
            case(
                changed(
                    undefined=(
                        *RIGHT.undefined,
                        dataclasses.replace(GLIBC, library="libcudart-3582bce9.so.13"),
                    )
                )
            ),
            [
                "error demo/_C.so: needs versions of symbols of libcudart-3582bce9.so.13, which it "
                "does not name among those that it needs: the loader ends the process"
            ],
        ),
        *(
            (
                case(changed(name=f"demo.libs/{name}")),
                [f"{level} demo.libs/{name}: is a copy of {of}: a process would have it twice"],
            )
            for name, level, of in (
                ("libtorch_cpu-1a2b3c4d.so", "error", "libtorch_cpu.so"),
                ("libc10.so", "error", "libc10.so"),
                ("libcublas-1a2b3c4d.so.12", "warning", "libcublas.so.12"),
                ("libcublas.1a2b3c4d.so.12", "warning", "libcublas.so.12"),
                ("libtorch_python-1a2b3c4d.so", "error", "libtorch_python.so"),
                ("libcudart.so.12", "warning", "libcudart.so.12"),
            )
        ),
        # A wheel that uses torch through a library of its own still has the copy.
        (
            case(asking(name="demo.libs/libc10.so"), torch=""),
            ["error demo.libs/libc10.so: is a copy of libc10.so: a process would have it twice"],
        ),
        # Projects name their own libraries after torch.
        *(
            (case(changed(name=f"demo/{name}")), [])
            for name in ("libtorchaudio.so", "libtorch_sparse.so", "librocksdb.so.8")
        ),
        (
            case(
                changed(needed=("libc.so.6", "libc.musl-x86_64.so.1"), undefined=()),
                FILE.replace("manylinux_2_28", "musllinux_1_2"),
            ),
            [],
        ),
        (case(changed(name="demo.libs/libgomp-1a2b3c4d.so.1.0.0")), []),
    ],
    "run-paths": [
        (case(ran("")), ['error demo/_C.so: "" is empty']),
        *(
            (case(ran(path)), [f'{level} demo/_C.so: "{path}" {says}'])
            for path, level, says in (
                ("build", "error", OF_NOBODY),
                ("/__w/x", "error", OF_NOBODY),
                ("/usr/local/cuda/lib64", "warning", OF_NOBODY),
                ("$ORIGIN/../../../x", "error", "leads out of the folder of packages"),
            )
        ),
        (case(ran("$ORIGIN/../torch/lib")), []),
    ],
    "platform-tag": [
        (
            case(changed(undefined=(dataclasses.replace(GLIBC, version="GLIBC_2.32"),))),
            ["error demo/_C.so: needs glibc 2.32, the tag promises 2.28"],
        ),
        (
            case(file=FILE.replace("manylinux_2_28", "musllinux_1_2")),
            ["error demo/_C.so: needs glibc 2.27, the tag promises musl"],
        ),
        (
            case(OF_LIBSTDCXX),
            [
                "warning demo/_C.so: needs libstdc++ GLIBCXX_3.4.29, the tag promises 3.4.24, that "
                "of glibc 2.28"
            ],
        ),
        (case(OF_LIBSTDCXX, FILE.replace("2_28", "2_34")), []),
        *(
            (
                case(changed(name=f"demo/_C.cpython-312-{triplet}.so")),
                [
                    f"error demo/_C.cpython-312-{triplet}.so: only a Python for {triplet} imports "
                    "it, the tag is manylinux_2_28_x86_64"
                ],
            )
            for triplet in ("aarch64-linux-gnu", "x86_64-linux-musl")
        ),
        (
            case(changed(machine="aarch64")),
            ["error demo/_C.so: is for aarch64, the tag manylinux_2_28_x86_64"],
        ),
        (
            case(file=FILE.replace("manylinux_2_28_x86_64", "any")),
            ["error the tag says any platform; there is machine code in it"],
        ),
        (
            case(file=FILE.replace("manylinux_2_28", "linux")),
            ["warning linux_x86_64 names no C library: no index takes it"],
        ),
    ],
}


@pytest.mark.parametrize(
    ("gate", "made", "says"), [(gate, *row) for gate, rows in CASES.items() for row in rows]
)
def test_a_gate(
    gate: str, made: NamedCase, says: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The list of the limited API is torchwheel's own: without a package that was not installed no
    # symbol was outside.
    monkeypatch.setitem(sys.modules, "abi3info", None)
    assert said(made, gate) == list(says)


def test_no_gate_about_libraries_holds_for_one_that_cannot_be_read(tmp_path: Path) -> None:
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    zeros = {"demo/__init__.py": b"", "demo/_C.so": b"\x7fELF" + bytes(4096)}
    results, findings = judge_named(make_wheel(tmp_path, tag=tag, files=zeros, claims=None))
    about = {"gpu-code", "torch-symbols", "python-abi", "runtime", "run-paths", "platform-tag"}
    assert {result.name for result in results if not result.ok} == about
    says = {f.rule: str(f) for f in findings if f.level == "error"}
    assert "cannot be read: " in says.pop("gpu-code")
    assert set(says.values()) == {"demo/_C.so: not judged: cannot be read"}


def test_the_table_has_what_auditwheels_policies_admit() -> None:
    policies = json.loads(Path(auditwheel.policy.__file__).with_name(POLICIES).read_text())
    admitted = {name for policy in policies for name in policy["lib_whitelist"]}
    table = read("runtime.json")
    known = {*table["system"]["needed"], *table["manylinux"]["needed"]}
    assert admitted <= known
    assert set(table["manylinux"]["needed"]) == admitted - set(table["system"]["needed"])


def test_the_table_has_libstdcxx_of_auditwheels_policies() -> None:
    """The newest GLIBCXX of each policy on every machine that torch is published for."""
    found: dict[str, str] = {}
    for policy in json.loads(Path(auditwheel.policy.__file__).with_name(POLICIES).read_text()):
        of_machines = [policy["symbol_versions"].get(one) for one in ("x86_64", "aarch64")]
        newest = [max(map(version_numbers, one["GLIBCXX"])) for one in of_machines if one]
        if newest:
            glibc = ".".join(policy["name"].split("_")[1:])
            found[glibc] = ".".join(map(str, min(newest)))
    each_once = {text: glibc for glibc, text in reversed(found.items())}
    assert read("runtime.json")["libstdcxx"]["newest"] == {
        glibc: text for text, glibc in reversed(each_once.items())
    }


@pytest.mark.parametrize(
    ("requires", "says"),
    [
        (["torch"], ""),
        (["numpy"], None),
        (['torch>=2.6; extra == "dev"'], None),
        (['torch>=2.6; sys_platform == "darwin"'], None),
        (['torch>=2.6; python_version < "3.12"', 'torch>=2.7; python_version >= "3.12"'], ">=2.7"),
        (["torch>=2.6", "Torch[opt]<2.8"], "<2.8,>=2.6"),
        (["torch==2.7.0+cu126"], "==2.7.0"),
        (["torch @ https://x.org/torch-2.7.0%2Bcu126-cp312-cp312-linux_x86_64.whl"], "==2.7.0"),
    ],
)
def test_the_torch_that_metadata_requires(
    tmp_path: Path, requires: list[str], says: str | None
) -> None:
    wheel = make_wheel(tmp_path, tag="cp312-cp312-linux_x86_64", requires=requires, claims=None)
    found = claims_of(inspect_wheel(wheel)).torch
    assert says == (None if found is None else str(found))


def test_what_calls_the_driver_itself_may_have_no_gpu_code() -> None:
    found = findings_of(case(changed(targets=(), needed=("libcudart.so.12", "libcuda.so.1"))))
    assert [f"{one.level} {one}" for one in found if one.rule == "gpu-code"] == [
        "warning is for CUDA 12.6, has no GPU code"
    ]


def test_each_front_end_of_a_universal_wheel_has_a_torch_of_its_own() -> None:
    wheel = universal(torch=("2.6", "2.7"))
    old = next(part for part in wheel.parts if part.torch_release == "2.6")
    library = asking(OLD, name=old.file)
    file = "demo-1.0-py3-none-manylinux_2_28_x86_64.whl"
    assert said(case(library, file, torch=">=2.6", claims=wheel), "torch-symbols") == []
    (says,) = said(case(library, file, torch=">=2.6"), "torch-symbols")
    assert "is for torch 2.7, 2.8 too, by torch>=2.6" in says


def test_a_fault_of_metadata_is_said_once(tmp_path: Path) -> None:
    name = "demo-1.0.0.dist-info/METADATA"
    for old, new in (
        (b"Metadata-Version: ", b"Metadata-Version: 9"),
        (b"\nVersion: 1", b"\nVersion: x"),
    ):

        def bend(members: dict[str, bytes], old: bytes = old, new: bytes = new) -> None:
            members[name] = members[name].replace(old, new, 1)

        (finding,) = judge_named(make_wheel(tmp_path, claims=None, bend=bend))[1]
        assert finding.says.count("METADATA is not valid") == 1


def test_a_finding_is_of_bounded_length() -> None:
    file = FILE.replace("x86_64.whl", ".".join(f"x86_{n}" for n in range(900)) + ".whl")
    made = case(wheel_tags=parse_wheel_filename(file)[3])
    (says,) = said(made, "metadata")
    assert 400 < len(says) < 900


def test_gates_of_a_file(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, claims=None)
    results, findings = judge_named(path)
    assert [result.name for result in results] == list(OF_NAMES)
    assert all(result.ok for result in results)
    assert not findings
    assert findings_of(case_of(inspect_wheel(path))) == ()
    results, findings = judge_named(path, max_size_mib=1e-6)
    assert [result.name for result in results if not result.ok] == ["size"]


def test_a_file_that_is_no_wheel_fails_every_gate(tmp_path: Path) -> None:
    (tmp_path / "x-1-py3-none-any.whl").write_bytes(b"no zip")
    results, findings = judge_named(tmp_path / "x-1-py3-none-any.whl")
    assert [result.name for result in results] == list(OF_NAMES)
    assert not any(result.ok for result in results)
    assert len(findings) == len(OF_NAMES)


def test_a_gate_that_breaks_has_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: NamedCase) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(OF_NAMES, "runtime", broken)  # type: ignore[arg-type]
    results, _ = judge_named(make_wheel(tmp_path, claims=None))
    assert [r.says for r in results if not r.ok] == ["the gate broke: ZeroDivisionError:"]
