"""Writes the index: a folder of static files, complete or absent, equal for equal wheels."""

import functools
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from torchwheel import files
from torchwheel.index.contents import FILES, File, IndexedWheel, IndexGroup, group_wheels
from torchwheel.text import size_text

API_VERSION = "1.1"
"""PEP 700: PEP 691 with sizes, versions and upload times."""


def build_index(wheels: Sequence[IndexedWheel], out: Path) -> None:
    """Replace `out` with an index of the wheels, each file once under `out`/files."""
    groups = group_wheels(wheels)
    with files.make_folder_atomically(out) as temporary:
        _write_files(temporary / FILES, (file for group in groups for file in group.files))
        _write(temporary / "index.html", _page("groups.html.j2", groups=groups))
        for group in groups:
            _write_group(temporary / group.name, group)


def project_document(group: IndexGroup, project: str) -> dict[str, Any]:
    """The PEP 691 document of a project, with links relative to its own address."""
    own = group.of(project)
    return {
        "meta": {"api-version": API_VERSION},
        "name": project,
        "versions": sorted({str(file.version) for file in own}),
        "files": [_file_entry(file, _root(group) + FILES, group.yanked) for file in own],
    }


def _file_entry(file: File, folder: str, yanked: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"sha256": file.metadata_sha256}
    return {
        "filename": file.filename,
        "url": f"{folder}/{file.href}",
        "hashes": {"sha256": file.sha256},
        **({"requires-python": file.requires_python} if file.requires_python else {}),
        "size": file.size,
        # PEP 714's name, and the name that older clients read.
        "core-metadata": metadata,
        "data-dist-info-metadata": metadata,
        "yanked": yanked.get(file.filename, False),
        **({"upload-time": file.uploaded} if file.uploaded else {}),
    }


def _root(group: IndexGroup) -> str:
    """The relative path from a project's page to the index's root."""
    return "../" * (len(group.name.split("/")) + 1)


def _write_group(folder: Path, group: IndexGroup) -> None:
    meta = {"api-version": API_VERSION}
    projects = [{"name": project} for project in group.projects]
    _write(folder / "index.json", _json({"meta": meta, "projects": projects}))
    _write(folder / "index.html", _page("group.html.j2", group=group, api_version=API_VERSION))
    for project in group.projects:
        _write(folder / project / "index.json", _json(project_document(group, project)))
        page = _page(
            "project.html.j2",
            api_version=API_VERSION,
            group=group,
            project=project,
            files=group.of(project),
            folder=_root(group) + FILES,
        )
        _write(folder / project / "index.html", page)


def _write_files(folder: Path, wheels: Iterable[File]) -> None:
    folder.mkdir()
    for file in {file.filename: file for file in wheels}.values():
        target = folder / file.filename
        try:
            os.link(file.source.resolve(), target)
        except OSError:  # another disk, or one without hard links
            shutil.copyfile(file.source, target)
        (folder / f"{file.filename}.metadata").write_bytes(file.metadata)


def _json(document: object) -> str:
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _page(template: str, **values: object) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("torchwheel.index", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["size"] = functools.partial(size_text, decimals=2)
    return environment.get_template(template).render(**values)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
