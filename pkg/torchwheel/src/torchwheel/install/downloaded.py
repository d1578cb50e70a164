"""Reads a downloaded wheel, of any standard: METADATA, claims, and libraries that use torch."""

import contextlib
import dataclasses
import email.parser
import email.policy
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchwheel.findings import finding_of_wheel
from torchwheel.index.needs import Kernels, WheelNeeds
from torchwheel.inspect.archive import Archive, open_archive
from torchwheel.inspect.wheel import is_library
from torchwheel.install.environment import TargetEnvironment
from torchwheel.install.page import OfferedWheel
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.doctor.native import Loader, NativeLibrary
from torchwheel_runtime.doctor.remedies import OLD_STRING
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.elf import SHIMS, is_cxx, qualified_name, read_library
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC
from torchwheel_runtime.inspect.window import CpuTime
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.text import escape, quote
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.versions import has_long_number, required_range

TORCH = "torch"
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_NEW_STRING = "NSt7__cxx1112basic_string"
_MAJOR = re.compile(r"\.so\.(\d{1,3})")


@dataclasses.dataclass(frozen=True)
class WheelMetadata:
    """What is read of METADATA; `claims` are those of the wheel's own file, if it was read."""

    requires: tuple[Requirement, ...]
    claims: Claims | None = None

    def torch_range(self, markers: Mapping[str, str]) -> str | None:
        """The range of torch that it requires; empty for any, None if it requires none."""
        found = required_range(TORCH, self.requires, markers)
        return None if found is None else str(found)

    def needed(self, markers: Mapping[str, str]) -> Iterator[Requirement]:
        """The requirements that hold in an environment, without those of extras."""
        for requirement in self.requires:
            marker = requirement.marker
            with contextlib.suppress(UndefinedEnvironmentName):
                if marker is None or marker.evaluate({**markers, "extra": ""}):
                    yield requirement


def parse_metadata(content: bytes, candidate: OfferedWheel, where: str) -> WheelMetadata:
    """Read METADATA and compare it with the file's name.

    Raises:
        TorchwheelError: one line: it is another wheel's, or a requirement cannot be read.
    """
    if len(content) > budgets.METADATA_BYTES:
        raise TorchwheelError(
            f"{escape(where)}: expected at most {budgets.METADATA_BYTES} bytes, found more"
        )
    headers = email.parser.BytesHeaderParser(policy=email.policy.compat32).parsebytes(content)
    name, version = str(headers.get("Name", "")), str(headers.get("Version", ""))
    own = candidate.file.partition("-")[0]
    if canonicalize_name(name) != canonicalize_name(own) or not _same(version, candidate.version):
        says = f"expected {own} {candidate.version}, as the file is named"
        raise TorchwheelError(f"{escape(where)}: {says}, found {quote(name)} {quote(version)}")
    lines = headers.get_all("Requires-Dist", [])
    if len(lines) > budgets.METADATA_FIELDS:
        raise TorchwheelError(f"{escape(where)}: expected fewer requirements, found {len(lines)}")
    return WheelMetadata(tuple(_requirement(str(line), where) for line in lines))


def _same(text: str, version: Version) -> bool:
    try:
        return Version(text) == version
    except ValueError:  # InvalidVersion, or a number of too many digits
        return False


def _requirement(text: str, where: str) -> Requirement:
    with contextlib.suppress(InvalidRequirement):
        if not has_long_number(text):
            return Requirement(text)
    says = f"expected a requirement, found {quote(text)}"
    raise TorchwheelError(f"{escape(where)}: {says}; report it to its authors")


def read_metadata(path: Path, candidate: OfferedWheel) -> WheelMetadata:
    """Read METADATA and the claims of a wheel's file, whose archive is checked first."""
    with open_archive(path) as archive:
        names = [name for name in archive.members if _METADATA.fullmatch(name)]
        if len(names) != 1:
            raise TorchwheelError(f"{path.name}: expected one METADATA, found {len(names)}")
        found = parse_metadata(_read(archive, names[0], path), candidate, path.name)
        own = f"{names[0].rpartition('/')[0]}/{claims_file.FILE}"
        if own not in archive.members:
            return found
        text = _read(archive, own, path)
    return dataclasses.replace(found, claims=claims_file.loads(text, f"{path.name}/{own}"))


def _read(archive: Archive, name: str, wheel: Path) -> bytes:
    member = archive.members[name]
    if member.size > budgets.METADATA_BYTES:
        raise TorchwheelError(f"{wheel.name}: expected a smaller {name.rpartition('/')[2]}")
    return archive.read(member)


def needs_of_libraries(
    wheel: Path, environment: TargetEnvironment
) -> Iterator[tuple[WheelNeeds, list[Finding]]]:
    """What each library of a wheel that uses torch needs, and what the installed torch lacks.

    A library that cannot be read is left out: the loader decides about it.
    """
    torch = environment.torch
    if torch is None:
        return
    cpu = CpuTime()
    with tempfile.TemporaryDirectory(prefix="torchwheel-") as folder:
        # All lie in their places before one is read: they find each other there.
        libraries = list(_libraries(wheel, Path(folder)))
        if not libraries:
            return
        loader = Loader(environment.program, torch.folder, os.environ)
        for path, member in libraries:
            cpu.check()
            try:
                library = read_library(path, member)
                links = loader.links(library, path)
            except TorchwheelError:
                continue
            native = NativeLibrary(member, path, loaded=False, needed=library.needed, links=links)
            if native.uses_torch:
                needs = _needs(native, [symbol.name for symbol in library.undefined])
                yield needs, _missing_symbols(native, needs, torch)


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


def _needs(native: NativeLibrary, symbols: list[str]) -> WheelNeeds:
    runtime = _MAJOR.search(native.runtime or "")
    kernels = (Kernels(native.backend, runtime[1] if runtime else ""),) if native.backend else ()
    of_torch = [name for name in symbols if is_cxx(name)]
    old = any(OLD_STRING.search(name) for name in of_torch)
    new = any(_NEW_STRING in name for name in of_torch)
    needs = WheelNeeds("stable", kernels=kernels, old_abi=old if old != new else None)
    return dataclasses.replace(needs, abi="aten") if native.for_one_torch else needs


def _missing_symbols(native: NativeLibrary, needs: WheelNeeds, torch: Torch) -> list[Finding]:
    """Why a library whose other needs are met cannot be loaded by the installed torch."""
    links = native.links
    undefined = links.undefined - links.elsewhere if links else frozenset[str]()
    missing = [name for name in undefined if is_cxx(name) or name.startswith(SHIMS)]
    idle = needs.abi == "stable" and needs.kernels and torch.backend is None  # as its kernels are
    if not missing or idle:
        return []
    shown = min((qualified_name(name) for name in missing), key=lambda name: (len(name), name))
    expected = f"a torch that has {shown}, for {native.name}"
    return [finding_of_wheel("symbols", f"torch {torch.version}", expected=expected)]
