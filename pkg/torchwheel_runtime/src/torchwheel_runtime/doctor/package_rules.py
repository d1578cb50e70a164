"""Findings about the installation and its native libraries: what is damaged or missing."""

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags, sys_tags
from packaging.utils import canonicalize_name

from torchwheel_runtime.doctor.case import Case, Package
from torchwheel_runtime.doctor.dist_info import replace_command
from torchwheel_runtime.doctor.native import NativeLibrary, is_of_torch
from torchwheel_runtime.doctor.remedies import (
    OF_DRIVER,
    OLD_STRING,
    comes_with_other_torch,
    is_idle,
    is_of_gpu,
)
from torchwheel_runtime.inspect.elf import qualified_name
from torchwheel_runtime.text import join_names, quote
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.validate.torch_rules import OF_ITS_AUTHORS, install_command
from torchwheel_runtime.versions import version_numbers


def not_installed(case: Case) -> Iterator[Finding]:
    """No distribution and no module has the name."""
    package = case.package
    if package.info or package.imported.how != "not found":
        return
    near = f"; did you mean {' or '.join(map(quote, package.near))}?" if package.near else ""
    fix = (
        f"`torchwheel doctor {package.near[0]}`"
        if package.near
        else f"{install_command(shlex.quote(package.name))}, with the index that its authors "
        "name; what another has of this name may be a stranger's"
    )
    yield Finding("installed", f"not installed in {sys.prefix}{near}", fix=fix)


def installed_twice(case: Case) -> Iterator[Finding]:
    """Two versions are installed, e.g. after a broken upgrade."""
    package = case.package
    if package.info and package.copies:
        versions = join_names((package.info.version, *package.copies))
        yield Finding(
            "installed-once",
            f"installed more than once: {versions}",
            fix=f"`pip uninstall --yes {package.name}` until it is gone, then install it again",
        )


def incomplete(case: Case) -> Iterator[Finding]:
    """Files are missing or cut short, or the metadata is malformed."""
    package = case.package
    for path in package.info.irregular if package.info else ():
        says = f"the installation is damaged: {irregular_text(path)}"
        yield Finding("complete", says, fix=replace_command(path.parent))
    listed = package.info.problems if package.info else ()
    for problem in (*listed, *(native.problem for native in package.natives)):
        if problem:
            says = f"the installation is damaged: {problem}"
            yield Finding("complete", says, fix=reinstall_command(package))


def shadowed(case: Case) -> Iterator[Finding]:
    """Another folder of that name is first on the path, e.g. a checkout."""
    package, file = case.package, case.package.imported.file
    if package.info is None or package.root is None or file is None:
        return
    installed = any(path.parts[0].split(".")[0] == package.module for path in package.info.files)
    if installed and not file.is_relative_to(package.root):
        yield Finding(
            "shadowed",
            f"Python imports {package.module} from {file.parent}, not from {package.root}, where "
            "it is installed",
            fix=f"run Python elsewhere, or take {file.parents[1]} off the path (PYTHONPATH)",
        )


def wrong_python(case: Case) -> Iterator[Finding]:
    """The wheel is for another Python."""
    package = case.package
    tags = package.info.tags if package.info else frozenset()
    here = {(tag.interpreter, tag.abi) for tag in tags_of(case.machine.python)}
    if tags and here.isdisjoint((tag.interpreter, tag.abi) for tag in tags):
        supported = join_names(sorted({f"{tag.interpreter}-{tag.abi}" for tag in tags}))
        yield Finding(
            "python",
            f"the wheel is for {supported}; this is Python {case.machine.python}",
            fix=f"with this Python's own pip: {reinstall_command(package, 'python -m pip')}",
        )


def tags_of(python: str, platforms: Sequence[str] = ("any",)) -> Iterable[Tag]:
    """The tags of wheels that a Python takes: this one, or a CPython of another minor."""
    numbers = version_numbers(python)[:2]
    if numbers == sys.version_info[:2]:
        return sys_tags()
    interpreter = "cp" + "".join(map(str, numbers))
    return (
        *cpython_tags(numbers, platforms=platforms),
        *compatible_tags(numbers, interpreter, platforms),
    )


def reinstall_command(package: Package, pip: str = "pip") -> str:
    """The command that installs the same version again."""
    install = f"{pip} install --force-reinstall --no-deps"
    if package.info and package.info.ours:
        return f"`{install} {OF_ITS_AUTHORS} {package.name}=={package.info.version}`"
    return f"`{install} ORIGIN`, the file or address that {package.title} was installed from"


def irregular_text(path: Path) -> str:
    """What is said of a pipe or a device in a dist-info folder."""
    return (
        f"{quote(f'{path.parent.name}/{path.name}')} is no regular file: its reader may never end"
    )


_FAULTHANDLER = "-X faulthandler "


def missing_dependency(case: Case) -> Iterator[Finding]:
    """A module that the package imports is not installed."""
    package = case.package
    for module in package.imported.missing_modules:
        name = module.partition(".")[0]
        # What Python itself has is in no index: something lies in its way.
        if name not in (package.module, "torch", *sys.stdlib_module_names):
            says = f"{package.module} imports {name}, which is not installed"
            yield Finding("dependency", says, fix=_dependency_fix(package, name))


def _dependency_fix(package: Package, module: str) -> str:
    if package.info and canonicalize_name(module) in package.info.requires:
        return f"`pip install {module}`"
    return (
        f"`pip check` names what {package.name} requires and lacks; its authors know what has "
        f"{module}: a distribution of that name may be a stranger's"
    )


def failed_import(case: Case) -> Iterator[Finding]:
    """The import raised, crashed or hung."""
    package, done = case.package, case.package.imported
    where = f" ({done.where})" if done.where else ""
    if done.how in ("imported", "not tried") or (done.how == "not found" and package.info is None):
        return
    if _loaded_before_torch(case):
        says = f"{package.module} loads its library before torch is imported{where}"
        yield Finding("import-order", says, fix="`import torch` first")
        return
    words = join_names(done.words)
    says, options = {
        # The error and its first cause.
        "raised": (
            f"raises {', from '.join(dict.fromkeys((*done.words[:1], *done.words[-1:])))}",
            "",
        ),
        "killed": (f"crashes Python with {words}", _FAULTHANDLER),
        "left": (f"ends Python with {words}", _FAULTHANDLER),
        "hung": (f"did not end in {words}", _FAULTHANDLER),
        "not found": ("finds no such module", ""),
    }[done.how]
    hint = "; --seconds gives it more time" if done.how == "hung" else ""
    if done.how == "not found" and package.info and package.info.kind != "wheel":
        hint = "; `torchwheel doctor MODULE` looks at a module of another name"
    yield Finding(
        "import",
        f"import {package.module} {says}{where}",
        fix=f"`python {options}-c 'import {package.module}'` shows more, for the authors of "
        f"{package.name}{hint}",
    )


def _loaded_before_torch(case: Case) -> bool:
    """Whether the loader refused a library because torch was not imported before it."""
    torch, imported = case.machine.torch, case.package.imported
    if torch is None or imported.torch or not imported.unloaded:
        return False
    refused = (native for native in case.package.natives if not native.loaded)
    return any((torch.folder / "lib" / name).is_file() for lib in refused for name in lib.needed)


_MAX_NAMES = 2


def libraries_to_judge(package: Package) -> tuple[NativeLibrary, ...]:
    """The loaded libraries, or all of a package that was not imported; else the one to explain.

    That is one that the loader's messages name, else the one with the fewest faults.
    """
    if package.imported.how == "not tried":
        return package.natives
    if package.imported.how == "imported" and package.loaded:
        return package.loaded
    idle = [native for native in package.natives if not native.loaded]
    named = [native for native in idle if _is_named(native, " ".join(package.imported.unloaded))]
    return tuple(sorted(named or idle, key=fault_count)[:1])


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
                fix="install NVIDIA's driver"
                if soname in OF_DRIVER
                else f"install what has {soname}, or add its folder to LD_LIBRARY_PATH",
                of_torch=of_torch,
            )


def old_libraries(case: Case) -> Iterator[Finding]:
    """A library of the system is too old for it, e.g. lacks GLIBCXX_3.4.32."""
    rebuild = rebuild_command(case.package)
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
                fix=f"build it again, linked with torch: {rebuild_command(case.package)}",
            )
        elif of_torch := set(filter(is_of_torch, names)):
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
                f"{rebuild_command(case.package)}",
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


def fault_count(native: NativeLibrary) -> int:
    """How much the loader misses for a library."""
    if native.links is None:
        return 1 << 30
    links = native.links
    return len(links.absent) * 100 + len(links.outdated) * 100 + len(links.undefined)


def _first_names(names: frozenset[str] | set[str]) -> str:
    shown = sorted({qualified_name(name) for name in names}, key=lambda name: (len(name), name))
    more = f" and {len(shown) - _MAX_NAMES} more" if len(shown) > _MAX_NAMES else ""
    return f"{join_names(shown[:_MAX_NAMES])}{more}"


def rebuild_command(package: Package) -> str:
    """The command that builds the package from source against the installed torch."""
    install = "pip install --force-reinstall --no-deps --no-build-isolation"
    if package.info and package.info.ours:
        return f"`{install} {OF_ITS_AUTHORS} --no-binary {package.name} {package.name}`"
    return f"`{install} SOURCE`"
