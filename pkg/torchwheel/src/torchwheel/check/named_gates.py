"""Gates for anybody's wheel: what it says by its name and metadata against what it is.

Each is a function of the facts that yields findings; docs/gates.md has a section for each. A gate
holds if none of its findings is an error.
"""

import dataclasses
import fnmatch
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from torchwheel.check.limited_api import added_later, outside_limited_api
from torchwheel.check.named_claims import NamedCase, NamedClaims
from torchwheel.data import read
from torchwheel.inspect.installed import OF_PYTHON, owner_of
from torchwheel.inspect.library_facts import MODULE, LibraryFacts
from torchwheel_runtime.arch.model import BRANDS, Backend, runtime_major
from torchwheel_runtime.inspect.elf import Library, libraries_not_named, qualified_name
from torchwheel_runtime.text import join_names, quote, shorten
from torchwheel_runtime.validate.at_load import tag_floor
from torchwheel_runtime.validate.findings import Level
from torchwheel_runtime.versions import major_version, version_numbers

_NAMED = 3


Row = tuple[str, Level, str]
"""A finding of a gate, without the gate's name: the fact, the level and the place."""


def _error(found: str, where: str = "") -> Row:
    return found, "error", where


def _warning(found: str, where: str = "") -> Row:
    return found, "warning", where


def record(case: NamedCase) -> Iterator[Row]:
    """RECORD lists every file with its hash."""
    if fault := case.facts.faults.get("record"):
        yield _error(fault)


def content(case: NamedCase) -> Iterator[Row]:
    """No file runs whenever Python starts, and none takes the name of a module of Python."""
    facts = case.facts
    for name in ("entry_points", "sbom"):
        if name in facts.faults:
            yield _error(facts.faults[name])
    if facts.kind != "wheel":
        return
    for place in facts.at_start:
        yield _error("runs whenever Python starts", place)
    for name in facts.names:
        owner = owner_of(name, facts.named.name if facts.named else None, facts.metadata)
        if owner and name not in facts.at_start:
            level: Level = "error" if owner == OF_PYTHON else "warning"
            yield (f"has the name of {owner}", level, name)


def metadata(case: NamedCase) -> Iterator[Row]:
    """METADATA and WHEEL can be read, and agree with the file name."""
    facts, named = case.facts, case.facts.named
    for name in ("name", "wheel", "claims"):
        if name in facts.faults:
            yield _error(facts.faults[name])
    if fault := facts.faults.get("metadata"):
        # Where there are fields, what installers read is right.
        yield _warning(f"METADATA is not valid: {fault}") if facts.metadata else _error(fault)
    if named and facts.metadata:
        pairs = (
            ("Name", canonicalize_name(facts.metadata.name), named.name),
            ("Version", str(facts.metadata.version), str(named.version)),
        )
        for field, found, expected in pairs:
            if found != expected:
                yield _error(f"METADATA {field} is {found}, the file name says {expected}")
    if named and facts.wheel_tags is not None and facts.wheel_tags != named.tags:
        found, expected = (" ".join(sorted(map(str, t))) for t in (facts.wheel_tags, named.tags))
        yield _error(f"WHEEL has the tags {found}, the file name {expected}")
    if facts.purelib and facts.libraries:
        yield _error("WHEEL says Root-Is-Purelib: true, and there is machine code in it")


def gpu_code(case: NamedCase) -> Iterator[Row]:
    """All GPU code can be read, and is of the backend that the version names."""
    claims, libraries, named = case.claims, case.facts.libraries, case.facts.named
    for library in libraries:
        for fault in (library.problem, library.targets_problem):
            if fault:
                yield _error(f"cannot be read: {fault}", library.name)
        if library.targets and not any(target.is_code for target in library.targets):
            yield _warning("has PTX or empty modules, and no kernel in machine code", library.name)
    unread = any(library.problem or library.targets_problem for library in libraries)
    found = frozenset(backend for library in libraries for backend in library.backends)
    releases: dict[Backend, str | None] = {"cuda": claims.cuda, "rocm": claims.local.rocm}
    for backend, claimed in releases.items():
        others = found - {backend}
        # A requirement on CUDA's runtime may serve a library that is not in this wheel.
        if claimed and others and backend not in found:
            brand = BRANDS["rocm" if backend == "cuda" else "cuda"]
            yield _error(f"is for {BRANDS[backend]} {claimed}, has {brand} code")
        elif claimed and named and named.version.local and not (found or unread):
            # What calls CUDA's driver itself may need no kernel of its own.
            level: Level = "warning" if any(_DRIVER in lib.needed for lib in libraries) else "error"
            says = f"is for {BRANDS[backend]} {claimed}, has no GPU code"
            yield (says, level, "")
    if claims.local.cpu and found:
        yield _error("is for CPUs by its version, and has code for GPUs")


def _not_judged(case: NamedCase) -> Iterator[Row]:
    """A finding for each library that cannot be read: nothing is known of it, so no gate holds.

    Gate `gpu-code` says why.
    """
    for library in case.facts.libraries:
        if library.problem:
            yield _error("not judged: cannot be read", library.name)


def torch_symbols(case: NamedCase) -> Iterator[Row]:
    """Every torch that the wheel allows has every symbol that its libraries need."""
    yield from _not_judged(case)
    table = case.table
    for name, fit in case.torch.items():
        claims = _claims_of_library(case, name)
        known = f"torch {table.releases[0]} to {table.releases[-1]} of PyPI"
        lacking = dict(fit.lacking)
        claimed = [release for release in table.releases if _allows(claims, release)]
        if "2.6" in claimed and fit.strings and _is_for_another_2_6(claims):
            claimed.remove("2.6")
        if not claimed and _says_torch(claims):
            yield _warning(f"not judged: it is for another torch than {known}", name)
        elif fit.unknown:
            yield _error(f"needs {_names(fit.unknown)}, which no {known} has", name)
        if wrong := [release for release in claimed if release in lacking]:
            first = lacking[wrong[0]]
            yield _error(
                f"is for torch {join_names(wrong)} too, by {_range(claims)}, and "
                f"{_names((first,))} is not in {wrong[0]}",
                name,
            )
        claimed_strings = {True: "new", False: "old", None: None}[claims.local.new_strings]
        if claimed_strings and fit.strings and claimed_strings != fit.strings:
            yield _error(
                f"has the {fit.strings} std::string, and its version says {claimed_strings}", name
            )
    if case.torch and case.facts.kind != "library" and case.claims.torch is None:
        yield _warning("needs torch, and no Requires-Dist says which one")


def _claims_of_library(case: NamedCase, name: str) -> NamedClaims:
    """The claims about a library: in a universal wheel of ours each has a torch of its own."""
    part = case.facts.claims.part_of(name) if case.facts.claims else None
    if part is None or not part.torch_release:
        return case.claims
    own = SpecifierSet(part.needs.torch_range)
    local = dataclasses.replace(case.claims.local, torch=None)
    return dataclasses.replace(case.claims, torch=own, local=local)


def _is_for_another_2_6(claims: NamedClaims) -> bool:
    """Whether a wheel is for a torch 2.6 with the new std::string: PyPI's for x86_64 has the old.

    By the notes of the release, those for CUDA 12.6, ROCm 6.2.4, XPU and aarch64 have the new one.
    """
    local = claims.local
    aarch64 = bool(claims.platforms) and all(one.endswith("_aarch64") for one in claims.platforms)
    of_backend = claims.cuda == "12.6" or local.rocm == "6.2" or local.other == "xpu"
    return bool(local.new_strings) or of_backend or aarch64


def _says_torch(claims: NamedClaims) -> bool:
    return claims.torch is not None or claims.local.torch is not None


def _allows(claims: NamedClaims, release: str) -> bool:
    """Whether a wheel says that it is for a torch minor; not if it says nothing."""
    said = claims.local.torch_range
    torch = claims.torch if said is None else SpecifierSet(said)
    return torch is not None and any(torch.contains(f"{release}.{patch}") for patch in range(3))


def _range(claims: NamedClaims) -> str:
    if claims.local.torch:
        return "its version"
    return f"torch{claims.torch}" if str(claims.torch) else "a requirement of any torch"


def _names(symbols: tuple[str, ...]) -> str:
    names = sorted({shorten(qualified_name(symbol)) for symbol in symbols})
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return join_names(names[:_NAMED]) + more


_FOR_ONE_PYTHON = re.compile(r"\.(?:cpython-|cp)(\d)(\d+t?)-([\w-]+)\.so$", re.ASCII)
_LIMITED = ".abi3.so"
_OF_FREE_THREADED = "_Py_MergeZeroLocalRefcount"
"""What counts references in free-threaded Pythons alone; Py_DECREF of their headers calls it."""


def python_abi(case: NamedCase) -> Iterator[Row]:
    """Libraries are for the Pythons that the tags name: the limited API where these are several."""
    claims = case.claims
    if not claims.abis:
        return
    yield from _not_judged(case)
    for library in case.facts.libraries:
        match = _FOR_ONE_PYTHON.search(library.base_name)
        own = f"cp{match[1]}{match[2]}" if match else None
        several = "abi3" in claims.abis or "none" in claims.abis
        tag = "-".join((".".join(claims.interpreters), ".".join(claims.abis)))
        free_threaded = all(abi.endswith("t") for abi in claims.abis)
        if library.base_name.endswith(_LIMITED) and free_threaded:
            yield _error(f"no free-threaded Python imports it, as {tag} is", library.name)
        if _OF_FREE_THREADED in library.python and not any(a.endswith("t") for a in claims.abis):
            yield _error(f"is for free-threaded Pythons, and the wheel for {tag}", library.name)
        # A free-threaded Python, cp314t, has the interpreter's tag cp314 and an ABI of its own.
        if own and (several or own not in claims.abis):
            # A library without symbols of Python may be loaded by its path.
            module = library.python or any(name.startswith(MODULE) for name in library.exports)
            level: Level = "error" if module else "warning"
            yield (f"only {own} imports it, and the wheel is for {tag}", level, library.name)
        if several and (outside := outside_limited_api(library.python)):
            yield _error(
                f"needs {_names(tuple(outside))} of CPython, which is not in the limited API",
                library.name,
            )
        for late in added_later(library.python, claims.interpreters if several else ()):
            yield _error(f"{late}, and the wheel is for {tag}", library.name)


_DRIVER = "libcuda.so.1"


def runtime(case: NamedCase) -> Iterator[Row]:
    """Every library that is needed is in the wheel, of the system, or torch's and its toolkit's."""
    yield from _not_judged(case)
    libraries = case.facts.libraries
    own = {name for lib in libraries for name in (lib.soname, lib.base_name) if name}
    for library in libraries:
        musl = _MUSL if _is_for_musl(case) else ()
        wanted = (name for name in library.needed if name not in own and not name.startswith(musl))
        if outside := [name for name in wanted if not _is_provided(name)]:
            yield _error(
                f"needs {join_names(outside)}: not in the wheel, of torch or in a manylinux policy",
                library.name,
            )
        if fault := unnamed_fault(library):
            yield _error(fault, library.name)
        if _DRIVER in library.needed:
            yield _warning(f"needs {_DRIVER}: it cannot be loaded where no driver is", library.name)
        if copied := _copy_of(case, library):
            level: Level = "error" if copied.startswith(_OF_TORCH) else "warning"
            yield f"is a copy of {copied}: a process would have it twice", level, library.name
        yield from _runtime_findings(case, library)


_MUSL = ("libc.musl-",)


def _is_for_musl(case: NamedCase) -> bool:
    return any(platform.startswith("musllinux") for platform in case.claims.platforms)


def unnamed_fault(library: Library) -> str | None:
    """What the loader does about versions of libraries that are not NEEDED; None without any."""
    if not (unnamed := libraries_not_named(library.needed, library.undefined)):
        return None
    return (
        f"needs versions of symbols of {', '.join(unnamed)}, which it does not name among those "
        "that it needs: the loader ends the process"
    )


_HASH = re.compile(r"[-.][0-9a-f]{6,}(?=\.so)", re.ASCII)
_OF_TORCH = ("libtorch", "libc10", "libshm.")
_COPIED_BY_ALL = "libgomp."
"""A copy that does little harm."""


def _copy_of(case: NamedCase, library: LibraryFacts) -> str | None:
    """The library of torch or of its toolkit that one in a wheel is, by its name."""
    named, libraries = case.facts.named, case.facts.libraries
    uses_torch = case.torch or case.claims.torch is not None
    if not uses_torch or (named and named.name == "torch"):
        return None
    name = _HASH.sub("", library.base_name)
    patterns = read("providers.json")["patterns"]
    # A runtime is told of at the library that needs it.
    needed = {one.library for lib in libraries for one in lib.runtimes if one.how == "grafted"}
    if name.startswith(_COPIED_BY_ALL) or {library.soname, library.base_name} & needed:
        return None
    return name if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) else None


def _is_provided(name: str) -> bool:
    table = read("runtime.json")
    system = (*table["system"]["needed"], *table["manylinux"]["needed"])
    patterns = (*system, *read("providers.json")["patterns"])
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _runtime_findings(case: NamedCase, library: LibraryFacts) -> Iterator[Row]:
    for found in library.runtimes:
        claimed = case.claims.cuda if found.backend == "cuda" else case.claims.local.rocm
        if found.how == "grafted":
            yield _warning(f"needs {found.library}: a second runtime beside torch's", library.name)
        major = runtime_major(found.backend, claimed or "")
        if claimed and found.version and major_version(found.version) != major:
            yield _error(f"needs {found.library}, and the wheel is for {claimed}", library.name)


def run_paths(case: NamedCase) -> Iterator[Row]:
    """The loader looks for libraries in the installed packages alone."""
    yield from _not_judged(case)
    for library in case.facts.libraries:
        depth = len(PurePosixPath(library.name).parts) - 1
        for text in library.run_paths:
            if fault := _fault_of_path(text, depth, case.facts.kind == "library"):
                # Root alone can put a library into a folder of the system.
                level: Level = "warning" if text.startswith(_OF_ROOT) else "error"
                yield (f"{quote(text)} {fault}", level, library.name)


_OF_ROOT = ("/usr/", "/opt/", "/lib/", "/lib64/")


def _fault_of_path(text: str, depth: int, alone: bool) -> str | None:
    first, *rest = text.split("/")
    if first not in ("$ORIGIN", "${ORIGIN}"):
        return "is a folder of the machine that built it, or of nobody" if text else "is empty"
    for part in rest:
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0 and not alone:
            return "leads out of the folder of packages"
    return None


def platform_tag(case: NamedCase) -> Iterator[Row]:
    """The platform tags name a machine and a C library that the libraries can run with."""
    platforms = case.claims.platforms
    if not platforms or not case.facts.libraries:
        return
    if platforms == ("any",):
        yield _error("the tag says any platform; there is machine code in it")
        return
    if all(platform.startswith("linux_") for platform in platforms):
        yield _warning(f"{join_names(platforms)} names no C library: no index takes it")
    yield from _not_judged(case)
    floor = tag_floor(platforms)
    for library in case.facts.libraries:
        matches = any(p.endswith(f"_{library.machine}") for p in platforms)
        if library.machine and not matches:
            yield _error(f"is for {library.machine}, the tag {join_names(platforms)}", library.name)
        glibc = library.versions.get("GLIBC")
        if floor and glibc and version_numbers(glibc) > version_numbers(floor):
            yield _error(f"needs glibc {glibc}, the tag promises {floor}", library.name)
        if glibc and _is_for_musl(case) and floor is None:
            yield _error(f"needs glibc {glibc}, the tag promises musl", library.name)
        newest = _newest_libstdcxx(floor) if floor else None
        cxx = library.versions.get("GLIBCXX") if _LIBSTDCXX in library.needed else None
        if cxx and newest and version_numbers(cxx) > version_numbers(newest):
            # The libstdc++ of conda, and of others who bring their own, is newer.
            promises = f"the tag promises {newest}, that of glibc {floor}"
            yield _warning(f"needs libstdc++ GLIBCXX_{cxx}, {promises}", library.name)
        match = _FOR_ONE_PYTHON.search(library.base_name)
        if matches and match and not _is_imported(match[3], platforms):
            found = f"only a Python for {match[3]} imports it, the tag is {join_names(platforms)}"
            yield _error(found, library.name)


_LIBSTDCXX = "libstdc++.so.6"
_TRIPLET = re.compile(r"(x86_64|aarch64)-linux-(gnu|musl)")


def _newest_libstdcxx(glibc: str) -> str | None:
    """The newest version of libstdc++'s symbols on each system of a manylinux policy."""
    table: dict[str, str] = read("runtime.json")["libstdcxx"]["newest"]
    numbers = version_numbers(glibc)
    return next((table[one] for one in reversed(table) if version_numbers(one) <= numbers), None)


def _is_imported(triplet: str, platforms: Sequence[str]) -> bool:
    """Whether a Python of the platforms imports a library whose name has a triplet.

    Old Pythons for musl have the triplet of glibc's.
    """
    match = _TRIPLET.fullmatch(triplet)
    if match is None:
        return True
    libc = "musllinux" if match[2] == "musl" else ""
    return any(one.endswith(f"_{match[1]}") and one.startswith(libc) for one in platforms)
