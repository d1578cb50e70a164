"""Writes the index: a folder of static files, complete or absent, equal for equal wheels."""

import dataclasses
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.evidence.files import Believed
from torchwheel.index.catalogue import FILE, read_catalogues, read_wheel_entry
from torchwheel.index.listing import FILES, File, Index, Store, index_files, index_of, utc_time
from torchwheel.index.pages import index_pages
from torchwheel.index.withdrawals import read_withdrawals
from torchwheel.inspect.wheel import Wheel, read_wheel
from torchwheel_runtime import files
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import join_names

_BUFFER = 1 << 17
"""Bytes of a page that are written at once; its parts are the entries of files."""


@dataclasses.dataclass(frozen=True)
class IndexedWheel:
    """A wheel that lies beside its index, and the groups that offer it, e.g. ("cu130",)."""

    path: Path
    groups: tuple[str, ...]
    uploaded: str | None = None
    """As PEP 700 writes it: "2026-11-24T08:00:00Z". By default the file's own time."""
    read: Wheel | None = None
    """The wheel, if it was read already."""


def build_index(wheels: Sequence[IndexedWheel], out: Path) -> Index:
    """Replace `out` with an index of the wheels, each file once under `out`/files; returns it."""
    sources: dict[str, Path] = {}
    known: dict[str, File] = {}
    groups: dict[str, set[str]] = {}
    beside: dict[str, bytes] = {}
    for own in (wheel for wheel in wheels if wheel.groups):
        wheel = own.read or read_wheel(own.path)
        # A wheel is renamed into an output folder once, and kept as it is by later runs.
        uploaded = own.uploaded or utc_time(own.path.stat().st_mtime)
        file = File(read_wheel_entry(wheel, uploaded), FILES)
        name = own.path.name
        if known.setdefault(name, file).wheel.sha256 != file.wheel.sha256:
            raise UsageError(
                f"two different wheels are named {name}: {sources[name]} and {own.path}"
            )
        sources[name], beside[f"{name}.metadata"] = own.path, wheel.metadata_bytes
        groups.setdefault(name, set()).update(own.groups)
    index = index_files((file, tuple(sorted(groups[name]))) for name, file in known.items())
    with files.make_folder_atomically(out) as temporary:
        _write_store(temporary / FILES, sources, beside)
        _write_pages(index, temporary, out)
    return index


def build_index_of_releases(
    places: Sequence[Path],
    store: Store,
    yanked: Path,
    out: Path,
    believed: Believed | None = None,
    docs: str = "",
) -> str:
    """Replace `out` with the index of all releases, whose files stay in their store.

    Args:
        places: catalogues, releases' folders, or folders of these.
        store: where the files of each release are.
        yanked: the file of what was withdrawn.
        out: the index's folder.
        believed: if given, every catalogue must be signed by the workflow that releases.
        docs: the address of the documentation that is published with it.

    Returns:
        A line that says how much is in it, after one for each removal of what is in no release.
    """
    withdrawals = read_withdrawals(yanked)
    catalogues = read_catalogues(places, believed)
    if not catalogues:
        found = f"expected a {FILE} of a release, found none; download it"
        raise UsageError(f"{join_names(map(str, places))}: {found}")
    index = index_of(catalogues, store, withdrawals)
    write_index(index, out, docs)
    wheels = sum(map(len, index.whole.projects.values()))
    gone = withdrawals.gone([wheel for catalogue in catalogues for wheel in catalogue.wheels])
    counts = f"releases: {len(catalogues)}, wheels: {wheels}, groups: {len(index.groups)}"
    return "\n".join([*(f"warning: {line}" for line in gone), f"{out}: {counts}"])


def write_index(index: Index, out: Path, docs: str = "") -> None:
    """Replace `out` with the pages of an index; its files lie in a store."""
    with files.make_folder_atomically(out) as temporary:
        _write_pages(index, temporary, out, docs)


def _write_store(folder: Path, wheels: Mapping[str, Path], beside: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, source in wheels.items():
        _link(source.resolve(), folder / name)
    for name, content in beside.items():
        (folder / name).write_bytes(content)


def _write_pages(index: Index, folder: Path, old: Path, docs: str = "") -> None:
    """Write the pages to `folder`; those that `old` has already become links to the old."""
    for page in index_pages(index, docs):
        first, *others = [folder / path for path in page.paths]
        first.parent.mkdir(parents=True, exist_ok=True)
        if not _link_equal(old / page.paths[0], first, page.parts):
            with first.open("wb", _BUFFER) as file:
                file.writelines(page.parts)
        for other in others:
            other.parent.mkdir(parents=True, exist_ok=True)
            _link(first, other)


def _link_equal(old: Path, path: Path, parts: Sequence[bytes]) -> bool:
    """Make `path` a link to an old page of these bytes; False if there is none."""
    try:
        os.link(old, path)
    except OSError:
        return False
    # The link is read, not the old name, which may lead elsewhere by now.
    found = path.lstat()
    if stat.S_ISREG(found.st_mode) and found.st_size == sum(map(len, parts)):
        with path.open("rb", _BUFFER) as file:
            if all(file.read(len(part)) == part for part in parts):
                return True
    path.unlink()  # else the new page would be written into the old index
    return False


def _link(source: Path, path: Path) -> None:
    """Make `path` the same file as `source`."""
    try:
        os.link(source, path)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(source, path)
