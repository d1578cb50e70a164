"""The files of a project on the package index, and the sdist of a release, without running code.

pip would run its setup.py to learn its requirements, which fails where torch is missing. So the
page of the project is read, and the file is downloaded by its hash, by the rules of `fetch`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from torchwheel.toolkit.project_page import OfferedFile, find_files
from torchwheel_runtime import process
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.fetch import Fetcher
from torchwheel_runtime.files import sha256, write_atomically

PYPI = "https://pypi.org/simple"
SDIST_BYTES = 512 << 20
"""The largest sdist that is read."""


def find_sdist(name: str, version: str, environ: Mapping[str, str] = os.environ) -> OfferedFile:
    """The sdist of a release; that of a folder of PIP_FIND_LINKS precedes the index's."""
    for folder in environ.get("PIP_FIND_LINKS", "").split():
        for path in sorted(Path(folder).glob("*")) if Path(folder).is_dir() else ():
            if is_sdist_of(path.name, name, version) and path.is_file():
                address = path.resolve().as_uri()
                entry = {"url": address, "hashes": {"sha256": sha256(path)}}
                return OfferedFile(path.name, entry, address, str(path))
    index = index_address(environ)
    listed = find_files(index, canonicalize_name(name), Fetcher())
    files = listed.files if listed else ()
    found = [file for file in files if is_sdist_of(file.name, name, version)]
    if not found:
        page = listed.url if listed else f"{index}/{canonicalize_name(name)}/"
        raise UsageError(
            f"{name}=={version}: expected an sdist on {page}, found none; name another release, or "
            "a git reference"
        )
    # .tar.gz is what PEP 625 wants; older releases have others beside it.
    return min(found, key=lambda file: (not file.name.endswith(".tar.gz"), file.name))


def files_offered(project: str, environ: Mapping[str, str] = os.environ) -> list[OfferedFile]:
    """All files of a project on the indexes that pip uses; none of an index without the project."""
    extra = _of_pip("PIP_EXTRA_INDEX_URL", "global.extra-index-url", environ).split()
    listed = (
        find_files(address, canonicalize_name(project), Fetcher())
        for address in (index_address(environ), *extra)
    )
    return [file for one in listed if one for file in one.files]


def is_sdist_of(file: str, name: str, version: str) -> bool:
    """Whether a file's name is that of a release's sdist."""
    try:
        found, release = parse_sdist_filename(file)
        return found == canonicalize_name(name) and release == Version(version)
    except (InvalidSdistFilename, InvalidVersion):
        return False


def index_address(environ: Mapping[str, str] = os.environ) -> str:
    """The package index that pip uses: PIP_INDEX_URL, else its configuration, else PyPI."""
    return (_of_pip("PIP_INDEX_URL", "global.index-url", environ) or PYPI).rstrip("/")


def _of_pip(variable: str, setting: str, environ: Mapping[str, str]) -> str:
    """A setting of pip's: its variable, else its configuration, else nothing."""
    if value := environ.get(variable):
        return value
    done = process.run(["pip", "config", "get", setting], env=dict(environ))
    return done.output.strip() if done.status == 0 else ""


def download_sdist(file: OfferedFile, expected: str | None, folder: Path) -> Path:
    """Download an sdist into `folder`; its hash is the index's and the expected one."""
    hashes = [("the index", file.sha256), ("project.sha256", expected)]
    if not any(wanted for _, wanted in hashes):
        raise TorchwheelError(
            f"{file.where}: {file.name}: expected a sha256, found none, so its bytes cannot be "
            "verified; download it yourself and name the file"
        )
    with write_atomically(folder / file.name) as temporary:
        digest = Fetcher().download(file.url, temporary, SDIST_BYTES)
        for source, wanted in hashes:
            if wanted and wanted != digest:
                raise TorchwheelError(
                    f"hash mismatch: {file.name}: expected sha256 {wanted} by {source}, found "
                    f"{digest}; nothing was taken"
                )
    return folder / file.name
