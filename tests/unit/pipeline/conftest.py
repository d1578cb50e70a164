from collections.abc import Callable
from pathlib import Path

import pytest

from torchwheel.matrix.load import load
from torchwheel.matrix.sections import Matrix
from torchwheel.pipeline.inputs import Run
from torchwheel_runtime.console import Quiet

FULL = Path(__file__).parents[1] / "matrix" / "full.yaml"


@pytest.fixture
def run_of(tmp_path: Path) -> Callable[..., Run]:
    """`run_of(matrix, root)`: a run with folders of its own; by default of the full matrix."""

    def make(matrix: Matrix | None = None, root: Path = tmp_path, **fields: object) -> Run:
        (tmp_path / "cache").mkdir(exist_ok=True)
        run = {
            **{"matrix": matrix or load(FULL), "root": root, "source": root},
            **{"dist": tmp_path / "dist", "cache": tmp_path / "cache", "sources": "digest"},
            **{"launcher": (), "progress": Quiet()},
        }
        return Run(**{**run, **fields})

    return make
