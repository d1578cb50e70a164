"""Findings about native libraries: what they need that this system lacks."""

from collections.abc import Iterator

from torchwheel_runtime.doctor.case import Case, Package
from torchwheel_runtime.doctor.installation_rules import reinstall_command
from torchwheel_runtime.doctor.native import NativeLibrary
from torchwheel_runtime.doctor.remedies import (
    OLD_STRING,
    comes_with_other_torch,
    is_idle,
    is_of_gpu,
)
from torchwheel_runtime.inspect.elf import SHIMS, is_cxx, qualified_name
from torchwheel_runtime.text import join_names
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.validate.torch_rules import install_command

_MAX_NAMES = 2


def libraries_to_judge(package: Package) -> tuple[NativeLibrary, ...]:
    """The loaded libraries; if none is loaded, the one to explain.

    That is one that the loader's messages name, else the one with the fewest faults.
    """
    if package.imported.how == "imported" and package.loaded:
        return package.loaded
    idle = [native for native in package.natives if not native.loaded]
    named = [native for native in idle if _is_named(native, " ".join(package.imported.unloaded))]
    return tuple(sorted(named or idle, key=_fault_count)[:1])


def wrong_machine(case: Case) -> Iterator[Finding]:
    """The library is for another processor."""
    for native in _unloaded_libraries(case):
        if native.machine and not case.machine.platform.endswith(native.machine):
            yield Finding(
                "machine",
                f"{native.name} is for {native.machine}; this is {case.machine.platform}",
                fix=f"install the wheel of {case.package.name} for this machine",
            )


def missing_libraries(case: Case) -> Iterator[Finding]:
    """A library that it needs is not installed."""
    for native in _unloaded_libraries(case):
        for soname, asker in sorted(native.links.absent.items() if native.links else ()):
            of_torch = comes_with_other_torch(soname, case.machine.torch)
            if of_torch and is_idle(case):
                continue
            who = native.name if asker == native.path.name else f"{asker}, for {native.name},"
            yield Finding(
                "library",
                f"{who} asks for {soname}, which is not on this system",
                fix=f"install what has {soname}, or add its folder to LD_LIBRARY_PATH",
                of_torch=of_torch,
            )


def old_libraries(case: Case) -> Iterator[Finding]:
    """A library of the system is too old for it, e.g. lacks GLIBCXX_3.4.32."""
    rebuild = _rebuild_command(case.package)
    for native in _unloaded_libraries(case):
        for path, version in native.links.outdated if native.links else ():
            # The rule "glibc" reports the C library.
            if not version.startswith("GLIBC_"):
                yield Finding(
                    "system-library",
                    f"{native.name} asks for {version}, which {path} has not: it is older",
                    fix=f"install a newer {path.name}, or build it here: {rebuild}",
                )


def missing_symbols(case: Case) -> Iterator[Finding]:
    """No library defines a symbol that it needs: mostly it was built for another torch."""
    torch = case.machine.torch
    for native in _unloaded_libraries(case):
        names = native.links.undefined if native.links else frozenset[str]()
        if torch and torch.backend != native.backend and is_idle(case):
            names = frozenset(name for name in names if not is_of_gpu(name))
        if not names:
            continue
        if elsewhere := native.links.elsewhere if native.links else None:
            yield Finding(
                "symbols",
                f"{native.name} uses {_first_names(elsewhere)}, which torch has, and names none of "
                "torch's libraries (DT_NEEDED), so the loader does not look there",
                fix=f"build it again, linked with torch: {_rebuild_command(case.package)}",
            )
        elif of_torch := {name for name in names if is_cxx(name) or name.startswith(SHIMS)}:
            version = torch.version if torch else "?"
            why = "another torch"
            if torch and not torch.old_abi and any(map(OLD_STRING.search, of_torch)):
                why += ", one with the strings of before GCC 5 (_GLIBCXX_USE_CXX11_ABI=0)"
            named = _first_names(of_torch)
            yield Finding(
                "symbols",
                f"{native.name} was built for {why}: torch {version} has no {named}",
                fix=f"install the wheel for torch {torch.minor if torch else '?'} "
                f"({install_command(case.package.name)} picks it), or build it here: "
                f"{_rebuild_command(case.package)}",
                of_torch=True,
            )
        else:
            yield Finding(
                "symbols",
                f"{native.name} uses {_first_names(names)}, which no library that it names defines",
                fix=reinstall_command(case.package),
            )


def unread_code(case: Case) -> Iterator[Finding]:
    """There is a GPU, and nobody knows whether the library has code for it."""
    for native in libraries_to_judge(case.package) if case.machine.gpus else ():
        if native.code_problem and not native.code:
            yield Finding(
                "gpu-code",
                f"the GPU code of {native.name} cannot be read: {native.code_problem}",
                fix="run one of its operators on the GPU, which shows whether there is code for it",
            )


def _unloaded_libraries(case: Case) -> tuple[NativeLibrary, ...]:
    """The libraries that are not loaded and have to be explained."""
    return tuple(native for native in libraries_to_judge(case.package) if not native.loaded)


def _is_named(native: NativeLibrary, messages: str) -> bool:
    """Whether the loader's messages name the library, or a file or symbol that it asks for."""
    links = native.links
    asked = (*links.absent, *links.undefined) if links else ()
    return any(name in messages for name in (native.path.name, *asked))


def _fault_count(native: NativeLibrary) -> int:
    if native.links is None:
        return 1 << 30
    links = native.links
    return len(links.absent) * 100 + len(links.outdated) * 100 + len(links.undefined)


def _first_names(names: frozenset[str] | set[str]) -> str:
    shown = sorted({qualified_name(name) for name in names}, key=lambda name: (len(name), name))
    more = f" and {len(shown) - _MAX_NAMES} more" if len(shown) > _MAX_NAMES else ""
    return f"{join_names(shown[:_MAX_NAMES])}{more}"


def _rebuild_command(package: Package) -> str:
    """The command that builds the package from source against the installed torch."""
    return (
        f"`pip install --force-reinstall --no-deps --no-build-isolation --no-binary "
        f"{package.name} {package.name}`"
    )
