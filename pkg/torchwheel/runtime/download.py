"""A toolkit from PyPI for a machine that has none, where the user allows it."""

from collections.abc import Mapping

from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError
from torchwheel.machine import system
from torchwheel.machine.model import FoundToolkit
from torchwheel.machine.torch_model import Torch
from torchwheel.toolkit.cache import cache_folder

VARIABLE = "TORCHWHEEL_DOWNLOAD"
"""Set to 1, it allows a download of some 300 MB, pinned and hashed, kept in the cache."""


def offer(torch: Torch) -> tuple[str, ...]:
    """What to tell somebody who has no toolkit, where one can be had."""
    if _release(torch) is None:
        return ()
    return (f"or set {VARIABLE}=1: CUDA {torch.cuda} is then downloaded from PyPI, and kept",)


def _release(torch: Torch) -> str | None:
    """The CUDA release to download: torch's, if the lock has it."""
    # Not before it is needed: it reads the lock.
    from torchwheel.toolkit.lock import components  # noqa: PLC0415

    try:
        return torch.cuda if torch.cuda and components(torch.cuda) else None
    except TorchwheelError:
        return None


def toolkit_of(torch: Torch, environ: Mapping[str, str], progress: Progress) -> FoundToolkit | None:
    """The CUDA toolkit of torch's release; None if it is not allowed, or cannot be had.

    Raises:
        TorchwheelError: the download failed.
    """
    release = _release(torch) if environ.get(VARIABLE) == "1" else None
    if release is None:
        return None
    from torchwheel.toolkit.source_pypi import provision  # noqa: PLC0415 - starts pip

    root, _ = provision(release, system.platform_tag(), cache_folder(), progress)
    return FoundToolkit("cuda", root, release, "torchwheel's cache")
