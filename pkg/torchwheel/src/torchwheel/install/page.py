"""The wheels that an index offers of a project, each with what it needs."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import BuildTag, NormalizedName
from packaging.version import Version

from torchwheel.index.client import SHA256, OfferedFile, find_files
from torchwheel.index.needs import ALL, KEY, IndexNote, Kernels, WheelNeeds, read_bundled, read_note
from torchwheel.inspect.local_version import LocalVersion, read_local_version
from torchwheel.inspect.wheel import parse_file_name
from torchwheel_runtime.fetch import Fetch, link
from torchwheel_runtime.files import sha256
from torchwheel_runtime.inspect.window import WheelError
from torchwheel_runtime.variant_format import index_file_name
from torchwheel_runtime.versions import has_long_number


@dataclasses.dataclass(frozen=True)
class OfferedWheel:
    """A wheel that an index offers.

    Attributes:
        file: its name.
        version: of the name.
        build: the build tag of the name.
        tags: the tags of the name.
        label: of a labelled wheel, which pip does not take.
        label_file: the file of the index that names the label's properties; None if it has none.
        url: its absolute address.
        needs: what it needs, as the index says it; else as its name says it.
        described: whether the index says it.
        said: what its local version says.
        sha256: hex digest; None if the index gives none.
        size: bytes, if the index gives them.
        requires_python: e.g. ">=3.10".
        withdrawn: why it was withdrawn; None if it was not.
        metadata: the address of its METADATA, and the hash if the index gives it (PEP 658).
        provenance: the address of its provenance (PEP 740).
        bundled: the projects that the index publishes with this one.
    """

    file: str
    version: Version
    build: BuildTag
    tags: frozenset[Tag]
    url: str
    needs: WheelNeeds
    described: bool
    said: LocalVersion
    sha256: str | None
    size: int | None = None
    requires_python: SpecifierSet | None = None
    withdrawn: str | None = None
    metadata: tuple[str, str | None] | None = None
    provenance: str | None = None
    bundled: frozenset[str] = frozenset()
    label: str | None = None
    label_file: str | None = None


def find_page(
    index: str, project: NormalizedName, fetch: Fetch
) -> tuple[str, tuple[OfferedWheel, ...]] | None:
    """The address of a project's page and the wheels on it; None if the index has none.

    The root of our own index has groups in place of projects, and the folder `all` with the wheels
    of all of them.
    """
    listed = find_files(index, project, fetch, (ALL,))
    if listed is None:
        return None
    bundled = read_bundled(listed.note, listed.url)
    wheels = (wheel for file in listed.files for wheel in _wheel(file, project, bundled))
    names = {file.name for file in listed.files}
    return listed.url, tuple(_with_label_file(wheel, names) for wheel in wheels)


def _with_label_file(wheel: OfferedWheel, names: Collection[str]) -> OfferedWheel:
    name = index_file_name(wheel.file)
    return dataclasses.replace(wheel, label_file=name) if wheel.label and name in names else wheel


def _wheel(
    file: OfferedFile, project: NormalizedName, bundled: frozenset[str]
) -> Iterator[OfferedWheel]:
    """The wheel that a file is; nothing if it is no wheel of the project, e.g. an sdist."""
    name, entry = file.name, file.entry
    try:
        named, version, build, tags, label = parse_file_name(name)
    except WheelError:
        return
    if named != project:
        return
    note = read_note(entry.get(KEY), file.where)
    provenance, said = file.text("provenance"), read_local_version(version)
    yield OfferedWheel(
        file=name,
        version=version,
        build=build,
        tags=tags,
        url=file.url,
        needs=note.needs if note else needs_of_name(said),
        described=note is not None,
        said=said,
        sha256=file.sha256,
        size=file.size,
        requires_python=_specifiers(file.text("requires-python")),
        withdrawn=_withdrawal_reason(entry.get("yanked"), note),
        metadata=_metadata(entry, file.url),
        provenance=link(file.page, provenance) if provenance else None,
        bundled=bundled,
        label=label,
    )


def wheel_of_file(path: Path) -> OfferedWheel:
    """A wheel that lies on this machine, as its name describes it."""
    _, version, build, tags, label = parse_file_name(path.name)
    said = read_local_version(version)
    return OfferedWheel(
        file=path.name,
        version=version,
        build=build,
        tags=tags,
        url=path.absolute().as_uri(),
        needs=needs_of_name(said),
        described=False,
        said=said,
        sha256=sha256(path),
        size=path.stat().st_size,
        label=label,
    )


def needs_of_name(said: LocalVersion) -> WheelNeeds:
    """What a wheel needs, by its local version."""
    kernels = [Kernels("cuda", said.cuda)] if said.cuda is not None else []
    kernels += [Kernels("rocm", said.rocm)] if said.rocm is not None else []
    return WheelNeeds(
        abi="aten" if said.torch else None,
        torch=(said.torch_range,) if said.torch_range else (),
        kernels=tuple(kernels),
        for_cpu=said.cpu,
        old_abi=None if said.new_strings is None else not said.new_strings,
    )


def _withdrawal_reason(yanked: object, note: IndexNote | None) -> str | None:
    if note is not None and not note.withdrawn:
        return None
    if yanked is None or yanked is False:
        return None
    return yanked if isinstance(yanked, str) and yanked else "no reason given"


def _metadata(entry: Mapping[str, object], url: str) -> tuple[str, str | None] | None:
    value = entry.get("core-metadata", entry.get("data-dist-info-metadata"))
    if not value:
        return None
    digest = str(value.get("sha256")).lower() if isinstance(value, dict) else ""
    base, mark, query = url.partition("?")
    return f"{base}.metadata{mark}{query}", digest if SHA256.fullmatch(digest) else None


def _specifiers(text: str | None) -> SpecifierSet | None:
    # As pip does: what cannot be read excludes nothing.
    if not text or has_long_number(text):
        return None
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None
