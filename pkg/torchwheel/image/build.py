"""Builds images and the images they are made of; an image that exists is looked up once."""

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torchwheel import process
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError
from torchwheel.files import path_inside
from torchwheel.image.engine import Engine
from torchwheel.image.recipes import BaseImage, Image, image_digest, image_reference
from torchwheel.lock import hold_lock, say_waiting
from torchwheel.ownership import trusted_folder
from torchwheel.toolkit.index import ca_bundle


def make_base(engine: Engine, base: BaseImage, progress: Progress) -> str:
    """Bootstrap a Debian release and import it; returns the digest of its content.

    Programs of a foreign machine run under emulation (qemu-user, registered with the kernel).
    """
    machine = base.machine
    tool = shutil.which("mmdebstrap")
    if tool is None:
        raise TorchwheelError(
            "mmdebstrap makes base images and is not here: `apt-get install mmdebstrap`"
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
        done = process.run([*command, base.suite, archive], env=env)
        done.require(f"mmdebstrap {base.suite}")
        arguments = ["import", *(["--arch", machine] if machine else []), str(archive), base.local]
        engine.call(arguments, f"base image {base.suite}")
    return engine.content_of(base.local) or ""


DIGEST_LABEL = "torchwheel.digest"


@dataclasses.dataclass(frozen=True)
class BuiltImage:
    """An image that the engine has, or would have.

    Attributes:
        reference: its name for the engine.
        digest: hash of its content.
        compilers: hash of the part of it that compilers see.
        fresh: whether this run built it.
    """

    reference: str
    digest: str
    compilers: str = ""
    fresh: bool = False


def ensure_image(
    engine: Engine, image: Image | BaseImage, cache: Path, progress: Progress
) -> BuiltImage:
    """Build `image` unless the engine has it; of several processes one builds it."""
    if isinstance(image, BaseImage):
        return _ensure_base(engine, image, progress)
    needs = {
        name: ensure_image(engine, needed, cache, progress) for name, needed in image.needs.items()
    }
    built = _name_image(image, needs)
    tag = built.reference
    if engine.content_of(tag):
        return built
    logs = trusted_folder(cache / "images")
    name = tag.rpartition("/")[2].replace(":", "-")
    busy = say_waiting(progress.say, f"{image.name}: another run builds it")
    with hold_lock(logs / f"{name}.lock", busy):
        if engine.content_of(tag):
            return built
        progress.step(f"image {image.name}: building")
        references = {arg: needed.reference for arg, needed in needs.items()}
        _build_image(engine, image, built, references, logs / f"{name}.log")
    return dataclasses.replace(built, fresh=True)


def _name_image(image: Image, needs: Mapping[str, BuiltImage]) -> BuiltImage:
    digests = {name: built.digest for name, built in needs.items()}
    digest = image_digest(image, digests)
    compilers = image_digest(image, digests, image.beside)
    return BuiltImage(image_reference(image, digest), digest, compilers)


def describe_image(engine: Engine, image: Image | BaseImage) -> BuiltImage:
    """The names that `ensure_image` would give `image`; nothing is pulled or built."""
    if isinstance(image, BaseImage):
        for name in (image.local, image.public):
            if content := engine.content_of(name):
                return BuiltImage(name, content)
        return BuiltImage(image.public, "")
    needs = {name: describe_image(engine, needed) for name, needed in image.needs.items()}
    return _name_image(image, needs)


def _ensure_base(engine: Engine, base: BaseImage, progress: Progress) -> BuiltImage:
    """The image that `base-images` made, else the public one, pulled if it is missing."""
    # The public name may stand for the image of another machine.
    for name in (base.local, base.public)[: 1 if base.machine else 2]:
        if content := engine.content_of(name):
            return BuiltImage(name, content)
    progress.step(f"pulling {base.public}")
    try:
        engine.call(
            ["pull", "--quiet", *platform_option(base.machine), base.public],
            f"base image {base.public}",
        )
    except TorchwheelError as error:
        raise TorchwheelError(
            f"{error}; where no registry can be reached, make it: nox -s base-images"
        ) from error
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
        for arg, value in sorted({**image.args, **references}.items()):
            arguments += ["--build-arg", f"{arg}={value}"]
        if bundle := ca_bundle():
            arguments += ["--secret", f"id=ca,src={bundle}"]
        engine.call([*arguments, str(context)], f"image {image.name}", log)
