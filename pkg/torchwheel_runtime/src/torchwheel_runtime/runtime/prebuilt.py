"""Checks, finds and loads the prebuilt library of an installed extension.

For an ordinary extension (torch/extension.h), `load_module` has its module built if none fits.
"""

import csv
import importlib.machinery
import importlib.util
import os
import sys
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from torchwheel_runtime.builder.extension import LIBRARIES, Extension
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.runtime.status import (
    MODE_VARIABLE,
    Refusal,
    may_build,
    may_load,
    read_mode,
)

if TYPE_CHECKING:  # an import asks for no GPU, and reads no claims
    from torchwheel_runtime.arch.devices import Gpu
    from torchwheel_runtime.arch.model import Arch, Backend
    from torchwheel_runtime.claims import Claims
    from torchwheel_runtime.loadable import LoadableFile


def installed_claims(distribution: str) -> "Claims | None":
    """The claims of an installed wheel; None without claims, e.g. for a source tree."""
    from torchwheel_runtime import claims  # noqa: PLC0415 - costs nothing until needed

    try:
        text = metadata.distribution(distribution).read_text(claims.FILE)
    except metadata.PackageNotFoundError:
        return None
    return claims.loads(text, f"{distribution}: {claims.FILE}") if text else None


def load_problem(extension: Extension, *, ask_driver: bool) -> str | None:
    """Why the prebuilt library must not be loaded, and what to do; None if it may be.

    With `ask_driver` the driver and the visible GPUs count too. To ask takes longer than the
    import, and must not happen before a fork. Torch and the C library cost microseconds.
    """
    claimed = installed_claims(extension.package)
    if claimed is None:
        return None
    from torchwheel_runtime.arch import devices  # noqa: PLC0415 - for installed wheels alone
    from torchwheel_runtime.machine import probe  # noqa: PLC0415
    from torchwheel_runtime.machine.facts import split_absent  # noqa: PLC0415
    from torchwheel_runtime.machine.torch import find_torch  # noqa: PLC0415
    from torchwheel_runtime.validate.at_load import load_findings  # noqa: PLC0415
    from torchwheel_runtime.validate.findings import drop_ignored  # noqa: PLC0415

    asked = claimed.backend if ask_driver else None
    findings = load_findings(
        claimed.needs,
        split_absent(find_torch())[0],
        probe.glibc_version(),
        split_absent(probe.find_driver(asked))[0] if asked else None,
        devices.visible_gpus(asked).gpus if asked else (),
        package=extension.package,
    )
    blocking = [finding for finding in drop_ignored(findings) if finding.blocks]
    return "; ".join(finding.line for finding in blocking) or None


def find_libraries(extension: Extension, package: Path) -> tuple[Path, ...]:
    """The prebuilt libraries of an installed package, and its extension module for this Python."""
    return (*sorted((package / LIBRARIES).glob("*.so")), *module_files(extension, package))


def has_parts(package: Path) -> bool:
    """Whether an installed package has the libraries of a universal wheel."""
    return (package / LIBRARIES / "front_end").is_dir()


def refusal_of(
    extension: Extension, libraries: Sequence[Path], *, ask_driver: bool
) -> Refusal | None:
    """Why none of these prebuilt libraries may be loaded; None if one may. Never raises."""
    if not libraries:
        return Refusal("prebuilt", "none in this installation", fault=False)
    try:
        problem = load_problem(extension, ask_driver=ask_driver)
    except Exception as error:  # missing facts must not end an import or a call
        problem = reason_of(error)
    return Refusal("prebuilt", problem) if problem else None


def load_first(
    extension: Extension, package: Path, libraries: Sequence[Path]
) -> tuple[Path | None, ModuleType | None, tuple[Refusal, ...]]:
    """Load the first of the libraries that this torch accepts. Never raises.

    Returns:
        The library, its module if it has one, and why other libraries were refused.
    """
    refused: list[Refusal] = []
    for library in libraries:
        try:
            module = _load_one(extension, library, package)
        except Exception as error:  # any failure: other libraries are left
            refused.append(Refusal("prebuilt", f"{library.name}: {reason_of(error)}"))
        else:
            return library, module, tuple(refused)
    return None, None, tuple(refused)


def module_files(extension: Extension, package: Path) -> list[Path]:
    """The files of the extension module for this Python."""
    if extension.module is None:
        return []
    name = extension.module.name.rpartition(".")[2]
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    return [path for suffix in suffixes if (path := package / f"{name}{suffix}").is_file()]


def _load_one(extension: Extension, file: Path, package: Path) -> ModuleType | None:
    module = extension.module.name if extension.module and file.parent == package else None
    if module and module in sys.modules:
        return sys.modules[module]
    library = open_installed(extension.package, file)
    if module:
        return import_from(module, library)
    load_library(library)
    return None


def open_installed(distribution: str, file: Path) -> "LoadableFile":
    """The open library of an installed wheel, with the hash that the wheel's RECORD states.

    RECORD lists no library of a source tree. It is opened all the same, so that others cannot
    change what is loaded.

    Raises:
        OSError: it cannot be opened.
        TorchwheelError: it is not the one that was installed.
    """
    from torchwheel_runtime.files import sha256_of  # noqa: PLC0415 - for a library alone
    from torchwheel_runtime.loadable import open_loadable  # noqa: PLC0415

    library = open_loadable(file)
    if expected := _recorded_sha256(distribution, file):
        with library.open() as opened:
            found = sha256_of(opened)
        if found != expected:
            raise TorchwheelError(replaced_text(expected, found, distribution))
    return library


def _recorded_sha256(distribution: str, file: Path) -> str | None:
    """The hash of an installed file by its wheel's RECORD; None if that does not list it."""
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    try:
        lines = (installed.read_text("RECORD") or "").splitlines()
        for row in csv.reader(line for line in lines if file.name in line):
            listed = os.path.realpath(str(installed.locate_file(row[0])))
            if listed == os.path.realpath(file) and row[1].startswith("sha256="):
                return urlsafe_b64decode(row[1].removeprefix("sha256=") + "=").hex()
    except (csv.Error, ValueError, IndexError) as error:
        raise TorchwheelError(
            f"RECORD: expected file names and hashes, found: {error}; reinstall {distribution}"
        ) from error
    return None


def replaced_text(expected: str, found: str, package: str) -> str:
    """What is wrong with a library of an installed wheel that has another SHA-256, and the fix."""
    return (
        f"expected the file that was installed (sha256 {expected[:8]}…), found another "
        f"({found[:8]}…); reinstall {package}"
    )


def import_from(name: str, library: "LoadableFile") -> ModuleType:
    """Import a verified extension module, under that name."""

    def import_by(path: str) -> ModuleType:
        loader = importlib.machinery.ExtensionFileLoader(name, path)
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        if spec is None:
            raise ImportError(f"{path}: no extension module of this Python")
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        module.__file__ = spec.origin = str(library.path)
        return module

    sys.modules[name] = module = library.load_by(import_by)
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)  # as the statement `import` does
    return module


def gpus_of_torch(backend: "Backend") -> "tuple[Gpu, ...]":
    """The GPUs that torch uses; () if it has started none, because this must not start one."""
    import torch  # noqa: PLC0415 - see load_library

    from torchwheel_runtime.arch.devices import Gpu  # noqa: PLC0415 - not for an import
    from torchwheel_runtime.arch.model import parse  # noqa: PLC0415

    if not torch.cuda.is_initialized():
        return ()
    found = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        rocm = backend == "rocm"
        arch = facts.gcnArchName.partition(":")[0] if rocm else f"{facts.major}.{facts.minor}"
        found.append(Gpu(index, facts.name, parse(arch)))
    return tuple(found)


def archs_of_torch() -> "tuple[Arch, ...]":
    """The archs that torch's own kernels are for; () if it does not say."""
    import torch  # noqa: PLC0415 - see load_library

    from torchwheel_runtime.arch.model import parse_binary_name  # noqa: PLC0415 - not for an import

    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)() or ""
    ptx = {name.removeprefix("compute_") for name in flags.split() if "compute_" in name}
    try:
        archs = [parse_binary_name(name) for name in flags.split() if "compute_" not in name]
        archs += [parse_binary_name(f"sm_{number}").with_ptx() for number in ptx]
    except ValueError:  # an arch that is newer than this torchwheel
        return ()
    return tuple(archs)


def load_library(library: "LoadableFile") -> None:
    """Load an open library, which registers its kernels with torch."""
    import torch  # noqa: PLC0415 - the doctor reads this package where there is no torch

    # torch.ops.load_library takes a path, which may lead to another file by now.
    library.load()
    torch.ops.loaded_libraries.add(str(library.path))


def reason_of(error: BaseException) -> str:
    """The first line of an error's first cause: torch raises its own error from the loader's.

    Torchwheel's own errors say all of it.
    """
    root = error
    while root.__cause__ is not None and not isinstance(root, TorchwheelError):
        root = root.__cause__
    lines = str(root).splitlines()
    return lines[0] if lines else type(root).__name__


def load_module(extension: Extension, package: Path) -> ModuleType:
    """The extension module of an ordinary extension, as TORCHWHEEL_MODE says.

    If it is not prebuilt for this torch and Python, it is built now, which takes a minute or more.
    So call this when the module is first needed.

    Args:
        extension: the description of the extension.
        package: the folder of its package.

    Raises:
        ImportError: it is not prebuilt and cannot be built; the message says what to do.
    """
    if extension.module is None:
        raise ValueError("an ordinary extension names its `module`")
    mode = read_mode(os.environ)
    refusals: tuple[Refusal, ...] = ()
    if may_load(mode):
        libraries = find_libraries(extension, package)
        refusal = refusal_of(extension, libraries, ask_driver=False)
        if refusal:
            refusals = (refusal,)
        else:
            _, module, refusals = load_first(extension, package, libraries)
            if module is not None:
                return module
    if may_build(mode):
        from torchwheel_runtime.runtime import operator_library  # noqa: PLC0415 - for a build

        try:
            library, _ = operator_library.obtain_library(extension, package, None)
            return import_from(extension.module.name, library)
        except Exception as error:  # any failure is one more reason
            refusals = (*refusals, Refusal("jit build", reason_of(error)))
    why = "; ".join(map(str, refusals)) or f"{MODE_VARIABLE}={mode}"
    raise ImportError(
        f"{extension.module.name}: {why}. `torchwheel doctor {extension.package}` says what fixes "
        "it.",
        name=extension.module.name,
    )
