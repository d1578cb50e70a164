"""Data files: tables and locks that the code reads, and the functions that read them."""

from pathlib import Path
from typing import Any, TypeVar

from torchwheel_runtime.json_files import read_json

T = TypeVar("T")

FOLDER = Path(__file__).parent


def read(name: str) -> Any:  # noqa: ANN401 - JSON of our own, typed by its reader
    """What the data file `name` holds."""
    return read_as(name, object)


def read_as(name: str, kind: type[T]) -> T:
    """What the data file `name` holds, as a `kind`."""
    return read_json(FOLDER / name, kind, do="reinstall torchwheel-runtime")
