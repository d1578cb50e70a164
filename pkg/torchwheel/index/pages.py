"""The pages of an index: HTML (PEP 503) for people and installers, JSON (PEP 691) beside it."""

import dataclasses
import functools
import hashlib
import html
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import jinja2

from torchwheel.index.contents import File, Index, IndexGroup, group_of_all
from torchwheel.index.front import fronts, pip_command
from torchwheel.index.note import KEY
from torchwheel.index.withdrawals import ProjectStatus
from torchwheel.text import size_text

API_VERSION = "1.4"
"""PEP 691 with sizes, versions and upload times (700), provenance (740) and states (792)."""


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A file on a page: its row of the table, and its entry of the JSON document."""

    row: str
    json: str


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of an index, which is rendered only if it is asked for.

    Attributes:
        path: in the index's folder.
        made_of: a hash of all that its text depends on.
        text: renders it.
    """

    path: str
    made_of: str
    text: Callable[[], str]


def index_pages(index: Index) -> Iterator[Page]:
    """Every page of an index."""
    whole = group_of_all(index.groups)
    shown = list(fronts(index, whole))
    front = _template("front.html.j2").render(fronts=shown, groups=index.groups)
    yield _whole("index.html", front)
    # Most groups list the same files: an entry differs by the depth of its page and by its note.
    list_files: _List = functools.cache(functools.partial(_Listing, entry=functools.cache(_entry)))
    for group in index.groups:
        meta = {"api-version": API_VERSION}
        listing = {"meta": meta, "projects": [{"name": name} for name in group.projects]}
        page = _template("group.html.j2").render(group=group, api_version=API_VERSION)
        yield _whole(f"{group.name}/index.html", page)
        yield _whole(f"{group.name}/index.json", json.dumps(listing, indent=1) + "\n")
        for project in group.projects:
            yield from _project_pages(index, group, project, list_files)
    for project in whole.projects:
        # A document alone: it is for `torchwheel install`, and pip has the groups.
        *_, document = _project_pages(index, whole, project, list_files)
        yield document


def _whole(path: str, text: str) -> Page:
    """A page that is rendered already."""
    return Page(path, hashlib.sha256(text.encode()).hexdigest(), lambda: text)


@dataclasses.dataclass(frozen=True)
class _Listing:
    """The files that a page lists. Many groups list the same, which is then rendered once.

    Attributes:
        files: in their order.
        yanked: why each is offered to nobody, or by its version alone; None if it is not so.
        root: leads from the page to the root of the index.
        entry: renders a file.
    """

    files: tuple[File, ...]
    yanked: tuple[str | None, ...]
    root: str
    entry: Callable[[File, str, str | None], _Entry]

    @functools.cached_property
    def digest(self) -> bytes:
        """A hash of all that a page says of the files."""
        digest = hashlib.sha256(repr(self.yanked).encode())
        digest.update(b"".join([file.digest for file in self.files]))
        return digest.digest()

    def _entries(self) -> list[_Entry]:
        return [
            self.entry(file, "" if file.is_absolute else self.root, why)
            for file, why in zip(self.files, self.yanked, strict=True)
        ]

    @functools.cached_property
    def rows(self) -> str:
        """The rows of the table."""
        return "\n".join([entry.row for entry in self._entries()])

    @functools.cached_property
    def json(self) -> str:
        """The end of the JSON document: the versions and the files."""
        versions = json.dumps(sorted({file.wheel.version for file in self.files}))
        entries = ",\n".join([entry.json for entry in self._entries()])
        return f'"versions": {versions}, "files": [\n{entries}\n]}}\n'


_List = Callable[[tuple[File, ...], tuple[str | None, ...], str], _Listing]


def _project_pages(
    index: Index, group: IndexGroup, project: str, list_files: _List
) -> Iterator[Page]:
    status = index.statuses.get(project)
    files = () if status and status.state == "quarantined" else group.projects[project]
    root = "../" * (len(group.name.split("/")) + 1)
    listed = list_files(files, tuple(map(group.yanked.get, files)), root)
    facts = (_renderer(), group.name, _requirements(group, project), status, listed.digest)
    folder, made_of = f"{group.name}/{project}", hashlib.sha256(repr(facts).encode()).hexdigest()
    yield Page(f"{folder}/index.html", made_of, lambda: _html(group, project, listed, status))
    yield Page(f"{folder}/index.json", made_of, lambda: _json(project, listed, status))


@functools.cache
def _renderer() -> str:
    """A hash of the code and the templates that make pages."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.iterdir()):
        if path.suffix == ".j2" or path.name == Path(__file__).name:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _html(group: IndexGroup, project: str, listed: _Listing, status: ProjectStatus | None) -> str:
    return _template("project.html.j2").render(
        api_version=API_VERSION,
        group=group,
        project=project,
        status=status,
        rows=listed.rows,
        command=pip_command(_ADDRESS, _requirements(group, project)).partition(_ADDRESS),
    )


_ADDRESS = "ADDRESS_OF_THE_FOLDER_ABOVE"


def _requirements(group: IndexGroup, project: str) -> list[str]:
    """The project and the bundled packages of its group."""
    return [project, *(one for one in group.bundled if one.partition("==")[0] != project)]


def _json(project: str, listed: _Listing, status: ProjectStatus | None) -> str:
    head: dict[str, object] = {"meta": {"api-version": API_VERSION}, "name": project}
    if status:
        head["project-status"] = {"status": status.state, "reason": status.reason}
    return f"{json.dumps(head)[:-1]}, {listed.json}"


def _entry(file: File, root: str, why: str | None) -> _Entry:
    """The entry of a file on the pages from which `root` leads to the root of the index."""
    wheel, address = file.wheel, root + file.address
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
        **({"provenance": file.provenance} if file.provenance else {}),
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
        "data-provenance": file.provenance,
    }
    link = " ".join(f'{name}="{html.escape(value)}"' for name, value in attributes.items() if value)
    cells = [
        f"<a {link}>{html.escape(wheel.file)}</a>{_note_html(file, why)}",
        size_text(wheel.size, decimals=2),
        html.escape(wheel.requires_python or ""),
        wheel.uploaded,
    ]
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    return _Entry(f"<tr>{row}</tr>", text)


def _note_html(file: File, why: str | None) -> str:
    if why is None:
        return ""
    kind = "withdrawn" if file.withdrawn else "by its version alone"
    return f"<div>{kind}: {html.escape(why)}</div>"


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
