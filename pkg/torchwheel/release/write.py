"""Writes a release folder, complete or not at all."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel.index import catalogue as catalogues
from torchwheel.index.catalogue import Catalogue
from torchwheel.pipeline import records as build_record
from torchwheel.release.artifacts import SMOKE_FOLDER, BundledWheel, Candidate
from torchwheel.release.cases import ReleaseCase
from torchwheel.release.report import build_asset, smoke_asset
from torchwheel.release.sdists import Sdist
from torchwheel.smoke import record as smoke_record
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import make_folder_atomically, sha256

SUMS = "SHA256SUMS"
PYPI = "pypi"
"""Folder of what PyPI accepts: wheels without a local version, and sdists."""


def check_target(out: Path) -> None:
    """Raise if `out` holds anything but an earlier release."""
    is_release = (out / catalogues.FILE).is_file()
    if out.exists() and not is_release and (out.is_file() or any(out.iterdir())):
        raise UsageError(f"{out} is there and is no earlier release; remove it or name another")


def write_release(
    out: Path,
    cases: Sequence[ReleaseCase],
    bundled: Sequence[BundledWheel],
    sdists: Sequence[Sdist],
    catalogue: Catalogue,
    provenance: Mapping[str, str],
) -> None:
    """Replace `out` with a folder whose files are the assets of the release.

    These are the wheels, each with its metadata file and its provenance, the sdists, the records,
    the catalogue and the sums of all. The folders in it are for `assemble` itself and for PyPI.
    """
    with make_folder_atomically(out) as folder:
        (folder / PYPI).mkdir()
        published: list[Candidate | BundledWheel] = [case.candidate for case in cases]
        for source in [*published, *bundled]:
            wheel = _copy(source, folder)
            # PEP 658 looks for it at the wheel's own address.
            beside = wheel.with_name(f"{wheel.name}.metadata")
            beside.write_bytes(source.wheel.metadata_bytes)
            if source.wheel.version.local is None:
                os.link(wheel, folder / PYPI / wheel.name)
        for sdist in sdists:
            copy = Path(shutil.copyfile(sdist.path, folder / sdist.path.name))
            os.link(copy, folder / PYPI / copy.name)
        for case in cases:
            _write_records(case, folder)
        for name, text in provenance.items():
            (folder / name).write_text(text, encoding="utf-8")
        text = catalogues.catalogue_text(catalogue)
        (folder / catalogues.FILE).write_text(text, encoding="utf-8")
        (folder / SUMS).write_text("".join(_sums(folder)), encoding="utf-8")


def _copy(wheel: Candidate | BundledWheel, folder: Path) -> Path:
    """Copy a wheel; the copy must have the bytes that were checked."""
    copy = Path(shutil.copyfile(wheel.path, folder / wheel.path.name))
    if sha256(copy) != wheel.sha256:
        raise TorchwheelError(f"{wheel.path} changed while it was copied; run again")
    return copy


def _write_records(case: ReleaseCase, folder: Path) -> None:
    """Write a variant's records where `assemble` looks for them, and as assets."""
    for build in case.builds:
        build_record.save_record(folder, build)
        file = folder / build_record.FOLDER / f"{case.variant.id}.json"
        os.link(file, folder / build_asset(case.variant))
    (folder / SMOKE_FOLDER).mkdir(exist_ok=True)
    for number, smoke in enumerate(case.smokes, start=1):
        file = folder / SMOKE_FOLDER / f"{case.variant.id}.{number}.json"
        file.write_text(smoke_record.dump_smoke(smoke), encoding="utf-8")
        os.link(file, folder / smoke_asset(case.variant, number))


def _sums(folder: Path) -> Iterator[str]:
    """The lines of SHA256SUMS for the assets in a folder, as `sha256sum -c` reads them."""
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield f"{sha256(path)}  {path.name}\n"
