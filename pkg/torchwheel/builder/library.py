"""What an extension says of its native library."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class NativeLibrary:
    """Sources of one native library, as globs relative to the project's folder.

    Attributes:
        package: the Python package that will hold a stable library, e.g. "fusedops._lib".
        device: device code (.cu); it includes no torch header.
        host: torch-free host code (.cpp).
        bindings: per ABI flavour, the files that meet torch; they include no Python.h.
        module: the extension module that an aten library is, e.g. "fusedops._C".
        python: files of that module that meet Python, through pybind11; they include no torch
            header, so one object serves every torch.
        include_dirs: folders for -I.
        macros: preprocessor macros, name to value ("" for none).
    """

    package: str
    device: tuple[str, ...]
    host: tuple[str, ...]
    bindings: Mapping[str, tuple[str, ...]]
    module: str = ""
    python: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    macros: Mapping[str, str] = dataclasses.field(default_factory=dict)
