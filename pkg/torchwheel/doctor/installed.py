"""Which distributions are installed, and the native libraries that came with one."""

import difflib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from torchwheel import claims as claims_file
from torchwheel.doctor.dist_info import SUFFIX, DistInfo
from torchwheel.inspect.wheel import ELF_MAGIC

_VENDORED = ".libs"
"""End of the folder of libraries that auditwheel grafted in: they are other projects'."""


def dist_infos(path: Sequence[str] = sys.path) -> list[Path]:
    """The dist-info folders of this Python, in the order in which it looks."""
    roots = dict.fromkeys(Path(entry or ".") for entry in path)
    return [
        found
        for root in roots
        if root.is_dir()
        for found in sorted(root.glob(f"*{SUFFIX}"))
        if found.is_dir()
    ]


def key(folder: Path) -> str:
    """The name of a dist-info folder's distribution, as pip compares names."""
    return canonicalize_name(folder.name.removesuffix(SUFFIX).partition("-")[0])


def with_claims(folders: Iterable[Path]) -> list[str]:
    """Names of the distributions that torchwheel made."""
    return sorted({key(folder) for folder in folders if (folder / claims_file.FILE).exists()})


def find(name: str, folders: Sequence[Path]) -> list[Path]:
    """Folders of the distribution of that name, else of the one that has such a package."""
    wanted = canonicalize_name(name)
    named = [folder for folder in folders if key(folder) == wanted]
    return named or [folder for folder in folders if _has_package(folder, name)]


def near(name: str, folders: Iterable[Path]) -> list[str]:
    """Names of distributions that are most like `name`."""
    known = sorted({key(folder) for folder in folders})
    return difflib.get_close_matches(canonicalize_name(name[:100]), known, n=3, cutoff=0.6)


def libraries(root: Path, info: DistInfo | None, folders: Iterable[Path]) -> tuple[Path, ...]:
    """Native libraries: those installed, and those that lie in the package's own folders.

    Args:
        root: the folder that it is installed in.
        info: what its dist-info says; None if it has none.
        folders: of the package, which may lie elsewhere (an editable installation).
    """
    listed = (root / file for file in (info.files if info else ()))
    lying = (file for folder in folders for file in folder.rglob("*.so*"))
    found = (file.resolve() for file in (*listed, *lying) if _is_library(file))
    return tuple(sorted(set(found)))


def _is_library(file: Path) -> bool:
    if not (file.suffix == ".so" or ".so." in file.name):
        return False
    if any(part.endswith(_VENDORED) for part in file.parts):
        return False
    try:
        with file.open("rb") as opened:
            return opened.read(4) == ELF_MAGIC
    except OSError:
        return False


def _has_package(folder: Path, name: str) -> bool:
    """Whether a package or module of that name came with the distribution."""
    for file in ("top_level.txt", "RECORD"):
        try:
            lines = (folder / file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        if any(line == name or line.startswith((f"{name}/", f"{name}.")) for line in lines):
            return True
    return False
