"""The torch that an ordinary project is built against: its exact release and its wheel's hash.

The lock decides where it has the release. Any other release is read off the package index when it
is asked for, and kept in the cache, so that a later run builds against the same file.
"""

import dataclasses
import json
from pathlib import Path

from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import MalformedError, TorchwheelError
from torchwheel_runtime.files import write_text
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.ownership import trusted_folder
from torchwheel_runtime.toolkit.index import find_files
from torchwheel_runtime.toolkit.lock import TORCH_PYTHON, read_lock


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
    minor: str,
    python: str,
    platform: str,
    cache: Path,
    progress: Progress,
    *,
    rocm: str | None = None,
) -> TorchFile:
    """The wheel of a torch on the package index.

    Args:
        minor: its minor release, e.g. "2.11".
        python: the Python it is for, e.g. "3.12".
        platform: e.g. "linux_x86_64".
        cache: torchwheel's cache.
        progress: is told of a lookup.
        rocm: the release of ROCm that it is published for, e.g. "7.2"; PyPI has no such torch.
    """
    name = f"torch-{minor}{f'-rocm{rocm}' if rocm else ''}-cp{python}-{platform}.json"
    kept = trusted_folder(cache / "torch") / name
    try:
        found = read_json(kept, TorchFile)
    except (OSError, MalformedError):
        found = _look_up(minor, python, platform, progress, rocm)
        write_text(kept, json.dumps(dataclasses.asdict(found)) + "\n")
    locked = None if rocm else read_lock().torch.get(minor)
    if locked and (python, platform) == (TORCH_PYTHON, locked.platform):
        expected = TorchFile(locked.version, locked.sha256)
        if found != expected:
            raise TorchwheelError(
                f"{kept}: expected torch {expected.version} with sha256 {expected.sha256}, as the "
                f"lock has it, found {found.version} with {found.sha256}; remove the file"
            )
    return found


def _look_up(
    minor: str, python: str, platform: str, progress: Progress, rocm: str | None
) -> TorchFile:
    locked = read_lock().torch.get(minor)
    wanted = f"torch=={locked.version}" if locked else f"torch=={minor}.*"
    progress.step(f"{wanted}: looking it up for Python {python}")
    (file,) = find_files([wanted], platform, python)
    public, _, local = file.version.partition("+")
    if rocm:
        wanted = f"torch==={public}+rocm{rocm}"
        try:
            (file,) = find_files([wanted], platform, python)
        except TorchwheelError as error:
            raise TorchwheelError(
                f"expected {wanted} for Python {python} on an index, found none; PyPI has no torch "
                f"for ROCm: name an index that has it in PIP_EXTRA_INDEX_URL ({error})"
            ) from error
    elif local.startswith("cpu"):
        # Another index or a folder offers it beside PyPI's, and pip takes it for the newer one.
        (file,) = find_files([f"torch==={public}"], platform, python)
    return TorchFile(file.version, file.sha256)
