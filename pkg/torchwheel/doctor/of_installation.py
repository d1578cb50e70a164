"""Findings of the installation: is the package there, whole, and the one that is imported."""

import shlex
import sys
from collections.abc import Iterator

from packaging.tags import sys_tags

from torchwheel.doctor.model import Case, Finding, Package
from torchwheel.shown import listed, quoted


def there(case: Case) -> Iterator[Finding]:
    """Neither a distribution nor a module has the name."""
    package = case.package
    if package.info or package.imported.how != "not found":
        return
    near = f"; did you mean {' or '.join(map(quoted, package.near))}?" if package.near else ""
    name = package.near[0] if package.near else package.name
    mend = (
        f"`torchwheel doctor {name}`"
        if package.near
        else f"`pip install {shlex.quote(package.name)}`"
    )
    yield Finding("installed", f"not installed in {sys.prefix}{near}", mend)


def once(case: Case) -> Iterator[Finding]:
    """A broken upgrade leaves the dist-info of another version behind."""
    package = case.package
    if package.info and package.copies:
        versions = listed((package.info.version, *package.copies))
        yield Finding(
            "installed-once",
            f"installed more than once: {versions}",
            f"`pip uninstall --yes {package.name}` until it is gone, then install it again",
        )


def whole(case: Case) -> Iterator[Finding]:
    """Files are gone or cut short, or the metadata is bent."""
    package = case.package
    if package.info:
        for problem in package.info.problems:
            yield Finding("whole", f"the installation is damaged: {problem}", again(package))
    for native in package.natives:
        if native.problem:
            yield Finding("whole", f"the installation is damaged: {native.problem}", again(package))


def not_shadowed(case: Case) -> Iterator[Finding]:
    """A folder of the same name comes first on the path, e.g. a checkout in the current folder."""
    package, file = case.package, case.package.imported.file
    if package.info is None or package.root is None or file is None:
        return
    installed = any(path.parts[0].split(".")[0] == package.module for path in package.info.files)
    if installed and not file.is_relative_to(package.root):
        yield Finding(
            "shadowed",
            f"Python imports {package.module} from {file.parent}, not from {package.root}, where "
            "it is installed",
            f"run Python elsewhere, or take {file.parents[1]} off the path (PYTHONPATH)",
        )


def python(case: Case) -> Iterator[Finding]:
    """The wheel is for another Python."""
    package = case.package
    tags = package.info.tags if package.info else frozenset()
    here = {(tag.interpreter, tag.abi) for tag in sys_tags()}
    if tags and here.isdisjoint((tag.interpreter, tag.abi) for tag in tags):
        wanted = listed(sorted({f"{tag.interpreter}-{tag.abi}" for tag in tags}))
        yield Finding(
            "python",
            f"the wheel is for {wanted}; this is Python {case.machine.python}",
            f"with this Python's own pip: {again(package, 'python -m pip')}",
        )


def again(package: Package, pip: str = "pip") -> str:
    """What installs the very same thing again."""
    wanted = f"{package.name}=={package.info.version}" if package.info else package.name
    return f"`{pip} install --force-reinstall --no-deps {wanted}`"
