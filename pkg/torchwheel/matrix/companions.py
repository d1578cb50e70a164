"""Rules of companions: each is the folder of another distribution of this repository."""

from collections.abc import Collection, Iterator
from pathlib import Path

from torchwheel.matrix.finding import Finding
from torchwheel.matrix.model import Matrix
from torchwheel.shown import quoted

PROJECT = "pyproject.toml"


def companions_there(matrix: Matrix, root: Path) -> Iterator[Finding]:
    """Each folder lies below `root`, the folder of matrix.yaml, and can be built."""
    seen = [(root / matrix.project.source).resolve()]
    for i, name in enumerate(matrix.project.companions):
        folder = (root / name).resolve()
        if what := _fault(folder, root.resolve(), seen):
            yield ("project", "companions", i), f"{quoted(name)} {what}"
        seen.append(folder)


def _fault(folder: Path, root: Path, seen: Collection[Path]) -> str | None:
    if not folder.is_relative_to(root):
        return f"leads out of the project, to {folder}"
    if not folder.is_dir():
        return f"is no folder; expected that of a distribution, with its {PROJECT}"
    if not (folder / PROJECT).is_file():
        return f"has no {PROJECT}; expected the folder of a distribution"
    if folder in seen:
        return "is the project itself or listed twice; expected another distribution"
    return None
