"""The description of a cached library, in a file beside it."""

import dataclasses
import json
from typing import Any

ENTRY_FILE = "entry.json"


@dataclasses.dataclass(frozen=True)
class CacheEntry:
    """A library of the cache.

    Attributes:
        content: the content part of its key, which is also the folder's name.
        name: the operator's name, e.g. "fusedops.bias_act".
        archs: the arch list that it was built for.
        toolkit: the toolkit and host compiler that built it.
        torch: the torch that it is for.
        file: the library's file name.
        size: the library's size in bytes.
        sha256: the hash of its bytes.
    """

    content: str
    name: str
    archs: tuple[str, ...]
    toolkit: str
    torch: str
    file: str
    size: int
    sha256: str


def dump_entry(entry: CacheEntry) -> str:
    """The file's text."""
    return json.dumps(dataclasses.asdict(entry), indent=1) + "\n"


def load_entry(data: bytes) -> CacheEntry:
    """Parse the file's text. Raises a ValueError if it is malformed."""
    try:
        read = json.loads(data)
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if not isinstance(read, dict) or read.keys() != _TYPES.keys():
        raise ValueError(f"has not the fields {', '.join(_TYPES)}")
    for name, kind in _TYPES.items():
        if type(read[name]) is not kind:
            raise ValueError(f"{name}: {kind.__name__} expected")
    if not all(isinstance(arch, str) for arch in read["archs"]):
        raise ValueError("archs: texts expected")
    file = read["file"]
    if file in {"", ".", ".."} or "/" in file or not file.isprintable():
        raise ValueError("file: the name of a file beside it expected")
    return CacheEntry(**{**read, "archs": tuple(read["archs"])})


_TYPES: dict[str, type[Any]] = {
    **{field.name: str for field in dataclasses.fields(CacheEntry)},
    "archs": list,
    "size": int,
}
