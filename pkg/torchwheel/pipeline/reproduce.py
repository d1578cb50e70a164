"""Builds a variant once more: in another folder, at another time, with nothing kept."""

import dataclasses
import shutil
import tempfile
import zipfile
from pathlib import Path

from torchwheel.errors import TorchwheelError
from torchwheel.files import sha256
from torchwheel.image.build import Built
from torchwheel.matrix.resolve import Variant
from torchwheel.pipeline import in_container, on_host
from torchwheel.pipeline.clock import Clock
from torchwheel.pipeline.run import Run
from torchwheel.pipeline.sources import stage


def reproduce(run: Run, variant: Variant, image: Built | None, wheel: Path, out: Path) -> None:
    """Raise if a second build of `variant` differs from `wheel`; `out` is a scratch folder."""
    with tempfile.TemporaryDirectory(prefix="torchwheel-again-") as folder:
        root = Path(folder).resolve()
        stage(run.source, root / run.matrix.project.source)
        # What is kept between builds is kept by the project's folder: here, nothing.
        again = dataclasses.replace(run, root=root, launcher=())
        second = out / "again"
        second.mkdir()
        try:
            if image is None or run.engine is None:
                found = on_host.build(again, variant, second, Clock())
            else:
                found, _ = in_container.build(
                    again, variant, run.engine, image, second, tried=False
                )
        finally:
            shutil.rmtree(again.kept(variant).parent, ignore_errors=True)
        if sha256(found) != sha256(wheel):
            raise TorchwheelError(f"not reproducible: {_difference(wheel, found)}")


def _difference(first: Path, second: Path) -> str:
    """Where two wheels differ: their names, or the first member that is not the same."""
    if first.name != second.name:
        return f"the second build is named {second.name}, not {first.name}"
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        names = sorted({*one.namelist(), *other.namelist()}, key=lambda n: (".dist-info/" in n, n))
        for name in names:
            if name not in one.namelist() or name not in other.namelist():
                return f"{name} is in one of two builds of {first.name} only"
            if one.read(name) != other.read(name):
                return f"{name} differs between two builds of {first.name}"
    return f"two builds of {first.name} pack the same files differently"
