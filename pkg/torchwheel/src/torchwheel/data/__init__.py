"""Data files of the pipeline: tables, locks and recipes of images."""

from pathlib import Path
from typing import Any

from torchwheel_runtime.json_files import read_json

FOLDER = Path(__file__).parent


def read(name: str) -> Any:  # noqa: ANN401 - JSON of our own, typed by its reader
    """What the data file `name` holds."""
    return read_json(FOLDER / name, object, do="reinstall torchwheel")
