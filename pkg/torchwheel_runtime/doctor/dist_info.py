"""Reads installed distributions and their dist-info folders.

Malformed entries are reported; the rest is used. importlib.metadata does neither: it leaves out the
files that RECORD names and that are gone, and raises on a malformed file.
"""

import dataclasses
import difflib
import email.parser
import email.policy
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.message import Message
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name

from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import budgets, wheel_files
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC
from torchwheel_runtime.inspect.window import WheelError, open_regular
from torchwheel_runtime.ownership import is_irregular
from torchwheel_runtime.text import quote

SUFFIX = ".dist-info"
_LONGEST_REQUIREMENT = 200
"""Characters of a requirement of torch, which remedies repeat as a whole."""


@dataclasses.dataclass(frozen=True)
class DistInfo:
    """The content of a dist-info folder.

    Attributes:
        name: as in METADATA, e.g. "torch-scatter".
        version: e.g. "2.1.2+pt211cu130".
        packages: the modules that it installs, the main one first.
        files: its files, relative to the folder that it is installed in.
        claims: its claims (torchwheel.json); None if it has none.
        torch: the range of torch that it requires, e.g. ">=2.11"; empty for any torch, None if it
            does not require torch.
        tags: its wheel tags; empty if WHEEL has none.
        problems: files that are missing or malformed, a line each.
        irregular: what is no file in the folder, as a pipe: whoever reads it may wait for ever.
    """

    name: str
    version: str
    packages: tuple[str, ...] = ()
    files: tuple[PurePosixPath, ...] = ()
    claims: Claims | None = None
    torch: str | None = None
    tags: frozenset[Tag] = frozenset()
    problems: tuple[str, ...] = ()
    irregular: tuple[Path, ...] = ()


def read_dist_info(folder: Path) -> DistInfo:
    """Read the folder, e.g. `site-packages/demo-1.0.0.dist-info`."""
    problems: list[str] = []
    folder_name, _, version = folder.name.removesuffix(SUFFIX).partition("-")
    metadata = _read_headers(folder, "METADATA", problems)
    name = _safe_word(metadata.get("Name", folder_name))
    files = tuple(map(PurePosixPath, _read_record(folder, problems)))
    return DistInfo(
        name=name,
        version=_safe_word(metadata.get("Version", version)),
        packages=_packages(name, files, _read_text(folder, "top_level.txt")),
        files=files,
        claims=_read_claims(folder, problems),
        torch=_torch_range(metadata, problems),
        tags=_read_tags(folder, problems),
        problems=tuple(problems),
        irregular=tuple(sorted(filter(is_irregular, folder.glob("*")))),
    )


def irregular_entry_points(folders: Iterable[Path]) -> list[Path]:
    """The entry_points.txt that the import of torch waits for: it reads those of every package."""
    return [path for folder in folders if is_irregular(path := folder / "entry_points.txt")]


def _safe_word(text: str) -> str:
    """A name or a version that is safe in a shell command."""
    return re.sub(r"[^\w.+!-]", "_", str(text), flags=re.ASCII).lstrip("-")


def _read_text(folder: Path, name: str, problems: list[str] | None = None) -> str | None:
    """The text of a file; None if it cannot be read, which is added to `problems` if given."""
    try:
        if is_irregular(folder / name):  # DistInfo.irregular has it
            return None
        if not (folder / name).exists():
            if problems is not None:
                problems.append(f"{folder.name} has no {name}")
            return None
        with open_regular(folder / name) as file:
            data = file.read(budgets.RECORD_BYTES + 1)
        if len(data) > budgets.RECORD_BYTES:
            raise WheelError(f"more than {budgets.RECORD_BYTES} bytes")
        return data.decode("utf-8")
    except (OSError, WheelError, UnicodeDecodeError) as error:
        if problems is not None:
            problems.append(f"{folder.name}/{name} cannot be read: {error}")
    return None


def _read_headers(folder: Path, name: str, problems: list[str]) -> Message:
    text = _read_text(folder, name, problems) or ""
    return email.parser.HeaderParser(policy=email.policy.compat32).parsestr(text)


def _read_record(folder: Path, problems: list[str]) -> Mapping[str, wheel_files.RecordEntry]:
    if (text := _read_text(folder, "RECORD", problems)) is None:
        return {}
    try:
        entries = wheel_files.parse_record(text)
    except TorchwheelError as error:
        problems.append(f"{folder.name}: {error}")
        return {}
    if odd := [name for name in entries if "\0" in name]:
        problems.append(f"{folder.name}: RECORD names {quote(odd[0])}, which no file can be named")
        return {}
    if damaged := list(_damaged_files(folder.parent, entries)):
        more = f", and {len(damaged) - 1} more like it" if len(damaged) > 1 else ""
        problems.append(f"{damaged[0]}{more}")
    return entries


def _damaged_files(root: Path, entries: Mapping[str, wheel_files.RecordEntry]) -> Iterator[str]:
    for name, entry in entries.items():
        # Python writes and removes compiled files.
        if name.endswith(".pyc"):
            continue
        try:
            size = (root / name).stat().st_size
        except OSError:
            yield f"{quote(name)} is gone"
            continue
        if entry.size is not None and size != entry.size:
            yield f"{quote(name)} has {size} bytes; {entry.size} were installed"


def _packages(name: str, files: tuple[PurePosixPath, ...], top: str | None) -> tuple[str, ...]:
    found = {
        path.parts[0].split(".")[0]
        for path in files
        if path.suffix in (".py", ".so") and not path.parts[0].startswith("__")
    }
    own = canonicalize_name(name).replace("-", "_")
    names = {name for name in (*found, *(top or "").split()) if name.isidentifier()}
    return tuple(sorted(names, key=lambda n: (n.lower() != own, n.startswith("_"), n)))


def _read_claims(folder: Path, problems: list[str]) -> Claims | None:
    if not (folder / claims_file.FILE).exists():
        return None
    if (text := _read_text(folder, claims_file.FILE, problems)) is None:
        return None
    try:
        return claims_file.loads(text, f"{folder.name}/{claims_file.FILE}")
    except TorchwheelError as error:
        problems.append(str(error))
        return None


def _torch_range(metadata: Message, problems: list[str]) -> str | None:
    for text in map(str, metadata.get_all("Requires-Dist", [])):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) == "torch":
            if len(text) > _LONGEST_REQUIREMENT:
                problems.append(f"METADATA requires {quote(text)} of {len(text)} characters")
                return None
            return str(requirement.specifier)
    return None


def _read_tags(folder: Path, problems: list[str]) -> frozenset[Tag]:
    tags: set[Tag] = set()
    for text in _read_headers(folder, "WHEEL", problems).get_all("Tag", [])[: budgets.TAGS]:
        try:
            tags |= wheel_files.read_tags([text])
        except WheelError:
            problems.append(f"{folder.name}/WHEEL: {quote(str(text))} is not a tag")
        if len(tags) > budgets.TAGS:
            problems.append(f"{folder.name}/WHEEL: more than {budgets.TAGS} tags")
            return frozenset()
    return frozenset(tags)


_VENDORED_SUFFIX = ".libs"
"""Suffix of the folder for libraries of other projects, which auditwheel copies in."""


def dist_infos(path: Sequence[str] = sys.path) -> list[Path]:
    """The dist-info folders of this Python, in the order of its search path."""
    roots = dict.fromkeys(Path(entry or ".") for entry in path)
    return [
        found
        for root in roots
        if root.is_dir()
        for found in sorted(root.glob(f"*{SUFFIX}"))
        if found.is_dir()
    ]


def name_key(folder: Path) -> str:
    """The name of a dist-info folder's distribution, as pip compares names."""
    return canonicalize_name(folder.name.removesuffix(SUFFIX).partition("-")[0])


def distributions_with_claims(folders: Iterable[Path]) -> list[str]:
    """Names of the distributions that torchwheel built."""
    return sorted({name_key(folder) for folder in folders if (folder / claims_file.FILE).exists()})


def find_distribution(name: str, folders: Sequence[Path]) -> list[Path]:
    """Folders of the distribution of that name, else of the one that installs such a module."""
    key = canonicalize_name(name)
    named = [folder for folder in folders if name_key(folder) == key]
    return named or [folder for folder in folders if _has_package(folder, name)]


def similar_names(name: str, folders: Iterable[Path]) -> list[str]:
    """Names of distributions that are similar to `name`."""
    known = sorted({name_key(folder) for folder in folders})
    return difflib.get_close_matches(canonicalize_name(name[:100]), known, n=3, cutoff=0.6)


def native_libraries(
    root: Path, info: DistInfo | None, folders: Iterable[Path]
) -> tuple[Path, ...]:
    """Native libraries: those that RECORD lists, and those in the package's folders.

    Args:
        root: the folder that it is installed in.
        info: the content of its dist-info folder; None if it has none.
        folders: folders of the package, elsewhere if the installation is editable.
    """
    listed = (root / file for file in (info.files if info else ()))
    present = (file for folder in folders for file in folder.rglob("*.so*"))
    found = (file.resolve() for file in (*listed, *present) if _is_library(file))
    return tuple(sorted(set(found)))


def _is_library(file: Path) -> bool:
    if not (file.suffix == ".so" or ".so." in file.name):
        return False
    if any(part.endswith(_VENDORED_SUFFIX) for part in file.parts):
        return False
    try:
        with open_regular(file) as opened:
            return opened.read(4) == ELF_MAGIC
    except WheelError:
        return False


def _has_package(folder: Path, name: str) -> bool:
    """Whether the distribution installs a module of that name."""
    for file in ("top_level.txt", "RECORD"):
        lines = (_read_text(folder, file) or "").splitlines()
        if any(line == name or line.startswith((f"{name}/", f"{name}.")) for line in lines):
            return True
    return False
