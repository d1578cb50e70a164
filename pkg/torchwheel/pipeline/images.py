"""The images of a selection: `torchwheel images` and `torchwheel base-images`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from torchwheel.console import Progress
from torchwheel.image.build import ensure_image, make_base
from torchwheel.image.engine import find_engine
from torchwheel.image.recipes import BaseImage, Image, emulated_image, image_of
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.toolkit.cache import cache_folder


def images(matrix_file: Path, names: Sequence[str], progress: Progress) -> str:
    """Build the missing images of the variants; returns a line for each image."""
    engine, cache = find_engine(), cache_folder()
    fresh: dict[str, bool] = {}
    for image in _images(matrix_file, names):
        built = ensure_image(engine, image, cache, progress)
        fresh[built.reference] = fresh.get(built.reference, False) or built.fresh
    return "\n".join(f"{'built' if new else 'kept '}  {name}" for name, new in fresh.items())


def base_images(matrix_file: Path, names: Sequence[str], progress: Progress) -> str:
    """Make the base images of the variants' images again: Debian releases."""
    engine = find_engine()
    bases = dict.fromkeys(base for image in _images(matrix_file, names) for base in _bases(image))
    for base in bases:
        make_base(engine, base, progress)
    return "\n".join(f"made  {base.local}" for base in bases)


def _images(matrix_file: Path, names: Sequence[str]) -> list[Image]:
    matrix = load(matrix_file)
    root = matrix_file.resolve().parent
    variants = select(matrix, tuple(names) or ("release",))
    native = [build for variant in variants for build in variant.builds]
    emulated = [emulated_image(matrix, variant, root) for variant in native]
    return [image_of(matrix, v, root) for v in native] + [image for image in emulated if image]


def _bases(image: Image) -> Iterator[BaseImage]:
    for needed in image.needs.values():
        if isinstance(needed, BaseImage):
            yield needed
        else:
            yield from _bases(needed)
