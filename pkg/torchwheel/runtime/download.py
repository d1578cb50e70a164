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


def toolkit_of(torch: Torch, environ: Mapping[str, str], progress: Progress) -> FoundToolkit | None:
    """The CUDA toolkit of torch's release; None if it is not allowed, or cannot be had.

    Raises:
        TorchwheelError: the download failed.
    """
    if environ.get(VARIABLE) != "1" or torch.cuda is None:
        return None
    # Not before it is needed: they read the lock and start pip.
    from torchwheel.toolkit.lock import components  # noqa: PLC0415
    from torchwheel.toolkit.source_pypi import provision  # noqa: PLC0415

    try:
        components(torch.cuda)
    except TorchwheelError as error:
        progress.say(f"{VARIABLE}: {error}")
        return None
    root, _ = provision(torch.cuda, system.platform_tag(), cache_folder(), progress)
    return FoundToolkit("cuda", root, torch.cuda, "torchwheel's cache")
