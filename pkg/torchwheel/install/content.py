"""Reads the libraries of a wheel that says nothing of its torch, before it is installed."""

import dataclasses
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from torchwheel.index.note import Kernels, WheelNeeds
from torchwheel.inspect.archive import open_archive
from torchwheel.inspect.wheel import is_library
from torchwheel.install.choose import Reason
from torchwheel.install.environment import TargetEnvironment
from torchwheel_runtime.doctor.native import Loader, NativeLibrary
from torchwheel_runtime.doctor.remedies import OLD_STRING
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.elf import SHIMS, is_cxx, qualified_name, read_library
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC
from torchwheel_runtime.inspect.window import CpuTime

_NEW_STRING = "NSt7__cxx1112basic_string"
_MAJOR = re.compile(r"\.so\.(\d{1,3})")


@dataclasses.dataclass(frozen=True)
class LibraryContent:
    """What one library of a wheel needs.

    Attributes:
        name: its path in the wheel.
        needs: what it needs of torch and of the toolkit.
        missing: symbols of torch that the installed torch does not have.
    """

    name: str
    needs: WheelNeeds
    missing: tuple[str, ...] = ()


def read_content(
    wheel: Path, environment: TargetEnvironment, environ: Mapping[str, str] = os.environ
) -> tuple[LibraryContent, ...]:
    """What the libraries of a wheel that use torch need, each by itself.

    A library that cannot be read is left out: the loader decides about it.
    """
    torch = environment.torch
    if torch is None:
        return ()
    cpu = CpuTime()
    with tempfile.TemporaryDirectory(prefix="torchwheel-") as folder:
        libraries = list(_libraries(wheel, Path(folder)))
        if not libraries:
            return ()
        loader = Loader(environment.python, torch.folder, environ)
        found = []
        for path, member in libraries:
            cpu.check()
            try:
                library = read_library(path, member)
                links = loader.links(library, path)
            except TorchwheelError:
                continue
            native = NativeLibrary(member, path, loaded=False, needed=library.needed, links=links)
            if native.uses_torch:
                found.append(_content(native, [symbol.name for symbol in library.undefined]))
        return tuple(found)


def _libraries(wheel: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    """Write the libraries of a wheel to `folder`, in their places; those grafted in are skipped."""
    with open_archive(wheel) as archive:
        members = [one for one in archive.files if is_library(one.name)]
        own = [one for one in members if not one.name.partition("/")[0].endswith(".libs")]
        for member in own[: budgets.LIBRARIES]:
            if not archive.starts_with(member, ELF_MAGIC):
                continue
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.writelines(archive.blocks(member))
            yield path, member.name


def _content(native: NativeLibrary, symbols: list[str]) -> LibraryContent:
    runtime = _MAJOR.search(native.runtime or "")
    kernels = (Kernels(native.backend, runtime[1] if runtime else ""),) if native.backend else ()
    of_torch = [name for name in symbols if is_cxx(name)]
    old = any(OLD_STRING.search(name) for name in of_torch)
    new = any(_NEW_STRING in name for name in of_torch)
    links = native.links
    missing = links.undefined - links.elsewhere if links else frozenset[str]()
    return LibraryContent(
        native.name,
        WheelNeeds(
            "aten" if native.for_one_torch else "stable",
            kernels=kernels,
            old_abi=old if old != new else None,
        ),
        tuple(sorted(name for name in missing if is_cxx(name) or name.startswith(SHIMS))),
    )


def missing_symbols(content: LibraryContent, environment: TargetEnvironment) -> Iterator[Reason]:
    """Why a library whose other needs are met cannot be loaded by the installed torch."""
    torch = environment.torch
    if not content.missing or torch is None:
        return
    of_gpu = content.needs.kernels and torch.backend is None
    if of_gpu and content.needs.abi == "stable":  # as idle as its kernels
        return
    shown = min((qualified_name(name) for name in content.missing), key=lambda n: (len(n), n))
    yield Reason(
        "symbols", f"a torch that has {shown}, for {content.name}", f"torch {torch.version}"
    )
