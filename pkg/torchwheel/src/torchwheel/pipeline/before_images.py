"""What the containers of a run need of this machine and of the network, asked before any image."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from torchwheel.image.engine import Engine, find_engine
from torchwheel.image.images import check_images, collect, raise_all
from torchwheel.image.recipes import Image, image_of, python_of
from torchwheel.image.registry import registry_of
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.in_container import emulation
from torchwheel.pipeline.inputs import torch_of
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.toolkit.headers import torch_headers


def ready_engine(
    matrix: Matrix,
    variants: Sequence[Variant],
    root: Path,
    cache: Path,
    progress: Progress,
    modules: Sequence[str] = (),
) -> Engine:
    """The container engine, when everything else is at hand that the variants need.

    Args:
        matrix: the matrix.
        variants: those that containers build: with a toolkit.
        root: the folder of matrix.yaml.
        cache: torchwheel's cache.
        progress: gets the steps.
        modules: the packages that this Python must have.

    Raises:
        TorchwheelError: a line for each thing that is missing, with the way to get it.
    """
    faults: list[TorchwheelError] = []
    engine: Engine | None = None
    with collect(faults):
        engine = find_engine()
    for name in modules:
        if importlib.util.find_spec(name) is None:
            do = f"`pip install {name}` (Python 3.11 or later)"
            faults.append(TorchwheelError(f"{name} is not installed here: {do}"))
    images: list[Image] = []
    for variant in variants:
        with collect(faults):
            tried_in = emulation(matrix, variant, root)
            images += [image_of(matrix, variant, root), *([tried_in] if tried_in else [])]
    _look_up_torch(matrix, variants, cache, progress, faults)
    if engine and images:
        progress.step("checking what the images are made of")
        check_images(engine, images, progress, registry_of(matrix, root), faults)
    raise_all(faults)
    assert engine  # noqa: S101 - else there is a fault
    return engine


def _look_up_torch(
    matrix: Matrix,
    variants: Sequence[Variant],
    cache: Path,
    progress: Progress,
    faults: list[TorchwheelError],
) -> None:
    """Find the torch of each variant on the index: its file, or the headers in it."""
    seen = set()
    for variant in variants:
        # ROCm's torch is another one, and one of the stable ABI has headers for every Python.
        own = (variant.library, python_of(matrix, variant)) if variant.ordinary else ()
        of = (variant.torch_release, variant.platform, own)
        if of not in seen:
            seen.add(of)
            with collect(faults):
                if variant.ordinary:
                    torch_of(matrix, variant, cache, progress)
                else:
                    torch_headers(variant.torch_release, cache, progress)
