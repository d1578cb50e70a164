"""Gates `platform-tag`, `runtime` and `torch-symbols`: what libraries need of system and torch."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from torchwheel.check import torch_symbols as tables
from torchwheel.check.audit import (
    DRIVER,
    Audit,
    allowed_for_part,
    allowed_libraries,
    declarable_libraries,
    optional_symbol,
    reason_for,
)
from torchwheel.check.facts import GateError, Limits, WheelFacts
from torchwheel.check.limited_api import python_faults
from torchwheel.check.named_gates import unnamed_fault
from torchwheel_runtime.claims import Claims, Part
from torchwheel_runtime.inspect.elf import (
    PYTHON,
    SHIMS,
    TORCH_PYTHON,
    Library,
    UndefinedSymbol,
    is_cxx,
)
from torchwheel_runtime.validate.at_load import tag_floor
from torchwheel_runtime.versions import version_numbers

ANY = "any"
STATIC_LIBSTDCXX = '"-static-libstdc++ -Wl,--exclude-libs,libstdc++.a"'
"""The linker's flags for a wheel that must run with an older libstdc++ than its compiler's."""


def platform_tag(facts: WheelFacts, limits: Limits) -> str:
    """The file name has the platform tag that auditwheel finds, and it is not too new."""
    claims, wheel, audit = facts.claims, facts.wheel.read(), facts.audit.read()
    platforms = {tag.platform for tag in wheel.tags}
    named = ".".join(sorted(platforms))
    if claims.abi == "pure" or audit.tag is None:
        if audit.tag is not None or claims.abi != "pure" or platforms != {ANY}:
            code = f"machine code for {audit.tag}" if audit.tag else "no machine code"
            raise GateError(f"tag {named} of a {claims.abi} wheel that holds {code}")
        return "any: no machine code"
    because = "; ".join(audit.causes) or "nothing stricter is known"
    if audit.tag.startswith("linux_"):
        raise GateError(f"no manylinux policy admits it: {because}")
    if not platforms <= {audit.tag, *audit.aliases}:
        raise GateError(f"the symbols say {audit.tag}, the file name {named}: {because}")
    require_glibc(audit, limits.newest_glibc)
    return f"{audit.tag}: {because}"


def require_glibc(audit: Audit, newest: str | None) -> None:
    """Raise a GateError for a wheel that needs a newer C library than glibc `newest`."""
    needs = tag_floor([audit.tag or ""])
    if not newest or not needs or version_numbers(needs) <= version_numbers(newest):
        return
    because = "; ".join(audit.causes) or "nothing stricter is known"
    do = f'build without these functions, or set containers.glibc: "{needs}" in matrix.yaml'
    if any(cause.startswith(("GLIBCXX_", "CXXABI_")) for cause in audit.causes):
        do = f"link libstdc++ in, build.environment: {{LDFLAGS: {STATIC_LIBSTDCXX}}}; else {do}"
    raise GateError(f"{audit.tag} is for newer systems than glibc {newest}: {because}; {do}")


def runtime(facts: WheelFacts, limits: Limits) -> str:
    """Every NEEDED soname is in the table (data/runtime.json) or in the wheel itself."""
    claims, libraries = facts.claims, facts.libraries.read()
    own = {library.soname or PurePosixPath(library.name).name for library in libraries}
    permitted = allowed_libraries(claims) | own
    meant: list[str] = []
    for library in libraries:
        if fault := unnamed_fault(library):
            raise GateError(f"{library.name} {fault}")
        part = claims.part_of(library.name)
        allowed = allowed_for_part(part) if part else permitted
        outside = sorted(set(library.needed) - allowed)
        because = limits.reason("runtime", library.name)
        if outside and because and declarable_libraries().issuperset(outside):
            meant.append(f"{', '.join(outside)} in {library.name} is meant: {because}")
        elif outside:
            reason = _why_not(claims, part) if claims.abi != "pure" else "it is pure"
            raise GateError(
                f"{library.name} needs {', '.join(outside)}, which is not allowed: {reason}"
            )
    if unused := set(claims.borrowed) - {name for lib in libraries for name in lib.needed}:
        raise GateError(f"claims to need {', '.join(sorted(unused))} of torch, but does not")
    needed = sorted({name for library in libraries for name in library.needed} - own)
    text = f"needs {', '.join(needed)}" if needed else "needs nothing"
    return "; ".join([text, *meant])


def _why_not(claims: Claims, part: Part | None) -> str:
    if part:
        return reason_for(part.kind) if part.kind != "front_end" else reason_for(part.abi)
    return reason_for(claims.backend or claims.abi)


NAMED = 4
_OF_DRIVER = re.compile("(cu|nvml)[A-Z]")
_LOADER = frozenset({"dlopen", "dlsym", "dlclose", "dlerror"})
_WITH_LOADER = frozenset({"libc10.so", "libtorch_cpu.so", "libtorch_python.so"})
"""Libraries of torch that are themselves linked with libdl.so.2, which has the functions of the
dynamic loader before glibc 2.34. Read in PyPI's torch 2.6, 2.8, 2.11 and 2.13. The headers of CUDA
13.2 call these functions (cuda/__driver/driver_api.h), and few projects link with libdl."""
_OLDEST = ("cp310", "abi3")
"""What entry points are compiled for."""
# torch's libraries contain and export what newer releases of libstdc++ added. An extension that is
# linked with torch takes these symbols from there, without a version.
_STD = (
    *("_ZSt", "_Znw", "_Zna", "_Zdl", "_Zda"),
    *(f"_ZN{const}{ref}St" for const in ("", "K") for ref in ("", "R", "O")),
)


# libtorch_cpu.so needs libgomp, and torch's wheels bring it. So an extension that is linked with
# torch has its functions, also where it is compiled with -fopenmp and linked without.
_OPENMP = ("GOMP_", "omp_")


def torch_symbols(facts: WheelFacts, limits: Limits) -> str:
    """Every undefined symbol has a known provider; a stable wheel needs no C++ symbol of torch."""
    claims, libraries = facts.claims, facts.libraries.read()
    if claims.abi == "pure":
        return "no machine code"
    if not libraries:
        raise GateError(f"an {claims.abi} wheel without a library")
    # A versioned symbol names its library, and gate `runtime` judges that library.
    if claims.parts:
        return _symbols_of_parts(claims, libraries)
    unversioned = {s for lib in libraries for s in lib.undefined if s.version is None}
    tags = {(tag.interpreter, tag.abi) for tag in facts.wheel.read().tags}
    for_any_torch = not claims.borrowed and {abi for _, abi in tags} == {"none"}
    if claims.abi == "stable" and for_any_torch:
        _refuse(_stable_faults(claims.torch_release, unversioned))
    else:
        judged = {s for lib in libraries for s in _judged_symbols(lib, limits)}
        names = {symbol.name for symbol in unversioned}
        stable = _shim_faults(claims.torch_release, judged) if claims.abi == "stable" else ()
        _refuse(itertools.chain(stable, _aten_faults(judged), python_faults(tags, names)))
    used = sum(symbol.name.startswith(SHIMS) for symbol in unversioned)
    since = claims.torch_range if claims.abi == "aten" else claims.torch_release
    return f"{used} C symbols of torch, all in {since}"


def _judged_symbols(library: Library, limits: Limits) -> Iterator[UndefinedSymbol]:
    """The unversioned symbols that torch or Python must have: the driver's are not among them."""
    if limits.reason("torch-symbols", library.name):
        return
    driver = {*library.needed} & DRIVER and limits.reason("runtime", library.name)
    loader = _LOADER if _WITH_LOADER.intersection(library.needed) else frozenset()
    for symbol in library.undefined:
        of_driver = driver and _OF_DRIVER.match(symbol.name)
        if symbol.version is None and not of_driver and symbol.name not in loader:
            yield symbol


def _refuse(faults: Iterator[str]) -> None:
    if found := sorted(faults):
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        raise GateError("; ".join(found[:NAMED]) + more)


def _symbols_of_parts(claims: Claims, libraries: Sequence[Library]) -> str:
    """Each part needs what its kind may need: kernels nothing, entry points Python alone."""
    for library in libraries:
        part = claims.part_of(library.name)
        if part is None:
            raise GateError(f"{library.name}: is in the wheel, but none of its parts")
        symbols = {symbol for symbol in library.undefined if symbol.version is None}
        try:
            _refuse(_faults_of_part(part, symbols))
        except GateError as error:
            raise GateError(f"{library.name}: {error}") from error
    count = sum(part.kind == "front_end" for part in claims.parts)
    return f"{count} front ends, each with symbols of its torch alone"


def _faults_of_part(part: Part, symbols: set[UndefinedSymbol]) -> Iterator[str]:
    names = [symbol.name for symbol in symbols]
    if part.kind == "front_end" and part.torch_release:
        if part.abi == "aten":
            yield from _aten_faults(symbols)
        else:
            yield from _stable_faults(part.torch_release, symbols)
        for name in names:
            if name.startswith(PYTHON) or TORCH_PYTHON in name:
                yield f"{name} is for one Python; a universal front end serves every Python"
        return
    allowed = PYTHON if part.kind == "entry_points" else ()
    for symbol in symbols:
        optional = symbol.weak and optional_symbol(symbol.name)
        if not symbol.name.startswith(allowed) and not optional:
            yield (
                f"{symbol.name} is undefined, and a library of {part.kind} may not ask torch for it"
            )
    if allowed:
        yield from python_faults({_OLDEST}, names)


def _stable_faults(release: str, symbols: set[UndefinedSymbol]) -> Iterator[str]:
    table = tables.export_table()
    if release not in table.releases_by_library:
        have = ", ".join(table.releases_by_library)
        raise GateError(
            f"no list of torch {release}'s symbols (have {have}): make it with "
            "python -m torchwheel.check.torch_symbols TORCH_WHEEL"
        )
    for symbol in symbols:
        home = table.home_of(symbol.name, release)
        if home == tables.CPU or (symbol.weak and optional_symbol(symbol.name)):
            continue
        if home is None:
            yield _unknown_symbol(symbol, release)
        elif not symbol.weak:
            yield f"{symbol.name} is only in {home}: declare it weak, a CPU-only torch lacks it"


def _shim_faults(release: str, symbols: set[UndefinedSymbol]) -> Iterator[str]:
    """What of torch a library needs beside the C symbols that it has had since a release.

    The library is linked with a torch for its GPUs, so it does not matter which one of torch's
    libraries has a symbol.
    """
    table = tables.export_table()
    later = {one for one in table.releases if version_numbers(one) >= version_numbers(release)}
    for symbol in symbols:
        if is_cxx(symbol.name) or symbol.name.startswith(TORCH_PYTHON):
            yield f"{symbol.name} is no C symbol of torch; its stable ABI has no other"
        elif symbol.name.startswith(SHIMS) and not later <= table.releases_with(symbol.name):
            yield f"{symbol.name} is not in every torch from {release} on"


def stable_since(libraries: Iterable[Library]) -> str | None:
    """The oldest torch from which on each has all that libraries need; None if they need C++ of it.

    Such libraries keep to the stable ABI: one wheel can serve all these torches.
    """
    symbols = (symbol for library in libraries for symbol in library.undefined)
    names = {symbol.name for symbol in symbols if symbol.version is None}
    used = [name for name in names if name.startswith(SHIMS)]
    if not used or any(is_cxx(name) or name.startswith(TORCH_PYTHON) for name in names):
        return None
    return complete_since(used, tables.export_table())


def complete_since(names: Iterable[str], table: tables.ExportTable) -> str | None:
    """The oldest torch from which on each has all symbols; None if the newest lacks one."""
    known = [table.releases_with(name) for name in names]
    since = None
    for release in reversed(table.releases):
        if not all(release in releases for releases in known):
            break
        since = release
    return since


def _unknown_symbol(symbol: UndefinedSymbol, release: str) -> str:
    if is_cxx(symbol.name):
        return f"{symbol.name} is a C++ symbol of torch; a stable wheel may use its C symbols only"
    if symbol.name.startswith(SHIMS):
        return f"{symbol.name} is not in torch {release}"
    return f"{symbol.name} is undefined and neither torch nor a system library is known to give it"


def _aten_faults(symbols: set[UndefinedSymbol]) -> Iterator[str]:
    """An aten library is for one torch and one Python: prefixes tell their symbols."""
    for symbol in symbols:
        from_torch = is_cxx(symbol.name) or symbol.name.startswith(
            (*SHIMS, *_STD, *_OPENMP, TORCH_PYTHON, "_ZTI", "_ZTV", "_ZTS", "_ZN8pybind11")
        )
        from_python = symbol.name.startswith(PYTHON)
        if not (from_torch or from_python or (symbol.weak and optional_symbol(symbol.name))):
            yield f"{symbol.name} is undefined and neither torch nor Python is known to give it"
