"""Reads METADATA of somebody's wheel: name, version, requirements; it may be of any standard."""

import contextlib
import dataclasses
import email.parser
import email.policy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchwheel.inspect.archive import open_archive
from torchwheel.install.page import OfferedWheel
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.text import escape, quote
from torchwheel_runtime.versions import has_long_number

TORCH = "torch"
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")


@dataclasses.dataclass(frozen=True)
class WheelMetadata:
    """What is read of METADATA; `claims` are those of the wheel's own file, if it was read."""

    requires: tuple[Requirement, ...]
    claims: Claims | None = None

    def torch_range(self, markers: Mapping[str, str]) -> str | None:
        """The range of torch that it requires; empty for any, None if it requires none."""
        for requirement in self.needed(markers):
            if canonicalize_name(requirement.name) == TORCH:
                return str(requirement.specifier)
        return None

    def needed(self, markers: Mapping[str, str]) -> Iterator[Requirement]:
        """The requirements that hold in an environment, without those of extras."""
        for requirement in self.requires:
            marker = requirement.marker
            try:
                if marker is None or marker.evaluate({**markers, "extra": ""}):
                    yield requirement
            except UndefinedEnvironmentName:
                continue


def parse_metadata(content: bytes, candidate: OfferedWheel, where: str) -> WheelMetadata:
    """Read METADATA and compare it with the file's name.

    Raises:
        TorchwheelError: one line: it is another wheel's, or a requirement cannot be read.
    """
    if len(content) > budgets.METADATA_BYTES:
        raise TorchwheelError(
            f"{escape(where)}: expected at most {budgets.METADATA_BYTES} bytes, found more"
        )
    parser = email.parser.BytesHeaderParser(policy=email.policy.compat32)
    headers = parser.parsebytes(content)
    name, version = str(headers.get("Name", "")), str(headers.get("Version", ""))
    own = candidate.file.partition("-")[0]
    if canonicalize_name(name) != canonicalize_name(own) or not _same(version, candidate.version):
        says = f"expected {own} {candidate.version}, as the file is named"
        raise TorchwheelError(f"{escape(where)}: {says}, found {quote(name)} {quote(version)}")
    lines = headers.get_all("Requires-Dist", [])
    if len(lines) > budgets.METADATA_FIELDS:
        raise TorchwheelError(f"{escape(where)}: expected fewer requirements, found {len(lines)}")
    return WheelMetadata(tuple(_requirement(str(line), where) for line in lines))


def read_metadata(path: Path, candidate: OfferedWheel) -> WheelMetadata:
    """Read METADATA and the claims of a wheel's file, whose archive is checked first."""
    with open_archive(path) as archive:
        names = [name for name in archive.members if _METADATA.fullmatch(name)]
        if len(names) != 1:
            raise TorchwheelError(f"{path.name}: expected one METADATA, found {len(names)}")
        metadata = names[0]
        if archive.members[metadata].size > budgets.METADATA_BYTES:
            raise TorchwheelError(f"{path.name}: expected a smaller METADATA")
        found = parse_metadata(archive.read(archive.members[metadata]), candidate, path.name)
        own = f"{metadata.rpartition('/')[0]}/{claims_file.FILE}"
        if own not in archive.members:
            return found
        if archive.members[own].size > budgets.METADATA_BYTES:
            raise TorchwheelError(f"{path.name}: expected a smaller {claims_file.FILE}")
        text = archive.read(archive.members[own])
    return dataclasses.replace(found, claims=claims_file.loads(text, f"{path.name}/{own}"))


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
