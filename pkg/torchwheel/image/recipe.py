"""An image as data: its recipe, arguments, files and the images it is made of.

Everything that decides it is in its digest, and the digest is in its name: what is there already
under that name need not be built.
"""

import dataclasses
import hashlib
from collections.abc import Container, Mapping

LOCAL = "localhost/torchwheel"


@dataclasses.dataclass(frozen=True)
class Base:
    """A Debian release as it comes: made here by mmdebstrap, or a public image.

    `machine` is the engine's name of a foreign one, e.g. "arm64".
    """

    suite: str
    machine: str | None = None

    @property
    def local(self) -> str:
        """The image that `base-images` makes."""
        return f"{LOCAL}/base:{self.suite}{f'-{self.machine}' if self.machine else ''}"

    @property
    def public(self) -> str:
        """The public image of the release."""
        return f"debian:{self.suite}-slim"


@dataclasses.dataclass(frozen=True)
class Image:
    """One image to build.

    Attributes:
        name: readable part of its reference, e.g. "cuda-13.0-cp312".
        recipe: text of the Dockerfile.
        args: build arguments.
        files: the build context, path to content.
        needs: build arguments whose value is the reference of another image.
        machine: a foreign machine it is for, e.g. "arm64".
        beside: arguments and files that no compiler sees: its Python, and Python's tools.
    """

    name: str
    recipe: str
    args: Mapping[str, str]
    files: Mapping[str, str]
    needs: "Mapping[str, Image | Base]"
    machine: str | None = None
    beside: tuple[str, ...] = ()


def digest(image: Image, needs: Mapping[str, str], without: Container[str] = ()) -> str:
    """Names the content of `image`, arguments and files named by `without` left out.

    `needs` has the id or digest of each image it is made of.
    """
    hashed = hashlib.sha256()
    parts = [("recipe", image.recipe), ("machine", image.machine or "")]
    for kind, mapping in (("arg", image.args), ("file", image.files), ("needs", needs)):
        parts += [(f"{kind} {n}", mapping[n]) for n in sorted(mapping) if n not in without]
    for name, value in parts:
        hashed.update(f"{name}\0{len(value)}\0{value}\0".encode())
    return hashed.hexdigest()


def reference(image: Image, digest_: str) -> str:
    """What the engine knows it by, e.g. "localhost/torchwheel/cuda-13.0-cp312:0123456789abcdef"."""
    return f"{LOCAL}/{image.name}:{digest_[:16]}"
