"""The description of a cached library, in a file beside it."""

import dataclasses
import json

from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.json_files import FileName, parse_json

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
    file: FileName
    size: int
    sha256: str


def dump_entry(entry: CacheEntry) -> str:
    """The file's text."""
    return json.dumps(dataclasses.asdict(entry), indent=1) + "\n"


def load_entry(data: bytes) -> CacheEntry:
    """Parse the file's text. Raises a ValueError if it is malformed."""
    try:
        return parse_json(data, CacheEntry, ENTRY_FILE)
    except MalformedError as error:
        raise ValueError(error.reason) from error
