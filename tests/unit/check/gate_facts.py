"""Facts of three right wheels, for CUDA, for ROCm and universal, and changes that bend them."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.metadata import Metadata, RawMetadata
from packaging.tags import parse_tag
from packaging.version import Version

from torchwheel.check.audit import Audit
from torchwheel.check.content import hex_digest
from torchwheel.check.facts import Allowed, Fact, Limits, WheelFacts
from torchwheel.check.gates import judge
from torchwheel.findings import CheckResult
from torchwheel.inspect.sbom import BuiltLibrary, Sbom
from torchwheel.inspect.wheel import WheelName, read_wheel
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import Claims, Part
from torchwheel_runtime.inspect.elf import GpuCode, Library, UndefinedSymbol
from wheelmaker import make_wheel, materials, stable

LIMITS = Limits(max_size_mib=1)
KERNELS = ("_Z1kPf", "_Z2k2Pf")
OWN = "demo/_C.so"
Change = Callable[[WheelFacts], WheelFacts]
"""What bends the facts of a right wheel."""


def results(facts: WheelFacts, limits: Limits = LIMITS) -> dict[str, CheckResult]:
    return {result.name: result for result in judge(with_sbom(facts), limits)}


def with_sbom(facts: WheelFacts) -> WheelFacts:
    """The facts with an SBOM that fits them, however they were bent."""
    one, libraries = facts.wheel.value, facts.libraries.value
    if one is None or libraries is None or one.claims is None:
        return facts
    built = (
        BuiltLibrary(own.name, hex_digest(one, own.name), materials(one.claims, own.name))
        for own in sorted(libraries, key=lambda own: own.name)
    )
    sbom = Sbom(one.name, str(one.version), tuple(built), "0")
    return dataclasses.replace(facts, wheel=Fact(dataclasses.replace(one, sbom=sbom)))


def failed(facts: WheelFacts, limits: Limits = LIMITS) -> dict[str, str]:
    return {name: one.says for name, one in results(facts, limits).items() if not one.ok}


def meant(gate: str, library: str = "demo/*.so") -> Limits:
    """Limits of a project that means what a gate finds."""
    return dataclasses.replace(LIMITS, allowed=(Allowed(gate, library, "it is so"),))


# What bends the facts.


def then(*changes: Change) -> Change:
    """One change after the other."""

    def change(facts: WheelFacts) -> WheelFacts:
        for one in changes:
            facts = one(facts)
        return facts

    return change


def have(**values: object) -> Change:
    """Other facts than were read."""
    found = {name: Fact(value) for name, value in values.items()}
    return lambda facts: dataclasses.replace(facts, **found)  # type: ignore[arg-type]


def wheel(**changes: object) -> Change:
    """Another wheel; what its file name says can be changed like other fields."""
    names = {key: changes.pop(key) for key in WheelName._fields if key in changes}

    def change(facts: WheelFacts) -> WheelFacts:
        one = facts.wheel.read()
        named = one.named._replace(**names)
        return have(wheel=dataclasses.replace(one, named=named, **changes))(facts)

    return change


def tags(text: str) -> Change:
    return wheel(tags=parse_tag(text), wheel_tags=parse_tag(text))


def code(*modules: GpuCode, name: str = OWN) -> Change:
    return lambda facts: have(gpu_code={**facts.gpu_code.read(), name: modules})(facts)


def library(change: Callable[[Library], Library], name: str = OWN) -> Change:
    def of(facts: WheelFacts) -> WheelFacts:
        libraries = facts.libraries.read()
        return have(libraries=tuple(change(o) if o.name == name else o for o in libraries))(facts)

    return of


def symbol(name: str, **fields: bool) -> Change:
    new = UndefinedSymbol(name, **fields)  # type: ignore[arg-type]
    return library(lambda one: dataclasses.replace(one, undefined=(*one.undefined, new)))


def needs(*names: str) -> Change:
    return library(lambda one: dataclasses.replace(one, needed=(*one.needed, *names)))


def module(kind: str, arch: str, kernels: tuple[str, ...] = KERNELS) -> GpuCode:
    return GpuCode(kind, parse(arch), () if kind == "ptx" else kernels)  # type: ignore[arg-type]


def needing(name: str, needed: str) -> Change:
    return library(lambda one: dataclasses.replace(one, needed=(needed,)), name)


# A wheel for CUDA.

TAG = "py3-none-manylinux_2_34_x86_64"
CLAIMS = stable(archs=("8.0", "9.0a+PTX"))
SYMBOLS = (
    UndefinedSymbol("aoti_torch_get_current_cuda_stream", weak=True),
    UndefinedSymbol("torch_call_dispatcher"),
    UndefinedSymbol("_ITM_deregisterTMCloneTable", weak=True),
    UndefinedSymbol("malloc", version="GLIBC_2.2.5", library="libc.so.6"),
)
LIBRARY = Library(OWN, "x86_64", None, ("libtorch.so", "libc.so.6"), SYMBOLS)
CODE = (module("sass", "8.0"), module("sass", "9.0a"), module("ptx", "9.0a"))
ATEN = Claims("cu130-torch2.11-cp312", "aten", "2.11", "cuda", "cu130", "13.0", CLAIMS.archs)


def cuda(folder: Path, **changes: object) -> WheelFacts:
    """The facts of a wheel; `changes` are of how it is made."""
    made = {"version": "1.0.0+cu130", "tag": TAG, "claims": CLAIMS, "requires": ("torch>=2.11",)}
    return WheelFacts(
        Fact(read_wheel(make_wheel(folder, **{**made, **changes}))),  # type: ignore[arg-type]
        Fact((LIBRARY,)),
        Fact({OWN: CODE}),
        Fact(Audit("manylinux_2_34_x86_64", (), ("GLIBC_2.34 by dlopen, dlsym",))),
    )


def tagged(pair: str) -> Change:
    """As of an aten wheel for these Pythons."""
    version = Version(f"1.0.0+{ATEN.local}")
    metadata = RawMetadata(metadata_version="2.4", name="demo", version=str(version))
    metadata["requires_dist"] = ["torch==2.11.*"]
    read = Metadata.from_raw(metadata)
    return then(
        tags(f"{pair}-manylinux_2_34_x86_64"), wheel(claims=ATEN, version=version, metadata=read)
    )


# A wheel for ROCm.

ROCM_CLAIMS = stable(
    variant="rocm6.4-stable",
    backend="rocm",
    toolkit="rocm6.4",
    toolkit_version="6.4",
    archs=("gfx90a:xnack-", "gfx942", "gfx1100"),
)
ROCM_CODE = tuple(GpuCode("hsaco", arch, KERNELS) for arch in ROCM_CLAIMS.archs)
_HIP = UndefinedSymbol("hipLaunchKernel", version="hip_4.2", library="libamdhip64.so.6")


def rocm(folder: Path) -> WheelFacts:
    tag = "py3-none-manylinux_2_17_x86_64"
    return then(
        have(
            libraries=(dataclasses.replace(LIBRARY, undefined=(*SYMBOLS[:2], _HIP)),),
            gpu_code={OWN: ROCM_CODE},
            audit=Audit("manylinux_2_17_x86_64", ("manylinux2014_x86_64",)),
        ),
        needs("libamdhip64.so.6"),
    )(cuda(folder, version="1.0.0+rocm6.4", tag=tag, claims=ROCM_CLAIMS))


def claims(of: Claims = CLAIMS, /, **changes: object) -> Change:
    return wheel(claims=dataclasses.replace(of, **changes))  # type: ignore[arg-type]


def rocm_archs(*names: str) -> Change:
    return claims(ROCM_CLAIMS, archs=tuple(map(parse, names)))


# A universal wheel: each library is judged by the claims of its part.

FILES = {
    f"demo/{name}.so": f"demo/{name}.so".encode()
    for name in ("cu130", "rocm72", "stable", "old", "dl")
}
CUDA, ROCM, STABLE, OLD, DLPACK = FILES
PART_CODE = {
    CUDA: (module("sass", "9.0", KERNELS[:1]), module("ptx", "9.0")),
    ROCM: (module("hsaco", "gfx942", KERNELS[:1]),),
}


def _part(kind: str, name: str, file: str, **fields: object) -> Part:
    digest = hashlib.sha256(FILES[file]).hexdigest()
    return Part(kind, name, file, digest, **fields)  # type: ignore[arg-type]


def _kernels(name: str, file: str, backend: str, toolkit_version: str, arch: str) -> Part:
    fields = {"backend": backend, "toolkit_version": toolkit_version, "archs": (parse(arch),)}
    return _part("kernels", name, file, **fields)


PARTS = (
    _kernels("cu130", CUDA, "cuda", "13.0", "9.0+PTX"),
    _kernels("rocm7.2", ROCM, "rocm", "7.2", "gfx942"),
    _part("front_end", "stable", STABLE, torch_release="2.11"),
    _part("front_end", "torch2.6", OLD, torch_release="2.6", abi="aten"),
    _part("entry_points", "dlpack", DLPACK, torch_release="2.10"),
)
_NEEDED = {ROCM: ("libamdhip64.so.7",), STABLE: ("libtorch.so",), OLD: ("libtorch.so",)}
_UNDEFINED = {
    STABLE: (UndefinedSymbol("torch_call_dispatcher"),),
    OLD: (UndefinedSymbol("_ZN3c105ErrorC1Ev"),),
    DLPACK: (UndefinedSymbol("PyModule_Create2"),),
}


def universal(folder: Path, **claimed: object) -> WheelFacts:
    claims = Claims("universal", "universal", "2.6", **{"parts": PARTS, **claimed})  # type: ignore[arg-type]
    made = make_wheel(
        folder,
        tag="py3-none-manylinux_2_34_x86_64",
        files={"demo/__init__.py": b"", **FILES},
        claims=claims,
        requires=("torch>=2.6",),
    )
    libraries = tuple(
        Library(
            *(name, "x86_64", None),
            needed=("libc.so.6", *_NEEDED.get(name, ())),
            undefined=_UNDEFINED.get(name, ()),
        )
        for name in FILES
    )
    return WheelFacts(
        Fact(read_wheel(made)),
        Fact(libraries),
        Fact({name: PART_CODE.get(name, ()) for name in FILES}),
        Fact(Audit("manylinux_2_34_x86_64")),
    )


RIGHT: Mapping[str, Callable[[Path], WheelFacts]] = {
    "cuda": cuda,
    "rocm": rocm,
    "universal": universal,
}
