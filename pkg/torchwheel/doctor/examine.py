"""Examines one package: its dist-info, its import, its native libraries."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchwheel.console import Progress
from torchwheel.doctor import dist_info
from torchwheel.doctor.case import Package
from torchwheel.doctor.importing import SECONDS, import_it
from torchwheel.doctor.loader import Loader
from torchwheel.doctor.native import Native, read_native
from torchwheel.machine.facts import Machine
from torchwheel.runtime.status import ExtensionStatus, OperatorStatus, Refusal


def examine(
    name: str,
    machine: Machine,
    progress: Progress,
    *,
    seconds: float = SECONDS,
    environ: Mapping[str, str] = os.environ,
) -> Package:
    """Everything there is to know of a package here; it need not be there.

    Args:
        name: of the distribution, or of what is imported.
        machine: whose torch the libraries are held against.
        progress: where to say what is being read.
        seconds: the time limit of its import.
        environ: the environment that libraries are looked for in.
    """
    folders = dist_info.dist_infos()
    found = dist_info.find_distribution(name, folders)
    info = dist_info.read_dist_info(found[0]) if found else None
    module = _module(name, info)
    progress.step(f"import {module}")
    imported = import_it(module, seconds)
    root = _root(found, imported.folders)
    progress.step(f"libraries of {name}")
    libraries = dist_info.libraries(root, info, imported.folders) if root else ()
    loaded = {path.resolve() for path in imported.libraries}
    natives: tuple[Native, ...] = ()
    if root and libraries:
        torch = machine.torch.folder if machine.torch else None
        loader = Loader(Path(sys.executable), torch, environ)
        natives = tuple(read_native(p, root, loader, loaded=p in loaded) for p in libraries)
    return Package(
        name=info.name if info else name,
        module=module,
        root=root,
        info=info,
        imported=imported,
        copies=tuple(dist_info.read_dist_info(folder).version for folder in found[1:]),
        near=() if found else tuple(dist_info.near_names(name, folders)),
        natives=natives,
        status=_status(imported.status) if imported.status else None,
    )


def _module(name: str, info: dist_info.DistInfo | None) -> str:
    """What to import: what was asked for if that is a module, else the distribution's first."""
    if info is None or name in info.packages or not info.packages:
        # A package inside another would have that one run to be found.
        return name.replace("-", "_").partition(".")[0]
    return info.packages[0]


def _root(found: list[Path], folders: tuple[Path, ...]) -> Path | None:
    """The folder that the package is installed in, or lies in."""
    if found:
        return found[0].parent.resolve()
    return folders[0].parent.resolve() if folders else None


def _status(told: dict[str, Any]) -> ExtensionStatus:
    """The run-time half's word, as the child passed it on."""
    return ExtensionStatus(
        package=told["package"],
        mode=told["mode"],
        operators=tuple(
            OperatorStatus(
                operator=one["operator"],
                ops=tuple(one["ops"]),
                way=one["way"],
                library=Path(one["library"]) if one["library"] else None,
                refusals=tuple(Refusal(**refusal) for refusal in one["refusals"]),
            )
            for one in told["operators"]
        ),
    )
