"""Imports the extension module of entry points over DLPack that a universal wheel may have."""

import ctypes
import dataclasses
import sysconfig
from pathlib import Path
from types import ModuleType

from torchwheel_runtime.builder.extension import LIBRARIES, Extension
from torchwheel_runtime.claims import Part
from torchwheel_runtime.runtime.parts import verify_part
from torchwheel_runtime.runtime.prebuilt import import_from, installed_claims

_EXCHANGE_API = "__dlpack_c_exchange_api__"


@dataclasses.dataclass(frozen=True)
class EntryPoints:
    """The module, which is one more front end.

    Attributes:
        module: the module; its `entry_point` makes a function.
        library: its library, loaded.
        interface: the digest of the headers that it shares with kernel libraries.
    """

    module: ModuleType
    library: ctypes.CDLL
    interface: str


def import_entry_points(extension: Extension, package: Path) -> EntryPoints | None:
    """The module of the installed wheel; None if it has none, or none for this torch and Python.

    A free-threaded CPython crashes in a module of the limited API, and torch has the exchange API
    since 2.10.

    Raises:
        Exception: it is not the file that was installed, or does not load.
    """
    import torch  # noqa: PLC0415 - the doctor reads this package where there is no torch

    if not hasattr(torch.Tensor, _EXCHANGE_API) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    claims = installed_claims(extension.package)
    parts = [part for part in claims.parts if part.kind == "entry_points"] if claims else []
    return _imported(parts[0], package) if parts else None


def _imported(part: Part, package: Path) -> EntryPoints:
    library, interface = verify_part(part, package)
    name = f"{package.name}.{LIBRARIES}.{part.kind}.{part.name}"
    return EntryPoints(import_from(name, library), library.load(), interface)
