"""The run-time half: loads an extension prebuilt, builds it at first use, or falls back."""

from torchwheel_runtime.runtime.loader import build_now, entry_points, load, load_now, status_of
from torchwheel_runtime.runtime.prebuilt import load_module
from torchwheel_runtime.runtime.status import ExtensionStatus, OperatorStatus

__all__ = [
    "ExtensionStatus",
    "OperatorStatus",
    "build_now",
    "entry_points",
    "load",
    "load_module",
    "load_now",
    "status_of",
]
