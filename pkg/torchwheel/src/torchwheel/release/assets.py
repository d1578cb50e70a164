"""`torchwheel assets`: fills a draft with the files of a release folder, then publishes it.

Each step looks at what is there first, so a run that was cut is completed by the next one. A
published file never gets other bytes.
"""

import dataclasses
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from torchwheel.evidence.files import ATTESTATION, Believed, verify_files
from torchwheel.evidence.policy import version_of_ref
from torchwheel.evidence.verify import listed_files
from torchwheel.index.catalogue import FILE as CATALOGUE
from torchwheel.index.catalogue import read_catalogue
from torchwheel.index.client import files_offered
from torchwheel.release import forge
from torchwheel.release.folder import PYPI, SUMS, places_of_asset
from torchwheel.release.forge import Asset, ForgeRelease
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.text import join_names, quote

_ATTEMPTS = 4
_PAUSE = 5.0
"""Seconds before the second attempt; each further one waits as long again."""
_FIRST_POLL, _LONGEST_POLL = 1.0, 15.0
"""Seconds between two looks at a run, which get longer."""
_LONGEST = 45 * 60.0
_RELEASE_ROLE = frozenset({"release"})


@dataclasses.dataclass(frozen=True)
class AssetPlan:
    """What is missing: names of assets to delete, of files to upload, and what forbids both."""

    delete: tuple[str, ...] = ()
    upload: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def plan_assets(files: Mapping[str, str], assets: Sequence[Asset], *, draft: bool) -> AssetPlan:
    """Compare the files of a release, hex SHA-256 by name, with the assets that are there.

    What was received in part is deleted and uploaded again, and so is a file of a draft that has
    other bytes. A published one with other bytes is a fault, and so is an asset of no file.
    """
    present = {asset.name: asset for asset in assets}
    partial = {asset.name for asset in assets if not asset.complete}
    other = {n for n in present.keys() & files.keys() - partial if present[n].sha256 != files[n]}
    faults = [
        f"{name}: expected no such asset, found one; delete it, or add the file to the release"
        for name in sorted(present.keys() - files.keys() - partial)
    ]
    if not draft:
        faults += [
            f"{name}: expected sha256 {files[name]}, found {present[name].sha256 or 'none'}, which "
            "is published; raise the version"
            for name in sorted(other)
        ]
    delete = partial | (other if draft else set())
    missing = files.keys() - present.keys() | (delete & files.keys())
    # Who reads a catalogue finds the files that it names.
    order = sorted(missing, key=lambda name: (name == CATALOGUE, name))
    return AssetPlan(tuple(sorted(delete)), tuple(order), tuple(faults))


def is_latest(tag: str, published: Sequence[ForgeRelease]) -> bool:
    """Whether a release is the one to offer: final, and no other final one is newer."""
    version = tag_version(tag)
    others = (
        version_of_ref(f"refs/tags/{release.tag_name}")
        for release in published
        if not release.draft
    )
    return not version.is_prerelease and all(
        other <= version for other in others if other and not other.is_prerelease
    )


def tag_version(tag: str) -> Version:
    """The version of a tag such as "v1.0.0"."""
    version = version_of_ref(f"refs/tags/{tag}")
    if version is None:
        raise UsageError(f'the tag: expected e.g. "v1.0.0", found "{tag}"; tag the release anew')
    return version


def publish_assets(tag: str, folder: Path, attestation: Path | None, progress: Progress) -> str:
    """Publish the files of `folder` as the release of `tag`.

    Args:
        tag: the tag; it must be on the forge.
        folder: what `assemble` wrote; folders in it are left out.
        attestation: the bundle that attests the files.
        progress: reports each step to the user.

    Returns:
        One line.

    Raises:
        TorchwheelError: a line for each fault; a release that was not public is not.
    """
    with tempfile.TemporaryDirectory() as scratch:
        files = _files(folder)
        _require_tag(files[CATALOGUE], tag)
        if attestation:
            # An asset has the name of its file.
            copy = Path(scratch, ATTESTATION)
            files[ATTESTATION] = Path(shutil.copyfile(attestation, copy))
        return _publish(tag, files, progress)


def _publish(tag: str, files: Mapping[str, Path], progress: Progress) -> str:
    version = tag_version(tag)
    hashes = {name: sha256(path) for name, path in files.items()}
    release = _release_of(tag)
    if release is None:
        progress.step(f"making a draft of {tag}")
        _persist(lambda: _create(tag), progress)
        release = _release_of(tag)
    if release is None:
        raise TorchwheelError(f"{tag}: expected a draft, found none after making it; run again")
    found = release

    def complete() -> None:
        plan = plan_assets(hashes, forge.assets(found), draft=found.draft)
        if plan.faults:
            raise UsageError(*(f"{tag}: {fault}" for fault in plan.faults))
        for name in plan.delete:
            forge.delete_asset(tag, name)
        for name in plan.upload:
            progress.step(f"uploading {name}")
            forge.upload(tag, [files[name]])
        left = plan_assets(hashes, forge.assets(found), draft=found.draft)
        if left != AssetPlan():
            raise TorchwheelError(
                f"{tag}: expected the files that were uploaded, found other bytes or no "
                f"{join_names((*left.delete, *left.upload))}; run again"
            )

    _persist(complete, progress)
    if found.draft:
        progress.step(f"publishing {tag}")
        latest = is_latest(tag, forge.releases())
        _persist(
            lambda: forge.publish(tag, prerelease=version.is_prerelease, latest=latest), progress
        )
    return f"{tag}: {len(files)} assets published"


def dispatch(workflow: str, branch: str, reason: str, progress: Progress) -> str:
    """Run a workflow on a branch and wait for its end.

    Args:
        workflow: the name of its file; its run's title ends with its input `reason`.
        branch: the branch.
        reason: what tells this run from all others.
        progress: reports each step to the user.

    Raises:
        TorchwheelError: it failed, or did not end in time.
    """
    tried = 0
    pause = _FIRST_POLL
    deadline = time.monotonic() + _LONGEST
    progress.step(f"{workflow} on {branch}")
    while time.monotonic() < deadline:
        runs = [
            run for run in forge.workflow_runs(workflow) if run.displayTitle.endswith(f" {reason}")
        ]
        # A newer run takes the place of one that waits; both give the same.
        started = [run for run in runs if run.conclusion != "cancelled"]
        done = [run for run in started if run.conclusion]
        if any(run.conclusion == "success" for run in done):
            return f"{workflow}: done on {branch}"
        if done:
            raise TorchwheelError(
                f"{workflow}: expected success, found {done[0].conclusion}; look at run "
                f"{done[0].databaseId}, then run this job again"
            )
        if not started and tried <= len(runs):
            forge.start_workflow(workflow, branch, reason)
            tried += 1
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_POLL)
    raise TorchwheelError(f"{workflow}: expected an end within {_LONGEST / 60:.0f} min; run again")


def check_handover(
    folder: Path, sums: str | None, attestation: Path | None, believed: Believed | None
) -> str:
    """Verify a release folder that another job has assembled: no file more, none fewer.

    Args:
        folder: what came of it.
        sums: the sha256 of SHA256SUMS, as the job that assembled gave it; None: it is not known.
        attestation: the bundle that attests the files.
        believed: whose signature it must have; needed with `attestation`.

    Returns:
        One line.

    Raises:
        TorchwheelError: a line for each fault.
    """
    found = {
        path.relative_to(folder).as_posix(): sha256(path)
        if path.is_file() and not path.is_symlink()
        else "a link or a device"
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or not path.is_dir()
    }
    if sums is not None and found.get(SUMS) != sums:
        says = f"expected sha256 {sums}, as the job that assembled it says"
        raise TorchwheelError(f"{folder / SUMS}: {says}, found {found.get(SUMS, 'no such file')}")
    listed = dict(listed_files(folder / SUMS))
    whole = CATALOGUE in found and found[CATALOGUE] == listed.get(CATALOGUE)
    taken = read_catalogue(folder / CATALOGUE).taken if whole else ()
    expected = {SUMS: found[SUMS]} | {
        place: digest for name, digest in listed.items() for place in places_of_asset(name, taken)
    }
    faults = [
        f"{folder / name}: expected {expected.get(name, 'no such file')}, as {SUMS} says, found "
        f"{found.get(name, 'none')}; assemble the release again"
        for name in sorted(found.keys() | expected.keys())
        if found.get(name) != expected.get(name)
    ]
    if faults:
        raise TorchwheelError(*faults)
    says = f"{folder}: {len(found)} files are those of {SUMS}"
    if attestation is None or believed is None:
        return says
    verify_files({folder / name: _RELEASE_ROLE for name in listed}, [attestation], believed)
    return f"{says}, attested by {believed.policy.workflows['release']}"


def check_published(
    tag: str,
    folder: Path,
    progress: Progress,
    *,
    attestation: Path | None = None,
    pypi: bool = False,
) -> str:
    """Compare what is public with the files of `folder`: the assets, and with `pypi` its files.

    Args:
        tag: the tag.
        folder: what `assemble` wrote.
        progress: reports each step to the user.
        attestation: the bundle that must be public beside them; None: it is not looked at.
        pypi: whether PyPI must have its files.

    Raises:
        TorchwheelError: something has other bytes, or is missing.
    """
    release = _release_of(tag)
    if release is None or release.draft:
        raise TorchwheelError(f"{tag}: expected a public release, found none; publish its assets")
    hashes = {name: sha256(path) for name, path in _files(folder).items()}
    found = [one for one in forge.assets(release) if attestation or one.name != ATTESTATION]
    attested = {ATTESTATION: sha256(attestation)} if attestation else {}
    plan = plan_assets(hashes | attested, found, draft=False)
    faults = [f"{tag}: {fault}" for fault in plan.faults]
    faults += [f"{tag}: expected {name}, which is no asset; publish it" for name in plan.upload]
    if faults:
        raise TorchwheelError(*faults)
    if not pypi:
        return f"{tag}: {len(hashes)} assets are those of {folder}"
    uploads = sorted((folder / PYPI).iterdir())
    progress.step("the files of PyPI")
    _persist(lambda: _check_index(uploads), progress)
    return f"{tag}: {len(hashes)} assets and {len(uploads)} files of PyPI are those of {folder}"


def _check_index(uploads: Sequence[Path]) -> None:
    """The package index has each file, with the same bytes."""
    faults = []
    for project, files in itertools.groupby(uploads, key=_project_of):
        offered = files_offered(project)
        for path in files:
            found = {file.sha256 for file in offered if file.name == path.name}
            if not found:
                faults.append(f"{path.name}: expected it on PyPI, found none; upload it")
            elif found != {expected := sha256(path)}:
                other = join_names(sorted(digest or "none" for digest in found - {expected}))
                faults.append(
                    f"{path.name}: expected sha256 {expected} on PyPI, found {other}; "
                    "raise the version"
                )
    if faults:
        raise TorchwheelError(*faults)


def _project_of(path: Path) -> str:
    try:
        if path.suffix == ".whl":
            return parse_wheel_filename(path.name)[0]
        return parse_sdist_filename(path.name)[0]
    except (InvalidWheelFilename, InvalidSdistFilename) as error:
        raise UsageError(f"{path}: expected a wheel or an sdist, found neither") from error


def _require_tag(catalogue: Path, tag: str) -> None:
    """An index makes its links from the tag in the catalogue."""
    found = read_catalogue(catalogue).tag
    if found != tag:
        raise UsageError(
            f"{catalogue}: expected tag {quote(tag)}, found {quote(found)}; "
            f"assemble the release with --version {tag}"
        )


def _create(tag: str) -> None:
    if _release_of(tag) is None:
        forge.create_draft(tag)


def _release_of(tag: str) -> ForgeRelease | None:
    found = [release for release in forge.releases() if release.tag_name == tag]
    if len(found) > 1:
        raise UsageError(f"{tag}: expected one release, found {len(found)}; delete the drafts")
    return found[0] if found else None


def _files(folder: Path) -> dict[str, Path]:
    """The assets of a release folder, by name."""
    if not (folder / CATALOGUE).is_file():
        raise UsageError(f"{folder}: expected a release, found no {CATALOGUE}; assemble it first")
    for path in (found := sorted(folder.iterdir())):
        if path.is_symlink():
            raise UsageError(f"{path}: expected a file, found a link; assemble the release again")
    return {path.name: path for path in found if path.is_file()}


def _persist(step: Callable[[], None], progress: Progress) -> None:
    """Repeat a step that the forge let down. A wrong call or release is not repeated."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            step()
        except UsageError:
            raise
        except TorchwheelError as error:
            if attempt == _ATTEMPTS:
                raise
            progress.say(f"{error}; attempt {attempt + 1} of {_ATTEMPTS}")
            time.sleep(_PAUSE * attempt)
        else:
            return
