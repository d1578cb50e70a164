"""Findings about the installation and the import of a package."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.tags import sys_tags

from torchwheel_runtime.doctor.case import Case, Package
from torchwheel_runtime.inspect.wheel_files import replace_command
from torchwheel_runtime.text import join_names, quote
from torchwheel_runtime.validate.findings import Finding


def not_installed(case: Case) -> Iterator[Finding]:
    """No distribution and no module has the name."""
    package = case.package
    if package.info or package.imported.how != "not found":
        return
    near = f"; did you mean {' or '.join(map(quote, package.near))}?" if package.near else ""
    name = package.near[0] if package.near else package.name
    fix = (
        f"`torchwheel doctor {name}`"
        if package.near
        else f"`pip install {shlex.quote(package.name)}`"
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
    if package.info:
        for path in package.info.irregular:
            says = f"the installation is damaged: {irregular_text(path)}"
            yield Finding("complete", says, fix=replace_command(path.parent))
        for problem in package.info.problems:
            yield Finding(
                "complete",
                f"the installation is damaged: {problem}",
                fix=reinstall_command(package),
            )
    for native in package.natives:
        if native.problem:
            yield Finding(
                "complete",
                f"the installation is damaged: {native.problem}",
                fix=reinstall_command(package),
            )


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
    here = {(tag.interpreter, tag.abi) for tag in sys_tags()}
    if tags and here.isdisjoint((tag.interpreter, tag.abi) for tag in tags):
        supported = join_names(sorted({f"{tag.interpreter}-{tag.abi}" for tag in tags}))
        yield Finding(
            "python",
            f"the wheel is for {supported}; this is Python {case.machine.python}",
            fix=f"with this Python's own pip: {reinstall_command(package, 'python -m pip')}",
        )


def reinstall_command(package: Package, pip: str = "pip") -> str:
    """The command that installs the same version again."""
    requirement = f"{package.name}=={package.info.version}" if package.info else package.name
    return f"`{pip} install --force-reinstall --no-deps {requirement}`"


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
            yield Finding("dependency", says, fix=f"`pip install {name}`")


def failed_import(case: Case) -> Iterator[Finding]:
    """The import raised, crashed or hung."""
    package, done = case.package, case.package.imported
    where = f" ({done.where})" if done.where else ""
    if done.how == "imported" or (done.how == "not found" and package.info is None):
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
    yield Finding(
        "import",
        f"import {package.module} {says}{where}",
        fix=f"`python {options}-c 'import {package.module}'` shows more, for the authors of "
        f"{package.name}" + ("; --seconds gives it more time" if done.how == "hung" else ""),
    )


def _loaded_before_torch(case: Case) -> bool:
    """Whether the loader refused a library because torch was not imported before it."""
    torch, imported = case.machine.torch, case.package.imported
    if torch is None or imported.torch or not imported.unloaded:
        return False
    refused = (native for native in case.package.natives if not native.loaded)
    return any((torch.folder / "lib" / name).is_file() for lib in refused for name in lib.needed)
