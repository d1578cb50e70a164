"""Data files: tables and locks that the code reads, and the one function that reads them."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def read(name: str) -> Any:  # noqa: ANN401 - JSON of our own, typed by its reader
    """What the data file `name` holds."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))
