"""Builds images and the images they are made of; an image that exists costs one look."""

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
from torchwheel.image.recipes import Base, Image, digest, reference
from torchwheel.lock import hold_lock, say_waiting
from torchwheel.toolkit.index import ca_bundle


def make_base(engine: Engine, base: Base, progress: Progress) -> str:
    """Bootstrap a Debian release and import it; returns what names its content.

    A foreign machine's programs are run by emulation (qemu-user, registered with the kernel).
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
class Built:
    """An image that is there.

    Attributes:
        reference: what the engine knows it by.
        digest: of its content.
        compilers: digest of that part of it that compilers see.
        fresh: whether it was built just now.
    """

    reference: str
    digest: str
    compilers: str = ""
    fresh: bool = False


def ensure(engine: Engine, image: Image | Base, cache: Path, progress: Progress) -> Built:
    """Bring `image` into being; of processes that ask at once, one builds it."""
    if isinstance(image, Base):
        return _base(engine, image, progress)
    needs = {name: ensure(engine, needed, cache, progress) for name, needed in image.needs.items()}
    built = _named(image, needs)
    tag = built.reference
    if engine.content_of(tag):
        return built
    logs = cache / "images"
    logs.mkdir(parents=True, exist_ok=True)
    name = tag.rpartition("/")[2].replace(":", "-")
    busy = say_waiting(progress.say, f"{image.name}: another run builds it")
    with hold_lock(logs / f"{name}.lock", busy):
        if engine.content_of(tag):
            return built
        progress.step(f"image {image.name}: building")
        references = {arg: needed.reference for arg, needed in needs.items()}
        _build(engine, image, built, references, logs / f"{name}.log")
    return dataclasses.replace(built, fresh=True)


def _named(image: Image, needs: Mapping[str, Built]) -> Built:
    digests = {name: built.digest for name, built in needs.items()}
    found = digest(image, digests)
    return Built(reference(image, found), found, digest(image, digests, image.beside))


def describe(engine: Engine, image: Image | Base) -> Built:
    """What `ensure` would call `image`, as far as it is known with nothing pulled or built."""
    if isinstance(image, Base):
        found = {name: engine.content_of(name) for name in (image.local, image.public)}
        return next((Built(name, i) for name, i in found.items() if i), Built(image.public, ""))
    return _named(image, {name: describe(engine, one) for name, one in image.needs.items()})


def _base(engine: Engine, base: Base, progress: Progress) -> Built:
    """The release as `base-images` made it, else the public image, pulled if need be."""
    # Of the public name there may be the image of another machine.
    for name in (base.local, base.public)[: 1 if base.machine else 2]:
        if found := engine.content_of(name):
            return Built(name, found)
    progress.step(f"pulling {base.public}")
    try:
        engine.call(
            ["pull", "--quiet", *for_machine(base.machine), base.public],
            f"base image {base.public}",
        )
    except TorchwheelError as error:
        raise TorchwheelError(
            f"{error}; where no registry can be reached, make it: nox -s base-images"
        ) from error
    return Built(base.public, engine.content_of(base.public) or "")


def for_machine(machine: str | None) -> list[str]:
    """The engine's option for an image of a foreign machine."""
    return [f"--platform=linux/{machine}"] if machine else []


def _build(
    engine: Engine, image: Image, built: Built, references: Mapping[str, str], log: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="torchwheel-image-") as name:
        context = Path(name) / "context"
        context.mkdir()
        for path, text in image.files.items():
            target = path_inside(context, path, image.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            # What a copied file's time is goes into the layer: the day of the build must not.
            os.utime(target, (0, 0))
        recipe = Path(name) / "Dockerfile"
        recipe.write_text(image.recipe, encoding="utf-8")
        arguments = ["build", *for_machine(image.machine), "--file", str(recipe)]
        arguments += ["--tag", built.reference, "--label", f"{DIGEST_LABEL}={built.digest}"]
        for arg, value in sorted({**image.args, **references}.items()):
            arguments += ["--build-arg", f"{arg}={value}"]
        if bundle := ca_bundle():
            arguments += ["--secret", f"id=ca,src={bundle}"]
        engine.call([*arguments, str(context)], f"image {image.name}", log)
