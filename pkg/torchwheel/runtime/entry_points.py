"""Imports the extension module of entry points over DLPack that a universal wheel may have."""

import ctypes
import importlib.machinery
import importlib.util
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from torchwheel.builder.extension import LIBRARIES, Extension
from torchwheel.claims import Part
from torchwheel.errors import TorchwheelError
from torchwheel.runtime.parts import give_kernels, verified_file
from torchwheel.runtime.prebuilt import installed_claims

_EXCHANGE_API = "__dlpack_c_exchange_api__"


class EntryPoints:
    """The module, which is one more front end: the loader gives it the kernels of each GPU."""

    def __init__(self, part: Part, package: Path) -> None:
        """Verify the file and import it.

        Raises:
            Exception: it is not the file that was installed, or does not load.
        """
        file = verified_file(part, package)
        name = f"{package.name}.{LIBRARIES}.{part.kind}.{part.name}"
        loader = importlib.machinery.ExtensionFileLoader(name, str(file))
        spec = importlib.util.spec_from_file_location(name, file, loader=loader)
        if spec is None:
            raise TorchwheelError(f"{part.file}: no extension module of this Python")
        self.module: ModuleType = importlib.util.module_from_spec(spec)
        loader.exec_module(self.module)
        self._library = ctypes.CDLL(str(file))

    def use(self, kernels: Mapping[int, ctypes.CDLL]) -> None:
        """Take the kernel library of each GPU; one that does not fit leaves the Python way."""
        give_kernels(self._library, kernels)


def import_entry_points(extension: Extension, package: Path) -> EntryPoints | None:
    """The module of the installed wheel; None if it has none, or none for this torch and Python.

    A free-threaded CPython loads no module of the limited API, and torch has the exchange API since
    2.10.
    """
    import torch  # noqa: PLC0415 - the doctor reads this package where there is no torch

    if not hasattr(torch.Tensor, _EXCHANGE_API) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    claims = installed_claims(extension.package)
    parts = [part for part in claims.parts if part.kind == "entry_points"] if claims else []
    return EntryPoints(parts[0], package) if parts else None
