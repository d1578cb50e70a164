"""Images in a registry: pushed once, and pulled by the digests that a lock file pins."""

import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torchwheel.image.engine import Engine
from torchwheel.image.recipes import LOCAL
from torchwheel.matrix.forms import REGISTRY
from torchwheel.matrix.sections import Matrix
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.files import write_text
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.text import escape, quote

VARIABLE = "TORCHWHEEL_IMAGES"
"""Names another registry than the matrix."""

LOCK = "images.lock.json"
_SCHEMA = 1
_COMMENT = "Written by `nox -s images -- --push`: images of a registry, pinned by digest."
_PUSH = "run `nox -s images -- --push`"
DIGEST_LABEL = "torchwheel.digest"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# docker trusts a registry of this machine without TLS, podman is told.
_LOOPBACK = re.compile(r"(localhost|127\.[0-9.]+)(:|/)")


@dataclasses.dataclass(frozen=True)
class ImagesLock:
    """The digests of images in a registry.

    Attributes:
        images: by name and tag, which is the start of the recipe's digest.
        bases: those of public Debian images that they are made of, by name.
        comment: who writes the file.
    """

    images: Mapping[str, str]
    bases: Mapping[str, str]
    comment: str = _COMMENT


@dataclasses.dataclass(frozen=True)
class Registry:
    """A registry, if there is one, and the lock file of this repository."""

    address: str | None
    lock_file: Path

    def lock(self) -> ImagesLock:
        """The pinned digests; none without the file."""
        try:
            lock = read_json(self.lock_file, ImagesLock, schema=_SCHEMA, do=_PUSH)
        except FileNotFoundError:
            return ImagesLock({}, {})
        for name, digest in {**lock.images, **lock.bases}.items():
            if not _DIGEST.fullmatch(digest):
                raise MalformedError(
                    escape(str(self.lock_file)),
                    f'{quote(name)}: expected "sha256:" and 64 digits of 0-9a-f, '
                    f"found {quote(digest)}",
                    _PUSH,
                )
        return lock

    def pinned(self, reference: str) -> str | None:
        """The name by digest of an image in the registry; None if it is not pinned there."""
        digest = self.lock().images.get(_key(reference))
        if self.address is None or digest is None:
            return None
        return f"{self.address}/{_key(reference).partition(':')[0]}@{digest}"

    def pinned_base(self, public: str) -> str:
        """The name of a public image, by digest where it is pinned."""
        digest = self.lock().bases.get(public)
        return f"{public.partition(':')[0]}@{digest}" if digest else public


def registry_of(matrix: Matrix, root: Path, environ: Mapping[str, str] = os.environ) -> Registry:
    """The registry of TORCHWHEEL_IMAGES, else of the matrix; its lock is beside the recipes."""
    containers = matrix.containers
    named = environ.get(VARIABLE) or (containers.registry if containers else None)
    try:
        address = REGISTRY.check(named) if named else None
    except ValueError as error:
        raise UsageError(f"{VARIABLE}: {error}") from None
    recipes = containers.recipes if containers else None
    return Registry(address, root / (recipes or "docker") / LOCK)


def pull_image(engine: Engine, pinned: str, reference: str, digest: str) -> None:
    """Pull an image by digest and give it its local name.

    Args:
        engine: the engine, which holds the content against the digest.
        pinned: its name in the registry, by digest.
        reference: its local name.
        digest: that of its recipe, which its label must have.
    """
    try:
        engine.call(["pull", "--quiet", *_tls(engine, pinned), pinned], f"image {pinned}")
    except TorchwheelError as error:
        raise TorchwheelError(
            f"{error}; expected the image that {LOCK} pins: push it, or build it without a "
            f"registry ({VARIABLE} and containers.registry empty)"
        ) from error
    template = f'{{{{index .Config.Labels "{DIGEST_LABEL}"}}}}'
    found = engine.call(["image", "inspect", "--format", template, pinned], pinned).strip()
    if found != digest:
        raise TorchwheelError(
            f"{pinned}: expected an image of the recipe {digest[:16]}, found "
            f"{found[:16] or 'none'}; {_PUSH}"
        )
    engine.call(["tag", pinned, reference], f"image {reference}")


def push_image(engine: Engine, address: str, reference: str) -> str:
    """Push an image under its recipe's tag; returns its digest in the registry."""
    target = f"{address}/{_key(reference)}"
    engine.call(["tag", reference, target], f"image {target}")
    doing = f"pushing {target}"
    if engine.name == "podman":
        with tempfile.TemporaryDirectory(prefix="torchwheel-push-") as folder:
            file = Path(folder) / "digest"
            options = [*_tls(engine, target), "--digestfile", str(file)]
            engine.call(["push", "--quiet", *options, target], doing)
            found = file.read_text(encoding="utf-8").strip()
    else:
        output = engine.call(["push", target], doing)
        found = (_DIGEST.findall(output) or [""])[-1]
    if not _DIGEST.fullmatch(found):
        raise TorchwheelError(f"{doing}: expected its digest, found {found or 'none'}")
    return found


def digest_of_base(engine: Engine, public: str) -> str | None:
    """The digest of a public image that was pulled; None if it was made here."""
    command = ["image", "inspect", "--format", "{{json .RepoDigests}}", public]
    if not engine.succeeds(command):
        return None
    found = _DIGEST.findall(engine.call(command, public))
    return found[0] if found else None


def write_lock(registry: Registry, lock: ImagesLock) -> None:
    """Write the lock file; the same digests give the same bytes."""
    content = {"schema": _SCHEMA, **dataclasses.asdict(lock)}
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False)
    write_text(registry.lock_file, text + "\n")


def _key(reference: str) -> str:
    return reference.removeprefix(f"{LOCAL}/")


def _tls(engine: Engine, reference: str) -> list[str]:
    plain = engine.name == "podman" and _LOOPBACK.match(reference)
    return ["--tls-verify=false"] if plain else []
