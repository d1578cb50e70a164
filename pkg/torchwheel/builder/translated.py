"""An ordinary extension for ROCm: its CUDA sources as torch's hipify translates them."""

import dataclasses
import sys
from pathlib import Path

from torchwheel.builder.extension import Extension
from torchwheel.builder.hipify import hipify
from torchwheel.builder.sources import DeviceFile, Sources
from torchwheel.builder.target import Target


def translated(
    extension: Extension, sources: Sources, target: Target, folder: Path
) -> tuple[Sources, Target]:
    """What is compiled in place of `sources`: a translation in `folder`, or they themselves.

    Others' sources are written for CUDA; ours know both platforms. The running Python has a torch:
    hipify is a part of it.
    """
    if not extension.ordinary or target.toolkit.backend != "rocm":
        return sources, target
    device = [file.path for file in sources.device]
    became = hipify(
        target.source,
        [*device, *sources.host, *sources.binding],
        folder,
        python=Path(sys.executable),
        include_dirs=extension.include_dirs,
    )
    return (
        Sources(
            device=[DeviceFile(became[file.path], file.archs) for file in sources.device],
            host=[became[path] for path in sources.host],
            binding=[became[path] for path in sources.binding],
        ),
        dataclasses.replace(target, source=folder),
    )
