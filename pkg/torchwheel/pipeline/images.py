"""The images of a selection: `torchwheel images` and `torchwheel base-images`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from torchwheel.image.build import BuiltImage, ensure_image, make_base
from torchwheel.image.engine import Engine, find_engine
from torchwheel.image.recipes import BaseImage, Image, emulated_image, image_of, service_of
from torchwheel.image.registry import (
    VARIABLE,
    ImagesLock,
    Registry,
    digest_of_base,
    push_image,
    registry_of,
    write_lock,
)
from torchwheel.matrix.load import load
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import select
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.toolkit.cache import cache_folder


def images(
    matrix_file: Path, names: Sequence[str], progress: Progress, *, push: bool = False
) -> str:
    """Pull or build the missing images of the variants; returns a line for each image.

    With `push` they are pushed to the registry, and the lock pins them as they are there.
    """
    cache, engine = cache_folder(), find_engine()
    matrix, root = load(matrix_file), matrix_file.resolve().parent
    registry = registry_of(matrix, root)
    if push and registry.address is None:
        raise UsageError(
            "images --push: expected a registry, found none; name it in containers.registry of "
            f"matrix.yaml or in {VARIABLE}"
        )
    needed = _images(matrix, root, names)
    built: dict[str, BuiltImage] = {}
    for image in needed:
        one = ensure_image(engine, image, cache, progress, registry)
        if one.reference not in built or one.origin != "kept":
            built[one.reference] = one
    lines = [f"{one.origin:6}  {name}" for name, one in built.items()]
    if push:
        lines += _push(engine, registry, needed, list(built), progress)
    return "\n".join(lines)


def _push(
    engine: Engine,
    registry: Registry,
    needed: Sequence[Image],
    references: Sequence[str],
    progress: Progress,
) -> Iterator[str]:
    """Push the images and pin them; yields a line for each."""
    address = registry.address
    assert address  # noqa: S101 - the caller has looked
    lock = registry.lock()
    pinned: dict[str, str] = {}
    for reference in references:
        progress.step(f"pushing {reference}")
        key = reference.partition("/")[2].partition("/")[2]
        pinned[key] = push_image(engine, address, reference)
        yield f"pushed  {address}/{key} {pinned[key]}"
    # Of an image that was pushed under another recipe the old digest is of no use any more.
    fresh = {key.partition(":")[0] for key in pinned}
    others = {key: at for key, at in lock.images.items() if key.partition(":")[0] not in fresh}
    publics = dict.fromkeys(base.public for image in needed for base in _bases(image))
    found = {name: digest_of_base(engine, name) for name in publics}
    bases = {**lock.bases, **{name: at for name, at in found.items() if at}}
    write_lock(registry, ImagesLock({**others, **pinned}, bases))


def base_images(matrix_file: Path, names: Sequence[str], progress: Progress) -> str:
    """Make the base images of the variants' images again: Debian releases."""
    engine = find_engine()
    matrix, root = load(matrix_file), matrix_file.resolve().parent
    service = service_of(matrix.containers) if matrix.containers else None
    needed = _images(matrix, root, names)
    bases = dict.fromkeys(base for image in needed for base in _bases(image))
    for base in bases:
        make_base(engine, base, progress, service)
    return "\n".join(f"made  {base.local}" for base in bases)


def _images(matrix: Matrix, root: Path, names: Sequence[str]) -> list[Image]:
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
