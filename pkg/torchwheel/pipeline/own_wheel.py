"""The wheel of the torchwheel that runs, to be carried where no index has it."""

import base64
import hashlib
import importlib.metadata
import tempfile
from collections.abc import Iterator
from pathlib import Path

from torchwheel import __version__
from torchwheel.errors import TorchwheelError
from torchwheel.inspect.wheel import read_bundled
from torchwheel.pipeline.bundled import build_pure
from torchwheel.pipeline.repair import repack_members

PACKAGE = Path(__file__).parent.parent
NAME = f"torchwheel-{__version__}-py3-none-any.whl"
# What an installer writes beside the files of the wheel.
_OF_INSTALLERS = frozenset({"INSTALLER", "REQUESTED", "direct_url.json", "RECORD"})


def own_wheel(out: Path) -> Path:
    """Write the wheel of the running torchwheel into the folder `out`.

    A source tree is built. An installed package is packed again, each file as RECORD has it; so
    both give the bytes of the wheel that every index of ours offers.

    Raises:
        TorchwheelError: the installed files are not those that were installed.
    """
    if (PACKAGE / "pyproject.toml").is_file():
        with tempfile.TemporaryDirectory(prefix="torchwheel-") as scratch:
            return build_pure(PACKAGE, out, Path(scratch, "build.log"))
    wheel = repack_members(dict(_installed_files()), out / NAME)
    read_bundled(wheel)
    return wheel


def _installed_files() -> Iterator[tuple[str, bytes]]:
    try:
        distribution = importlib.metadata.distribution("torchwheel")
    except importlib.metadata.PackageNotFoundError:
        raise TorchwheelError(
            f"{PACKAGE}: expected an installed torchwheel, found its files alone; install its wheel"
        ) from None
    for file in distribution.files or ():
        name = file.as_posix()
        if file.suffix == ".pyc" or ".." in file.parts or file.name in _OF_INSTALLERS:
            continue
        content = Path(str(distribution.locate_file(file))).read_bytes()
        if file.hash is None or file.hash.value != _digest(content):
            raise TorchwheelError(
                f"{name}: is not the file that was installed; reinstall torchwheel"
            )
        yield name, content


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
