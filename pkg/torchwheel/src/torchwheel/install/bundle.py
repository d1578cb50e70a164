"""A bundle: a folder with all that an installation needs on a machine without a network.

`bundle.json` names the machine that it is for, and each file with its size and hash. `index/` is a
package index of one wheel for each project, with the attestations; `tests/` has smoke tests.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import stat
import urllib.parse
from collections.abc import Mapping, Sequence, Set
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from torchwheel.evidence.files import ATTESTATION
from torchwheel.index.client import JSON
from torchwheel.index.needs import KEY, IndexNote, needs_of_claims, note_json
from torchwheel.install.environment import TargetEnvironment
from torchwheel.install.page import OfferedWheel
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.fetch import Answer, Fetcher
from torchwheel_runtime.files import make_folder_atomically, sha256, write_text
from torchwheel_runtime.json_files import parse_json, read_bounded
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.text import escape, join_names, quote
from torchwheel_runtime.validate.torch_rules import describe_torch
from torchwheel_runtime.versions import minor_version, version_numbers

SCHEMA = 1
FILE, INDEX, TESTS = "bundle.json", "index", "tests"
_PAGE = "index.json"
_AGAIN = "copy the bundle again"


@dataclasses.dataclass(frozen=True)
class BundleMachine:
    """The machine that a bundle is for.

    Attributes:
        python: the implementation, the minor release and the ABI, e.g. "CPython 3.12 cp312".
        platform: e.g. "linux_x86_64".
        glibc: the oldest C library; None for another C library.
        torch: its release, and what it is built for.
        gpus: the archs of its GPUs; empty for any: each wheel is judged for those that are there.
    """

    python: str
    platform: str
    glibc: str | None
    torch: str
    gpus: tuple[str, ...]

    def text(self, without: str) -> str:
        """The facts in one line; `without` GPUs it ends so."""
        glibc = f"glibc {self.glibc}" if self.glibc else "another C library than glibc"
        gpus = f"GPU {join_names(self.gpus)}" if self.gpus else without
        return ", ".join((self.python, self.platform, glibc, self.torch, gpus))

    def takes(self, here: "BundleMachine") -> bool:
        """Whether a bundle for this machine is for the machine `here`, too."""
        same = (self.python, self.platform, self.torch) == (here.python, here.platform, here.torch)
        if self.glibc is None or here.glibc is None:
            same = same and self.glibc == here.glibc
        else:
            same = same and version_numbers(here.glibc) >= version_numbers(self.glibc)
        gpus = not self.gpus or (bool(here.gpus) and {*here.gpus} <= {*self.gpus})
        return same and gpus


def machine_of(environment: TargetEnvironment) -> BundleMachine:
    """What a bundle says of an environment."""
    abi = environment.tags[0].split("-")[1] if environment.tags else ""
    torch = environment.torch
    return BundleMachine(
        f"{environment.implementation} {minor_version(environment.python)} {abi}".rstrip(),
        environment.platform,
        environment.glibc,
        describe_torch(torch) if torch else "no torch",
        tuple(sorted({str(gpu.arch) for gpu in environment.gpus})),
    )


@dataclasses.dataclass(frozen=True)
class BundleFile:
    """What a file must be."""

    size: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class BundleManifest:
    """What bundle.json says.

    Attributes:
        machine: the machine that it is for.
        projects: what is installed, each with its version: "demo==1.0.0+cu130".
        others: names of the projects that came from another index than the one that was named, so
            that no attestation of them was asked for.
        files: each other file of the folder, by its path there.
    """

    machine: BundleMachine
    projects: tuple[str, ...]
    others: tuple[str, ...]
    files: dict[str, BundleFile]


@dataclasses.dataclass(frozen=True)
class BundledWheel:
    """A wheel that goes into a bundle, with its claims and the page that attests it, if any."""

    wheel: OfferedWheel
    path: Path
    claims: Claims | None = None
    evidence: bytes | None = None


def write_bundle(
    target: Path,
    machine: BundleMachine,
    projects: Sequence[str],
    wheels: Sequence[BundledWheel],
    others: Sequence[BundledWheel],
    tests: Path | None,
) -> str:
    """Write the folder `target`; returns the hash of its manifest.

    Raises:
        UsageError: the folder is there and is no bundle.
    """
    if target.exists() and not (target / FILE).is_file():
        raise UsageError(
            f"{target}: expected a new name or a bundle, found another; name a new one"
        )
    with make_folder_atomically(target) as folder:
        for one in (*wheels, *others):
            _write_wheel(folder / INDEX / _project(one), one)
        if tests:
            ignore = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(tests, folder / TESTS, ignore=ignore)
        written = (path for path in folder.rglob("*") if path.is_file())
        paths = {str(path.relative_to(folder)): path for path in written}
        files = {
            name: BundleFile(path.stat().st_size, sha256(path))
            for name, path in sorted(paths.items())
        }
        names = tuple(map(_project, others))
        manifest = BundleManifest(machine, tuple(projects), names, files)
        content = {"schema": SCHEMA, **dataclasses.asdict(manifest)}
        write_text(folder / FILE, json.dumps(content, indent=1) + "\n")
    return sha256(target / FILE)


def _project(one: BundledWheel) -> str:
    return canonicalize_name(one.wheel.file.partition("-")[0])


def _write_wheel(folder: Path, one: BundledWheel) -> None:
    """Write a wheel and the page of its project, as an index has them."""
    wheel = one.wheel
    if folder.exists():
        (other,) = folder.glob("*.whl")
        says = f"expected one wheel of it, found {other.name} and {wheel.file}; name its version"
        raise UsageError(f"{folder.name}: {says}")
    folder.mkdir(parents=True)
    shutil.copyfile(one.path, folder / wheel.file)
    entry: dict[str, object] = {
        "filename": wheel.file,
        "url": urllib.parse.quote(wheel.file),
        "hashes": {"sha256": wheel.sha256},
    }
    if one.claims:
        entry[KEY] = note_json(IndexNote(needs_of_claims(one.claims)))
    if one.evidence is not None:
        name = f"{wheel.file}.provenance" if wheel.provenance else ATTESTATION
        (folder / name).write_bytes(one.evidence)
        if wheel.provenance:
            entry["provenance"] = urllib.parse.quote(name)
    page = {"meta": {"api-version": "1.4"}, "name": folder.name, "files": [entry]}
    write_text(folder / _PAGE, json.dumps(page, indent=1) + "\n")


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A bundle whose files were all as its manifest says."""

    root: Path
    manifest: BundleManifest

    @property
    def index(self) -> str:
        """The address of its index."""
        return (self.root / INDEX).as_uri()

    @property
    def tests(self) -> tuple[str, ...]:
        """The paths of the smoke tests."""
        return tuple(name for name in self.manifest.files if name.startswith(f"{TESTS}/"))


def read_bundle(folder: Path, digest: str | None = None) -> Bundle:
    """Verify every file of a bundle; `digest` is the hash that its manifest must have.

    Raises:
        TorchwheelError: one line: a file is missing, is another one, or is not in the manifest.
    """
    root = Path(os.path.realpath(folder))
    path = root / FILE
    try:
        content = read_bounded(path)
    except OSError as error:
        raise UsageError(f"{folder}: expected a bundle: {explain(error)}; check --from") from None
    if digest and (found := hashlib.sha256(content).hexdigest()) != digest.lower():
        says = f"expected sha256 {escape(digest[:64])}, found {found}"
        raise TorchwheelError(f"{path}: {says}; {_AGAIN}")
    manifest = parse_json(content, BundleManifest, str(path), schema=SCHEMA, do=_AGAIN)
    for name in manifest.files:
        if not _is_inside(name):
            says = f"files: expected a path in it, found {quote(name)}"
            raise MalformedError(str(path), says, _AGAIN)
    _check_names(root, {FILE, *manifest.files})
    for name, expected in manifest.files.items():
        _check_file(root / name, expected)
    return Bundle(root, manifest)


def _check_names(root: Path, files: Set[str]) -> None:
    """Raise at the first file, link or folder that is none of `files` or has none of them."""
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    left = [root]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                name = os.path.relpath(entry.path, root)
                if name in folders and entry.is_dir(follow_symlinks=False):
                    left.append(Path(entry.path))
                elif name not in files:
                    where = escape(entry.path)
                    says = f"expected files of {FILE} alone, found it"
                    raise TorchwheelError(f"{where}: {says}; {_AGAIN}")


def _is_inside(name: str) -> bool:
    """Whether a path is one below a folder, written in one way, by printable characters."""
    pure = PurePosixPath(name)
    plain = name.isprintable() and str(pure) == name and name != FILE
    return plain and not pure.is_absolute() and ".." not in pure.parts and name != "."


def _check_file(path: Path, expected: BundleFile) -> None:
    where = escape(str(path))
    try:
        found = path.lstat()
    except OSError:
        raise TorchwheelError(f"{where}: expected a file, found none; {_AGAIN}") from None
    if not stat.S_ISREG(found.st_mode):
        raise TorchwheelError(f"{where}: expected a file, found a link, folder or device; {_AGAIN}")
    if found.st_size != expected.size:
        says = f"expected {expected.size} bytes, found {found.st_size}"
        raise TorchwheelError(f"{where}: {says}; {_AGAIN}")
    try:
        digest = sha256(path)
    except OSError as error:
        raise TorchwheelError(explain(error)) from None
    if digest != expected.sha256:
        says = f"expected sha256 {escape(expected.sha256[:64])}, found {digest}"
        raise TorchwheelError(f"{where}: {says}; {_AGAIN}")


class BundleFetch:
    """Fetches pages and files of a bundle, each by its hash again, and nothing else."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._fetcher = Fetcher()

    def page(self, url: str, accept: str) -> Answer | None:
        """A page of the index or an attestation; None if the bundle has none."""
        del accept
        name = self._name(url)
        if name not in self._bundle.manifest.files:
            return None
        content = read_bounded(self._bundle.root / name)
        if hashlib.sha256(content).hexdigest() != self._bundle.manifest.files[name].sha256:
            raise TorchwheelError(f"{escape(url)}: was changed meanwhile; {_AGAIN}")
        return Answer(url, JSON, content)

    def file(self, url: str, target: Path, sha256: str, size: int | None) -> None:
        """Copy a file to `target`."""
        name = self._name(url)
        if name not in self._bundle.manifest.files:
            says = f"expected a file of the bundle, found {quote(url)}"
            raise TorchwheelError(f"{self._bundle.root}: {says}; {_AGAIN}")
        self._fetcher.file(url, target, sha256, size)

    def copy_tests(self, folder: Path) -> None:
        """Copy the smoke tests into a new folder."""
        files: Mapping[str, BundleFile] = self._bundle.manifest.files
        for name in self._bundle.tests:
            target = folder / PurePosixPath(name).relative_to(TESTS)
            target.parent.mkdir(parents=True, exist_ok=True)
            address = (self._bundle.root / name).as_uri()
            self.file(address, target, files[name].sha256, files[name].size)

    def _name(self, url: str) -> str:
        """The path that an address has in the bundle; empty outside it."""
        root = f"{self._bundle.root.as_uri()}/"
        name = urllib.parse.unquote(url.removeprefix(root)) if url.startswith(root) else ""
        return f"{name}{_PAGE}" if name.endswith("/") else name
