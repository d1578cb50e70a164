"""The torch that an ordinary project is built against: its exact release and its wheel's hash.

The lock decides where it has the release. Any other release is read off the package index when it
is asked for, and kept in the cache, so that a later run builds against the same file.
"""

import dataclasses
import json
from pathlib import Path

from torchwheel.console import Progress
from torchwheel.errors import MalformedError, TorchwheelError
from torchwheel.files import write_text
from torchwheel.json_files import read_json
from torchwheel.ownership import trusted_folder
from torchwheel.toolkit.index import find_files
from torchwheel.toolkit.lock import TORCH_PYTHON, read_lock


@dataclasses.dataclass(frozen=True)
class TorchFile:
    """A wheel of torch on the package index.

    Attributes:
        version: e.g. "2.11.0".
        sha256: the hash of the file.
    """

    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """A line of a requirements file that takes this file and no other."""
        return f"torch==={self.version} --hash=sha256:{self.sha256}"


def torch_file(
    minor: str, python: str, platform: str, cache: Path, progress: Progress
) -> TorchFile:
    """The wheel of torch `minor` ("2.11") for a Python ("3.12") and a platform."""
    kept = trusted_folder(cache / "torch") / f"torch-{minor}-cp{python}-{platform}.json"
    try:
        found = read_json(kept, TorchFile)
    except (OSError, MalformedError):
        found = _look_up(minor, python, platform, progress)
        write_text(kept, json.dumps(dataclasses.asdict(found)) + "\n")
    locked = read_lock().torch.get(minor)
    if locked and (python, platform) == (TORCH_PYTHON, locked.platform):
        expected = TorchFile(locked.version, locked.sha256)
        if found != expected:
            raise TorchwheelError(
                f"{kept}: expected torch {expected.version} with sha256 {expected.sha256}, as the "
                f"lock has it, found {found.version} with {found.sha256}; remove the file"
            )
    return found


def _look_up(minor: str, python: str, platform: str, progress: Progress) -> TorchFile:
    locked = read_lock().torch.get(minor)
    wanted = f"torch=={locked.version}" if locked else f"torch=={minor}.*"
    progress.step(f"{wanted}: looking it up for Python {python}")
    (file,) = find_files([wanted], platform, python)
    public, _, local = file.version.partition("+")
    if local.startswith("cpu"):
        # Another index or a folder offers it beside PyPI's, and pip takes it for the newer one.
        (file,) = find_files([f"torch==={public}"], platform, python)
    return TorchFile(file.version, file.sha256)
