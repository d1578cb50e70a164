"""Finds and loads the native library of the installed package, and remembers how that went.

There are two kinds. A stable library, in the folder _lib, registers its kernels with any torch from
its floor on. The extension module _C is for one torch and one Python; it has entry points besides.
"""

import importlib
import importlib.machinery
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

_PACKAGE = Path(__file__).parent
_FOLDER = _PACKAGE / "_lib"
_MODULE = "fusedops._C"


@dataclass(frozen=True)
class NativeStatus:
    """The library in use, or why there is none.

    Attributes:
        library: its file.
        reason: one line: what was loaded, or why nothing was.
        module: the extension module, where the library is one.
    """

    library: Path | None
    reason: str
    module: ModuleType | None = None

    @property
    def loaded(self) -> bool:
        """Whether a native library registered its kernels."""
        return self.library is not None


_status = NativeStatus(None, "not looked for yet")


def native_status() -> NativeStatus:
    """Which native library is loaded, or why none is."""
    return _status


def load(folder: Path = _FOLDER, package: Path = _PACKAGE) -> NativeStatus:
    """Load the first library that this torch accepts: those in `folder`, then _C. Never raises.

    Without a native library the operators run on their reference. A library that is there and does
    not load is worth one warning.
    """
    global _status  # noqa: PLW0603
    refused = []
    for library in (*sorted(folder.glob("*.so")), *_modules(package)):
        try:
            module = _load_one(library)
        except Exception as error:  # whatever it is, the reference still works
            refused.append(f"{library.name}: {_first_line(error)}")
        else:
            _status = NativeStatus(library, f"loaded {library.name}", module)
            return _status
    if refused:
        reason = f"torch {torch.__version__} could not load " + "; ".join(refused)
        warnings.warn(
            f"fusedops: {reason}. Its operators run on plain PyTorch; install the wheel for this "
            "torch to use the kernels.",
            RuntimeWarning,
            stacklevel=2,
        )
    else:
        reason = "this installation has no native library (pure-Python wheel or source tree)"
    _status = NativeStatus(None, reason)
    return _status


def _modules(package: Path) -> list[Path]:
    """The extension module's file, if it is there and for this Python."""
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    return [path for suffix in suffixes if (path := package / f"_C{suffix}").is_file()]


def _load_one(library: Path) -> ModuleType | None:
    if library.name.startswith("_C."):
        return importlib.import_module(_MODULE)
    torch.ops.load_library(library)
    return None


def _first_line(error: BaseException) -> str:
    """Why, in one line: torch wraps the loader's own words in an error that has none of them."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    lines = str(root).splitlines()
    return lines[0] if lines else type(root).__name__
