"""What an extension says of its native library."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class NativeLibrary:
    """Sources of one native library, as globs relative to the project's folder.

    Attributes:
        package: the Python package that will hold the library, e.g. "fusedops._lib".
        device: device code (.cu); it includes no torch header.
        host: torch-free host code (.cpp).
        bindings: per ABI flavour, the files that meet torch.
        include_dirs: folders for -I.
        macros: preprocessor macros, name to value ("" for none).
    """

    package: str
    device: tuple[str, ...]
    host: tuple[str, ...]
    bindings: Mapping[str, tuple[str, ...]]
    include_dirs: tuple[str, ...] = ()
    macros: Mapping[str, str] = dataclasses.field(default_factory=dict)
