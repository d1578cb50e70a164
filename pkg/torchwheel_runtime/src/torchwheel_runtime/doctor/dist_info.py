"""Reads installed distributions: dist-info folders, and the egg-info of what no wheel installed.

Malformed entries are reported; the rest is used. importlib.metadata does neither: it leaves out the
files that RECORD names and that are gone, raises on a malformed file, and says of an egg which
sources it was built of.
"""

import dataclasses
import difflib
import email.parser
import email.policy
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import Literal

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
from torchwheel_runtime.validate.torch_rules import OF_ITS_AUTHORS
from torchwheel_runtime.variant_format import FILE as LABEL_FILE
from torchwheel_runtime.variant_format import Properties, read_labels
from torchwheel_runtime.versions import required_range

SUFFIX = ".dist-info"
_EGG_INFO = "EGG-INFO"
"""The metadata in an egg, a folder NAME-VERSION-pyX.Y.egg that easy-install.pth lists."""
Kind = Literal["wheel", "egg", "zipped egg", "setup.py", "egg-link"]
"""What installed a distribution; an egg-link leads to a source tree."""
_OF_SOURCE_TREES: tuple[Kind, ...] = ("setup.py", "egg-link")
"""Kinds that stand behind others: a source tree may be on the path beside what was built of it."""
_LONGEST_REQUIREMENT = 200
"""Characters of a requirement of torch, which remedies repeat as a whole."""


@dataclasses.dataclass(frozen=True)
class DistInfo:
    """The content of a dist-info folder, or of the metadata of what no wheel installed.

    Attributes:
        name: as in METADATA, e.g. "torch-scatter".
        version: e.g. "2.1.2+pt211cu130".
        packages: the modules that it installs, the main one first.
        files: its files, relative to the folder that it is installed in.
        claims: its claims (torchwheel.json); None if it has none.
        torch: the range of torch that it requires, e.g. ">=2.11"; empty for any torch, None if it
            does not require torch.
        requires: the distributions that it requires, normalised.
        tags: its wheel tags; empty if WHEEL has none.
        problems: files that are missing or malformed, a line each.
        irregular: what is no file in the folder, as a pipe: whoever reads it may wait for ever.
        kind: what installed it.
        ours: whether torchwheel built it. Then its name may be asked of an index, which may have a
            stranger's package of any other name.
        labels: what the variant.json of a labelled wheel says; empty for another.
    """

    name: str
    version: str
    packages: tuple[str, ...] = ()
    files: tuple[PurePosixPath, ...] = ()
    claims: Claims | None = None
    torch: str | None = None
    requires: frozenset[str] = frozenset()
    tags: frozenset[Tag] = frozenset()
    problems: tuple[str, ...] = ()
    irregular: tuple[Path, ...] = ()
    kind: Kind = "wheel"
    ours: bool = False
    labels: Mapping[str, Properties] = dataclasses.field(default_factory=dict)


def read_dist_info(folder: Path) -> DistInfo:
    """Read the folder, e.g. `site-packages/demo-1.0.0.dist-info`, or another of `dist_infos`."""
    problems: list[str] = []
    key, version = _key_and_version(folder)
    kind = _kind(folder)
    metadata = _parse_headers(read_metadata(folder, problems))
    name = _safe_word(metadata.get("Name", key))
    top = read_text(folder, "top_level.txt")
    if kind == "wheel" and not _is_of_a_system(folder):
        files = tuple(map(PurePosixPath, _read_record(folder, problems)))
    else:
        files = tuple(_files_of_modules(folder.parent, top or key.replace("-", "_")))
    if kind == "egg-link":
        source = (read_text(folder.parent, folder.name, problems) or "").partition("\n")[0]
        problems.append(f"{folder.name} leads to {quote(source)}, where it is not")
    torch, requires = _requirements(metadata, problems)
    return DistInfo(
        name=name,
        version=_safe_word(metadata.get("Version", version)),
        packages=_packages(name, files, top),
        files=files,
        claims=_read_claims(folder, problems),
        labels=_read_labels(folder, problems),
        torch=torch,
        requires=requires,
        tags=_read_tags(folder, problems) if kind == "wheel" else frozenset(),
        problems=tuple(problems),
        irregular=tuple(sorted(filter(is_irregular, folder.glob("*")))),
        kind=kind,
        ours=(folder / claims_file.FILE).exists(),
    )


def read_metadata(folder: Path, problems: list[str] | None = None) -> str:
    """The text of METADATA, or of an egg's PKG-INFO with what its requires.txt names."""
    kind = _kind(folder)
    if kind == "wheel":
        return read_text(folder, "METADATA", problems) or ""
    if kind in ("zipped egg", "egg-link"):  # not read
        return ""
    if not folder.is_dir():  # distutils writes a file
        return read_text(folder.parent, folder.name, problems) or ""
    text = read_text(folder, "PKG-INFO", problems) or ""
    if "\nRequires-Dist:" in text:
        return text
    lines = (read_text(folder, "requires.txt") or "").partition("[")[0].split("\n")
    return "".join(f"Requires-Dist: {line}\n" for line in lines if line.strip()) + text


def _kind(folder: Path) -> Kind:
    if folder.name == _EGG_INFO:
        return "egg"
    kinds: dict[str, Kind] = {
        ".egg": "zipped egg",
        ".egg-info": "setup.py",
        ".egg-link": "egg-link",
    }
    return kinds.get(folder.suffix, "wheel")


def _is_of_a_system(folder: Path) -> bool:
    """Whether conda or a distribution installed it, which keeps its own list and no RECORD."""
    installer = (read_text(folder, "INSTALLER") or "").strip()
    return installer not in ("", "pip", "uv") and not (folder / "RECORD").exists()


def is_editable(folder: Path) -> bool:
    """Whether it leads to a source tree (PEP 660): RECORD names no file of that."""
    origin = read_text(folder, "direct_url.json") or ""
    return re.search(r'"editable"\s*:\s*true', origin) is not None


def _files_of_modules(root: Path, modules: str) -> Iterator[PurePosixPath]:
    """The files of modules and packages: no list names those that `setup.py` installed."""
    for module in filter(str.isidentifier, modules.split()):
        for path in (*root.glob(f"{module}.*"), *(root / module).rglob("*")):
            if path.is_file() and not path.match("*.egg-info"):
                yield PurePosixPath(path.relative_to(root))


def irregular_entry_points(folders: Iterable[Path]) -> list[Path]:
    """The entry_points.txt that the import of torch waits for: it reads those of every package."""
    return [path for folder in folders if is_irregular(path := folder / "entry_points.txt")]


def replace_command(folder: Path) -> str:
    """The commands that make a dist-info folder anew, which pip cannot read.

    The authors' index is asked for what torchwheel built; of another name it may have a stranger's.
    """
    requirement = "ORIGIN`, the file or address that it was installed from"
    if (folder / claims_file.FILE).exists():
        requirement = f"{OF_ITS_AUTHORS} {shlex.quote(folder.stem.replace('-', '==', 1))}`"
    return f"`rm -r {shlex.quote(str(folder))}`, then `pip install --no-deps {requirement}"


def _safe_word(text: str) -> str:
    """A name or a version that is safe in a shell command."""
    return re.sub(r"[^\w.+!-]", "_", str(text), flags=re.ASCII).lstrip("-")


def read_text(folder: Path, name: str, problems: list[str] | None = None) -> str | None:
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


def _parse_headers(text: str) -> Message:
    return email.parser.HeaderParser(policy=email.policy.compat32).parsestr(text)


def _read_record(folder: Path, problems: list[str]) -> Mapping[str, wheel_files.RecordEntry]:
    if (text := read_text(folder, "RECORD", problems)) is None:
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
    if (text := read_text(folder, claims_file.FILE, problems)) is None:
        return None
    try:
        return claims_file.loads(text, f"{folder.name}/{claims_file.FILE}")
    except TorchwheelError as error:
        problems.append(str(error))
        return None


def _read_labels(folder: Path, problems: list[str]) -> Mapping[str, Properties]:
    """What variant.json says; empty without the file, or where it is malformed."""
    if not (folder / LABEL_FILE).exists():
        return {}
    if (text := read_text(folder, LABEL_FILE, problems)) is None:
        return {}
    try:
        return read_labels(text, f"{folder.name}/{LABEL_FILE}")
    except TorchwheelError as error:
        problems.append(str(error))
        return {}


def _requirements(metadata: Message, problems: list[str]) -> tuple[str | None, frozenset[str]]:
    """The range of torch, and the names of all that it requires."""
    found: list[Requirement] = []
    names: set[str] = set()
    for text in map(str, metadata.get_all("Requires-Dist", [])):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        names.add(canonicalize_name(requirement.name))
        if canonicalize_name(requirement.name) == "torch" and len(text) > _LONGEST_REQUIREMENT:
            problems.append(f"METADATA requires {quote(text)} of {len(text)} characters")
        else:
            found.append(requirement)
    torch = required_range("torch", found, {})
    return None if torch is None else str(torch), frozenset(names)


def _read_tags(folder: Path, problems: list[str]) -> frozenset[Tag]:
    tags: set[Tag] = set()
    headers = _parse_headers(read_text(folder, "WHEEL", problems) or "")
    for text in headers.get_all("Tag", [])[: budgets.TAGS]:
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
    """The metadata of what this Python has, in the order of its search path.

    Mostly they are dist-info folders. `setup.py` leaves a folder or a file NAME.egg-info, an egg
    EGG-INFO in itself or is a zip file, and a development installation a NAME.egg-link.
    """
    roots = dict.fromkeys(Path(entry or ".") for entry in path)
    return [found for root in roots for found in _metadata_in(root)]


def _metadata_in(root: Path) -> Iterator[Path]:
    if root.suffix == ".egg":
        info = root / _EGG_INFO
        yield from [info] if info.is_dir() else [root] if root.is_file() else []
    elif root.is_dir():
        # pip leaves a folder ~emo-1.0.dist-info where it was stopped.
        found = sorted(root.glob(f"[!~]*{SUFFIX}"))
        yield from (folder for folder in found if folder.is_dir())
        yield from sorted((*root.glob("*.egg-info"), *root.glob("*.egg-link")))


def _key_and_version(folder: Path) -> tuple[str, str]:
    """The name, as pip compares names, and the version of the metadata's folder or file."""
    path = folder.parent if folder.name == _EGG_INFO else folder
    if path.suffix == ".egg-link":
        return canonicalize_name(path.stem), ""
    name, _, version = path.stem.partition("-")
    return canonicalize_name(name), version.partition("-py")[0]


def name_key(folder: Path) -> str:
    """The name of a distribution by its metadata's folder or file, as pip compares names."""
    return _key_and_version(folder)[0]


def distributions_with_claims(folders: Iterable[Path]) -> list[str]:
    """Names of the distributions that torchwheel built."""
    return sorted({name_key(folder) for folder in folders if (folder / claims_file.FILE).exists()})


def find_distribution(name: str, folders: Sequence[Path]) -> list[Path]:
    """Folders of the distribution of that name, else of the one that installs such a module."""
    key = canonicalize_name(name)
    named = [folder for folder in folders if name_key(folder) == key]
    return _installations(named or [one for one in folders if _has_package(one, name)])


def _installations(folders: Sequence[Path]) -> list[Path]:
    """Those of one distribution that count; others of its name are of its source tree."""
    for behind in (_OF_SOURCE_TREES, _OF_SOURCE_TREES[1:]):
        if found := [folder for folder in folders if _kind(folder) not in behind]:
            return found
    return list(folders)


def similar_names(name: str, folders: Iterable[Path]) -> list[str]:
    """Names of distributions that are similar to `name`."""
    known = sorted({name_key(folder) for folder in folders})
    return difflib.get_close_matches(canonicalize_name(name[:100]), known, n=3, cutoff=0.6)


def native_libraries(
    root: Path, info: DistInfo | None, folders: Iterable[Path]
) -> tuple[Path, ...]:
    """Native libraries: those that RECORD lists, and those in the package's folders.

    These are not in `root` if the installation is editable.
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
        lines = (read_text(folder, file) or "").splitlines()
        if any(line == name or line.startswith((f"{name}/", f"{name}.")) for line in lines):
            return True
    return False
