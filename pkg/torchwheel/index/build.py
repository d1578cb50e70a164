"""Writes the index: a folder of static files, complete or absent, equal for equal wheels."""

import contextlib
import dataclasses
import gc
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel import files
from torchwheel.errors import MalformedError, UsageError
from torchwheel.evidence.files import Believed
from torchwheel.index.catalogue import FILE, read_catalogues, read_wheel_entry
from torchwheel.index.contents import FILES, File, Index, group_files, index_of, utc_time
from torchwheel.index.pages import index_pages
from torchwheel.index.store import Store
from torchwheel.index.withdrawals import read_withdrawals
from torchwheel.inspect.wheel import read_wheel
from torchwheel.json_files import read_json
from torchwheel.text import join_names

PAGES = "pages.json"
"""What each page is made of, and its own hash: the next run writes only pages that change."""


@dataclasses.dataclass(frozen=True)
class WrittenPage:
    """A page of the index as it was written.

    Attributes:
        made_of: a hash of all that its text depends on.
        sha256: of its bytes.
    """

    made_of: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class IndexedWheel:
    """A wheel that lies beside its index, and the groups that offer it, e.g. ("cu130",)."""

    path: Path
    groups: tuple[str, ...]
    uploaded: str | None = None
    """As PEP 700 writes it: "2026-11-24T08:00:00Z". By default the file's own time."""


def build_index(wheels: Sequence[IndexedWheel], out: Path) -> None:
    """Replace `out` with an index of the wheels, each file once under `out`/files."""
    sources: dict[str, Path] = {}
    known: dict[str, File] = {}
    groups: dict[str, set[str]] = {}
    beside: dict[str, bytes] = {}
    for own in (wheel for wheel in wheels if wheel.groups):
        wheel = read_wheel(own.path)
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
    index = Index(group_files((file, groups[name]) for name, file in known.items()))
    with files.make_folder_atomically(out) as temporary:
        _write_store(temporary / FILES, sources, beside)
        _write_pages(index, temporary, out)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the collector of cycles. Catalogues are many objects without one: it took a fifth."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collector()  # until the catalogues are freed, or it looks through them at the end
def build_index_of_releases(
    places: Sequence[Path],
    store: Store,
    yanked: Path,
    out: Path,
    believed: Believed | None = None,
) -> str:
    """Replace `out` with the index of all releases, whose files stay in their store.

    Args:
        places: catalogues, releases' folders, or folders of these.
        store: where the files of each release are.
        yanked: the file of what was withdrawn.
        out: the index's folder.
        believed: if given, every catalogue must be signed by the workflow that releases.

    Returns:
        A line that says how much is in it.
    """
    withdrawals = read_withdrawals(yanked)
    catalogues = read_catalogues(places, believed)
    if not catalogues:
        found = f"expected a {FILE} of a release, found none; download it"
        raise UsageError(f"{join_names(map(str, places))}: {found}")
    index = index_of(catalogues, store, withdrawals)
    write_index(index, out)
    wheels = set().union(*(of for group in index.groups for of in group.projects.values()))
    counts = f"releases: {len(catalogues)}, wheels: {len(wheels)}, groups: {len(index.groups)}"
    return f"{out}: {counts}"


def write_index(index: Index, out: Path) -> None:
    """Replace `out` with the pages of an index; its files lie in a store."""
    with files.make_folder_atomically(out) as temporary:
        _write_pages(index, temporary, out)


def _write_store(folder: Path, wheels: Mapping[str, Path], beside: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, source in wheels.items():
        try:
            os.link(source.resolve(), folder / name)
        except OSError:  # another disk, or one without hard links
            shutil.copyfile(source, folder / name)
    for name, content in beside.items():
        (folder / name).write_bytes(content)


def _write_pages(index: Index, folder: Path, old: Path) -> None:
    """Write the pages to `folder`; those that `old` has already become links to the old."""
    known = _known_pages(old)
    written: dict[str, WrittenPage] = {}
    for page in index_pages(index):
        path = folder / page.path
        path.parent.mkdir(parents=True, exist_ok=True)
        before = known.get(page.path)
        if before and before.made_of == page.made_of and _link(old / page.path, path, before):
            written[page.path] = before
            continue
        content = page.text().encode()
        path.write_bytes(content)
        written[page.path] = WrittenPage(page.made_of, hashlib.sha256(content).hexdigest())
    text = json.dumps({path: vars(page) for path, page in written.items()}, indent=1)
    (folder / PAGES).write_text(text + "\n", encoding="utf-8")


def _link(old: Path, path: Path, expected: WrittenPage) -> bool:
    """Make `path` a link to a page that was written before; False if that page has changed."""
    try:
        os.link(old, path)
    except OSError:
        return False
    # The link is hashed, not the old name, which may lead elsewhere by now.
    if stat.S_ISREG(path.lstat().st_mode) and files.sha256(path) == expected.sha256:
        return True
    path.unlink()  # else the new page would be written into the old index
    return False


def _known_pages(folder: Path) -> dict[str, WrittenPage]:
    """The pages of an index that was built before."""
    try:
        return read_json(folder / PAGES, dict[str, WrittenPage])
    except (OSError, MalformedError):
        return {}
