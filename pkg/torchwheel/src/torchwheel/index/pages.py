"""The pages of an index: HTML (PEP 503) for people and installers, JSON (PEP 691) beside it."""

import dataclasses
import functools
import hashlib
import html
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import jinja2

from torchwheel.index.front import fronts, groups_by_toolkit, install_command
from torchwheel.index.groups import group_title
from torchwheel.index.listing import FILES, File, Index, IndexGroup, label_files
from torchwheel.index.needs import ALL, KEY
from torchwheel.index.withdrawals import ProjectStatus
from torchwheel_runtime.text import size_text

API_VERSION = "1.4"
"""PEP 691 with sizes, versions and upload times (700), provenance (740) and states (792)."""


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of an index.

    Attributes:
        paths: in the index's folder. Groups that offer the same files have the same document.
        parts: its bytes. Many pages list the same files, so they have these parts in common.
            They are not joined, which took half of the memory.
    """

    paths: tuple[str, ...]
    parts: tuple[bytes, ...]

    def text(self) -> str:
        """The whole page."""
        return b"".join(self.parts).decode()


@dataclasses.dataclass(frozen=True, eq=False)
class _Listing:
    """Files as pages list them: the rows of the table, and the end of the JSON document.

    `labels` has the files beside the page that name the properties of labelled wheels. There is one
    object for equal files, so it is compared by identity.
    """

    rows: tuple[bytes, ...]
    json: tuple[bytes, ...]
    labels: tuple[tuple[str, bytes], ...] = ()


def index_pages(index: Index, docs: str = "") -> Iterator[Page]:
    """Every page of an index.

    Args:
        index: what it offers.
        docs: the address of the documentation, if it is published with the index.
    """
    yield _page(
        "index.html",
        "front.html.j2",
        **{"root": "./", "docs": docs, "fronts": list(fronts(index)), "all": ALL},
        **{"groups": groups_by_toolkit(index), "size_text": size_text},
    )
    # Most groups list the same files: an entry differs by the depth of its page and by its note.
    list_files = functools.cache(functools.partial(_listing, functools.cache(_entry)))
    projects = index.whole.projects.items()
    bundled = [name for name, files in projects if all(file.kind is None for file in files)]
    documents: dict[tuple[str, _Listing], list[str]] = defaultdict(list)
    labels: dict[tuple[str, bytes], list[str]] = defaultdict(list)
    for group in (index.whole, *index.groups):
        yield from _group_pages(group)
        for project, offered in group.projects.items():
            folder, status = f"{group.name}/{project}", index.statuses.get(project)
            files, root = () if index.quarantined(project) else offered, _root_from(folder)
            listing = list_files(files, tuple(map(group.yanked.get, files)), root)
            documents[project, listing].append(f"{folder}/index.json")
            for name, text in listing.labels:
                labels[name, text].append(f"{folder}/{name}")
            missing = sorted({text for file in files for text in group.missing(file)})
            command = install_command(f"{_ADDRESS}{group.name}/", project, missing)
            head, tail = _around_rows(root, project, group.name, command, status)
            yield Page((f"{folder}/index.html",), (head, *listing.rows, tail))
    for (project, listing), paths in documents.items():
        head = _head_json(project, index.statuses.get(project), bundled)
        yield Page(tuple(paths), (head, *listing.json))
    of_each = (files for name, files in projects if not index.quarantined(name))
    every = tuple(file for files in of_each for file in files)
    listing = list_files(every, tuple(map(index.whole.yanked.get, every)), "../")
    head, tail = _around_rows("../", "Files", "all projects")
    yield Page((f"{FILES}/index.html",), (head, *listing.rows, tail))
    for name, text in listing.labels:
        labels[name, text].append(f"{FILES}/{name}")
    for (_, text), paths in labels.items():
        yield Page(tuple(paths), (text,))


def _root_from(folder: str) -> str:
    """The way from a folder of the index to its root."""
    return "../" * (folder.count("/") + 1)


def _page(path: str, template: str, **fields: object) -> Page:
    """A page of a template."""
    text = _template(template).render(address=_ADDRESS, api_version=API_VERSION, **fields)
    return Page((path,), (text.encode(),))


def _group_pages(group: IndexGroup) -> Iterator[Page]:
    """The list of a group's projects."""
    fields = {"group": group, "title": group_title(group.name), "root": _root_from(group.name)}
    yield _page(f"{group.name}/index.html", "group.html.j2", **fields)
    document = {
        "meta": {"api-version": API_VERSION},
        "projects": [{"name": name} for name in group.projects],
    }
    yield Page((f"{group.name}/index.json",), (json.dumps(document, indent=1).encode(), b"\n"))


def _around_rows(
    root: str, project: str, group: str, command: str = "", status: ProjectStatus | None = None
) -> tuple[bytes, bytes]:
    """What comes before and after the rows of a page with files."""
    fields = {"root": root, "project": project, "group": group, "rows": _ROWS}
    page = _page("", "project.html.j2", command=command, status=status, **fields)
    head, _, tail = page.text().partition(_ROWS)
    return head.encode(), tail.encode()


_ADDRESS = "ADDRESS_OF_THE_INDEX/"
"""Stands for the address of the index's root, which a page learns in the browser."""
_ROWS = "\0"
"""Stands for the rows in the template's text, which has no such character."""


def _head_json(project: str, status: ProjectStatus | None, bundled: Sequence[str]) -> bytes:
    """The JSON document before its versions."""
    head: dict[str, object] = {"meta": {"api-version": API_VERSION}, "name": project}
    if bundled:
        head[KEY] = {"bundled": bundled}
    if status:
        head["project-status"] = {"status": status.state, "reason": status.reason}
    return f"{json.dumps(head)[:-1]}, ".encode()


def _listing(
    entry: Callable[[File, str, str | None], tuple[bytes, bytes]],
    files: tuple[File, ...],
    yanked: tuple[str | None, ...],
    root: str,
) -> _Listing:
    """The files of a page from which `root` leads to the root of the index.

    Args:
        entry: renders a file.
        files: in their order.
        yanked: why each is offered to nobody, or by its version alone; None if it is not so.
        root: relative, with a slash at its end.
    """
    entries = [
        entry(file, "" if file.is_absolute else root, why)
        for file, why in zip(files, yanked, strict=True)
    ]
    offered = (file for file, why in zip(files, yanked, strict=True) if why is None)
    labels = label_files(offered)
    entries += [_label_entry(name, *of) for name, of in labels.items()]
    versions = json.dumps([str(one) for one in sorted({file.version for file in files})])
    return _Listing(
        _without_first_separator([row for row, _ in entries]),
        (
            f'"versions": {versions}, "files": ['.encode(),
            *_without_first_separator([text for _, text in entries]),
            b"\n]}\n",
        ),
        tuple((name, text.encode()) for name, (text, _) in labels.items()),
    )


def _without_first_separator(parts: list[bytes]) -> tuple[bytes, ...]:
    return (parts[0][1:], *parts[1:]) if parts else ()


def _entry(file: File, root: str, why: str | None) -> tuple[bytes, bytes]:
    """A file on the pages from which `root` leads to the root of the index.

    Its row of the table, and its entry of the JSON document; each begins with what separates it
    from the one before.
    """
    wheel, address, provenance = file.wheel, root + file.address, file.provenance
    metadata = {"sha256": wheel.metadata_sha256}
    document = {
        "filename": wheel.file,
        "url": address,
        "hashes": {"sha256": wheel.sha256},
        **({"requires-python": wheel.requires_python} if wheel.requires_python else {}),
        "size": wheel.size,
        "upload-time": wheel.uploaded,
        # PEP 714's name, and the name that older clients read.
        "core-metadata": metadata,
        "data-dist-info-metadata": metadata,
        "yanked": why or False,
        **({"provenance": provenance} if provenance else {}),
    }
    text = json.dumps(document)
    if file.note:  # keys with an underscore are the index's own (PEP 691)
        text = f"{text[:-1]}, {json.dumps(KEY)}: {file.note}}}"
    attributes = {
        "href": f"{address}#sha256={wheel.sha256}",
        "data-requires-python": wheel.requires_python,
        "data-upload-time": wheel.uploaded,
        "data-core-metadata": f"sha256={wheel.metadata_sha256}",
        "data-dist-info-metadata": f"sha256={wheel.metadata_sha256}",
        "data-yanked": why,
        "data-provenance": provenance,
    }
    link = " ".join(f'{name}="{html.escape(value)}"' for name, value in attributes.items() if value)
    cells = [
        f"<a {link}>{html.escape(wheel.file)}</a>{_note_html(file, why)}",
        size_text(wheel.size, decimals=2),
        html.escape(wheel.requires_python or ""),
        wheel.uploaded[:10],
    ]
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"\n<tr>{row}</tr>".encode(), f",\n{text}".encode()


def _label_entry(name: str, text: str, uploaded: str) -> tuple[bytes, bytes]:
    """The same of a file with the properties of labelled wheels, which lies beside the page."""
    digest, size = hashlib.sha256(text.encode()).hexdigest(), len(text.encode())
    document = {
        "filename": name,
        "url": name,
        "hashes": {"sha256": digest},
        "size": size,
        "upload-time": uploaded,
        "yanked": False,
    }
    link = f'href="{name}#sha256={digest}" data-upload-time="{uploaded}"'
    cells = (f"<a {link}>{name}</a>", size_text(size, decimals=2), "", uploaded[:10])
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"\n<tr>{row}</tr>".encode(), f",\n{json.dumps(document)}".encode()


def _note_html(file: File, why: str | None) -> str:
    if why is None:
        return ""
    kind = "withdrawn" if file.withdrawn else "by its version alone"
    return f'<div class="note">{kind}: {html.escape(why)}</div>'


@functools.cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("torchwheel.index", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)
