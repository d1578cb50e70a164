"""`torchwheel images` and `base-images`: builds images and the images they are made of.

An image that exists is looked up once.
"""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torchwheel.image.debian import require_snapshot, service_of
from torchwheel.image.engine import Engine, find_engine
from torchwheel.image.recipes import (
    BaseImage,
    Image,
    emulated_image,
    image_digest,
    image_of,
    image_reference,
)
from torchwheel.image.registry import (
    DIGEST_LABEL,
    VARIABLE,
    ImagesLock,
    Registry,
    digest_of_base,
    pull_image,
    push_image,
    registry_of,
    write_lock,
)
from torchwheel.matrix.load import load
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import select
from torchwheel_runtime import process
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.fetch import ca_bundle
from torchwheel_runtime.files import path_inside
from torchwheel_runtime.lock import hold_lock, say_waiting
from torchwheel_runtime.ownership import trusted_folder
from torchwheel_runtime.toolkit.cache import cache_folder

_BOOTSTRAP = "mmdebstrap"


def make_base(
    engine: Engine, base: BaseImage, progress: Progress, service: str | None = None
) -> str:
    """Bootstrap a Debian release and import it; returns the digest of its content.

    Programs of a foreign machine run under emulation (qemu-user, registered with the kernel).
    A base with a day is made of the packages that `service` has of it.
    """
    machine = base.machine
    if base.snapshot and service:
        require_snapshot(service, base.snapshot, base.suite)
    tool = shutil.which(_BOOTSTRAP)
    if tool is None:
        raise TorchwheelError(
            f"{_BOOTSTRAP} makes base images and is not here: `apt-get install {_BOOTSTRAP}`"
        )
    progress.step(f"base image {base.suite}: mmdebstrap")
    with tempfile.TemporaryDirectory(prefix="torchwheel-base-") as folder:
        archive = Path(folder) / "root.tar"
        command = [tool, "--quiet", "--variant=minbase", "--include=ca-certificates"]
        # The release files of testing and unstable are often out of date on mirrors.
        command += ['--aptopt=Acquire::Check-Valid-Until "false"']
        command += [f"--architectures={machine}"] if machine else []
        # With a fixed date the same packages give the same archive on any day.
        env = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
        source = [f"{service}/debian/{base.snapshot}"] if base.snapshot and service else []
        done = process.run([*command, base.suite, archive, *source], env=env)
        done.require(f"mmdebstrap {base.suite}")
        arguments = ["import", *(["--arch", machine] if machine else []), str(archive), base.local]
        engine.call(arguments, f"base image {base.suite}")
    return engine.content_of(base.local) or ""


@dataclasses.dataclass(frozen=True)
class BuiltImage:
    """An image that the engine has, or would have.

    Attributes:
        reference: its name for the engine.
        digest: hash of all that decides its content.
        compilers: hash of the part of it that compilers see.
        origin: what this run did for it.
    """

    reference: str
    digest: str
    compilers: str = ""
    origin: Literal["kept", "pulled", "built"] = "kept"


def ensure_image(
    engine: Engine,
    image: Image | BaseImage,
    cache: Path,
    progress: Progress,
    registry: Registry | None = None,
) -> BuiltImage:
    """Pull or build `image` unless the engine has it; of several processes one does.

    It is pulled where the lock of the registry has its digest; its parents are not needed then.
    """
    if isinstance(image, BaseImage):
        return _ensure_base(engine, image, progress, registry)
    built = _name_image(image, lambda base: _ensure_base(engine, base, progress, registry))
    tag = built.reference
    if engine.content_of(tag):
        return built
    logs = trusted_folder(cache / "images")
    name = tag.rpartition("/")[2].replace(":", "-")
    busy = say_waiting(progress.say, f"{image.name}: another run builds it")
    with hold_lock(logs / f"{name}.lock", busy):
        if engine.content_of(tag):
            return built
        if registry and (pinned := registry.pinned(tag)):
            progress.step(f"image {image.name}: pulling")
            pull_image(engine, pinned, tag, built.digest)
            return dataclasses.replace(built, origin="pulled")
        for base in image.needs.values():
            if image.mirrors and isinstance(base, BaseImage) and base.snapshot:
                require_snapshot(image.mirrors["SNAPSHOTS"], base.snapshot, base.suite)
        references = {
            arg: ensure_image(engine, needed, cache, progress, registry).reference
            for arg, needed in image.needs.items()
        }
        progress.step(f"image {image.name}: building")
        _build_image(engine, image, built, references, logs / f"{name}.log")
    return dataclasses.replace(built, origin="built")


def _name_image(image: Image, find_base: Callable[[BaseImage], BuiltImage]) -> BuiltImage:
    """The names of an image; `find_base` is asked for bases whose content counts."""
    digests = {}
    for arg, needed in image.needs.items():
        if isinstance(needed, Image):
            digests[arg] = _name_image(needed, find_base).digest
        elif needed.snapshot:
            # Whatever it is today, the image made of it is of that day.
            digests[arg] = needed.local
        else:
            digests[arg] = find_base(needed).digest
    digest = image_digest(image, digests)
    compilers = image_digest(image, digests, image.beside)
    return BuiltImage(image_reference(image, digest), digest, compilers)


def describe_image(engine: Engine, image: Image) -> BuiltImage:
    """The names that `ensure_image` would give `image`; nothing is pulled or built."""
    return _name_image(image, lambda base: _present_base(engine, base) or BuiltImage("", ""))


def _present_base(engine: Engine, base: BaseImage) -> BuiltImage | None:
    # The public name may stand for the image of another machine.
    for name in (base.local, base.public)[: 1 if base.machine else 2]:
        if content := engine.content_of(name):
            return BuiltImage(name, content)
    return None


def _ensure_base(
    engine: Engine, base: BaseImage, progress: Progress, registry: Registry | None
) -> BuiltImage:
    """The image that `base-images` made, else the public one, pulled if it is missing."""
    if present := _present_base(engine, base):
        return present
    public = registry.pinned_base(base.public) if registry else base.public
    progress.step(f"pulling {public}")
    try:
        engine.call(
            ["pull", "--quiet", *platform_option(base.machine), public], f"base image {public}"
        )
    except TorchwheelError as error:
        tool = "" if shutil.which(_BOOTSTRAP) else f"`apt-get install {_BOOTSTRAP}`, then "
        raise TorchwheelError(
            f"{error}; where no registry can be reached, make it: {tool}`nox -s base-images`"
        ) from error
    if public != base.public:
        engine.call(["tag", public, base.public], f"base image {public}")
    return BuiltImage(base.public, engine.content_of(base.public) or "")


def platform_option(machine: str | None) -> list[str]:
    """The engine's option for an image of a foreign machine."""
    return [f"--platform=linux/{machine}"] if machine else []


def _build_image(
    engine: Engine, image: Image, built: BuiltImage, references: Mapping[str, str], log: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="torchwheel-image-") as name:
        context = Path(name) / "context"
        context.mkdir()
        for path, text in image.files.items():
            target = path_inside(context, path, image.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            # The layer holds the file's time, and the day of the build must not change it.
            os.utime(target, (0, 0))
        recipe = Path(name) / "Dockerfile"
        recipe.write_text(image.recipe, encoding="utf-8")
        arguments = ["build", *platform_option(image.machine), "--file", str(recipe)]
        arguments += ["--tag", built.reference, "--label", f"{DIGEST_LABEL}={built.digest}"]
        for arg, value in sorted({**image.args, **image.mirrors, **references}.items()):
            arguments += ["--build-arg", f"{arg}={value}"]
        if bundle := ca_bundle():
            arguments += ["--secret", f"id=ca,src={bundle}"]
        engine.call([*arguments, str(context)], f"image {image.name}", log)


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
    faults: list[TorchwheelError] = []
    check_images(engine, needed, progress, registry, faults)
    raise_all(faults)
    built: dict[str, BuiltImage] = {}
    for image in needed:
        one = ensure_image(engine, image, cache, progress, registry)
        if one.reference not in built or one.origin != "kept":
            built[one.reference] = one
    lines = [f"{one.origin:6}  {name}" for name, one in built.items()]
    if push:
        lines += _push(engine, registry, needed, list(built), progress)
    return "\n".join(lines)


_SPACE = 2 << 30
"""Bytes of disk that an image takes with what it is made from: a CUDA one has 0.9 GB."""


@contextlib.contextmanager
def collect(faults: list[TorchwheelError]) -> Iterator[None]:
    """Put the error of the block into `faults`."""
    try:
        yield
    except TorchwheelError as error:
        faults.append(error)


def raise_all(faults: Sequence[TorchwheelError]) -> None:
    """Raise one error with a line for each fault, if there are any."""
    if faults:
        kind = UsageError if all(isinstance(one, UsageError) for one in faults) else TorchwheelError
        raise kind(*dict.fromkeys(map(str, faults)))


def check_images(
    engine: Engine,
    images: Sequence[Image],
    progress: Progress,
    registry: Registry,
    faults: list[TorchwheelError],
) -> None:
    """Collect what stands in the way of an engine and of images; pulls what they begin with.

    It takes seconds, where an image takes minutes.
    """
    # The content of a release without a day is part of the images' names.
    images = [image for i, image in enumerate(images) if image not in images[:i]]
    bases = dict.fromkeys(base for image in images for base in _bases(image) if not base.snapshot)
    before = len(faults)
    with collect(faults):
        engine.check_works()
    for base in bases if len(faults) == before else ():
        with collect(faults):
            _ensure_base(engine, base, progress, registry)
    if len(faults) > before:
        return
    missing = [image for image in images if not _is_at_hand(engine, image, registry)]
    dated = {base: image for one in missing for image, base in _dated(engine, one, registry)}
    for base, image in dated.items():
        with collect(faults):
            require_snapshot(image.mirrors["SNAPSHOTS"], base.snapshot or "", base.suite)
            _ensure_base(engine, base, progress, registry)
    space, disk = _SPACE * len(missing), engine.free_space()
    if disk and disk[1] < space:
        faults.append(
            TorchwheelError(
                f"{disk[0]}: expected {space >> 30} GiB free for images ({len(missing)}), found "
                f"{disk[1] / (1 << 30):.1f}; free some, e.g. `{engine.name} image prune`"
            )
        )


def _is_at_hand(engine: Engine, image: Image, registry: Registry) -> bool:
    """Whether nothing is built for an image: it is here, or is pulled."""
    reference = describe_image(engine, image).reference
    return bool(engine.content_of(reference) or registry.pinned(reference))


def _dated(engine: Engine, image: Image, registry: Registry) -> Iterator[tuple[Image, BaseImage]]:
    """The releases of a day that an image to build is made of, each below the image of that day."""
    for needed in image.needs.values():
        if isinstance(needed, BaseImage):
            yield from [(image, needed)] if needed.snapshot else []
        elif not _is_at_hand(engine, needed, registry):
            yield from _dated(engine, needed, registry)


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
