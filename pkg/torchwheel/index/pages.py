"""The pages of an index: HTML (PEP 503) for people and installers, JSON (PEP 691) beside it."""

import dataclasses
import functools
import hashlib
import html
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jinja2

from torchwheel.index.contents import File, Index, IndexGroup, group_of_all
from torchwheel.index.front import bundled_requirements, fronts, pip_command
from torchwheel.index.note import KEY, IndexNote, needs_of_claims, note_json
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
    front = _template("front.html.j2").render(fronts=list(fronts(index)), groups=index.groups)
    yield _whole("index.html", front)
    # Most groups list the same files: an entry differs by the depth of its page and by its note.
    entry = functools.cache(_entry)
    for group in index.groups:
        meta = {"api-version": API_VERSION}
        listing = {"meta": meta, "projects": [{"name": name} for name in group.projects]}
        page = _template("group.html.j2").render(group=group, api_version=API_VERSION)
        yield _whole(f"{group.name}/index.html", page)
        yield _whole(f"{group.name}/index.json", json.dumps(listing, indent=1) + "\n")
        for project in group.projects:
            yield from _project_pages(index, group, project, entry)
    whole = group_of_all(index.groups)
    for project in whole.projects:
        # A document alone: it is for `torchwheel install`, and pip has the groups.
        *_, document = _project_pages(index, whole, project, entry)
        yield document


def _whole(path: str, text: str) -> Page:
    """A page that is rendered already."""
    return Page(path, hashlib.sha256(text.encode()).hexdigest(), lambda: text)


def _project_pages(
    index: Index, group: IndexGroup, project: str, entry: Callable[[File, str, str | None], _Entry]
) -> Iterator[Page]:
    status = index.statuses.get(project)
    files = () if status and status.state == "quarantined" else group.projects[project]
    notes = [group.yanked.get(file.wheel.file) for file in files]
    root = "../" * (len(group.name.split("/")) + 1)

    def entries() -> list[_Entry]:
        return [
            entry(file, "" if file.is_absolute else root, why)
            for file, why in zip(files, notes, strict=True)
        ]

    digest = hashlib.sha256(
        repr((_renderer(), group.name, _requirements(group, project), status)).encode()
    )
    for file, why in zip(files, notes, strict=True):
        digest.update(file.digest)
        digest.update(repr((why, file.withdrawn is not None)).encode())
    folder, made_of = f"{group.name}/{project}", digest.hexdigest()
    yield Page(f"{folder}/index.html", made_of, lambda: _html(group, project, entries(), status))
    yield Page(f"{folder}/index.json", made_of, lambda: _json(project, files, entries(), status))


@functools.cache
def _renderer() -> str:
    """A hash of the code and the templates that make pages."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.iterdir()):
        if path.suffix == ".j2" or path.name == Path(__file__).name:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _html(
    group: IndexGroup, project: str, entries: Sequence[_Entry], status: ProjectStatus | None
) -> str:
    return _template("project.html.j2").render(
        api_version=API_VERSION,
        group=group,
        project=project,
        status=status,
        rows="\n".join(entry.row for entry in entries),
        command=pip_command(_ADDRESS, _requirements(group, project)).partition(_ADDRESS),
    )


_ADDRESS = "ADDRESS_OF_THE_FOLDER_ABOVE"


def _requirements(group: IndexGroup, project: str) -> list[str]:
    """The project and the bundled packages of its group."""
    others = bundled_requirements(group)
    return [project, *(one for one in others if one.partition("==")[0] != project)]


def _json(
    project: str,
    files: Sequence[File],
    entries: Sequence[_Entry],
    status: ProjectStatus | None,
) -> str:
    head: dict[str, object] = {"meta": {"api-version": API_VERSION}, "name": project}
    if status:
        head["project-status"] = {"status": status.state, "reason": status.reason}
    head["versions"] = sorted({file.wheel.version for file in files})
    files_text = ",\n".join(entry.json for entry in entries)
    return f'{json.dumps(head)[:-1]}, "files": [\n{files_text}\n]}}\n'


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
        **_note(file),
    }
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
    return _Entry(f"<tr>{row}</tr>", json.dumps(document))


def _note(file: File) -> dict[str, object]:
    """What `torchwheel install` goes by. Keys with an underscore are the index's own (PEP 691)."""
    claims = file.wheel.claims
    if claims is None:
        return {}
    return {KEY: note_json(IndexNote(needs_of_claims(claims), file.withdrawn is not None))}


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
