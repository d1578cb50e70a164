"""Finds and loads the native library of the installed package, and remembers how that went."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

_FOLDER = Path(__file__).parent / "_lib"


@dataclass(frozen=True)
class NativeStatus:
    """The library in use, or why there is none."""

    library: Path | None
    reason: str

    @property
    def loaded(self) -> bool:
        """Whether a native library registered its kernels."""
        return self.library is not None


_status = NativeStatus(None, "not looked for yet")


def native_status() -> NativeStatus:
    """Which native library is loaded, or why none is."""
    return _status


def load(folder: Path = _FOLDER) -> NativeStatus:
    """Load the first library in `folder` that this torch accepts. Never raises.

    Without a native library the operators run on their reference. A library that is there and does
    not load is worth one warning.
    """
    global _status  # noqa: PLW0603
    refused = []
    for library in sorted(folder.glob("*.so")):
        try:
            torch.ops.load_library(library)
        except Exception as error:  # whatever it is, the reference still works
            refused.append(f"{library.name}: {_first_line(error)}")
        else:
            _status = NativeStatus(library, f"loaded {library.name}")
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


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
