"""Does the current interpreter have what a wheel requires."""

import importlib.metadata
from collections.abc import Sequence

from packaging.requirements import Requirement

from torchwheel.errors import TorchwheelError
from torchwheel.inspect.wheel import Wheel


def check_installed(wheel: Wheel, tools: Sequence[str]) -> None:
    """Raise one line if a requirement of the wheel, or a tool of the run, is not met here."""
    for requirement in [*map(Requirement, tools), *(wheel.metadata.requires_dist or [])]:
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        found = _version(requirement.name)
        who = "smoke" if requirement.name in tools else wheel.path.name
        if found is None:
            raise TorchwheelError(f"{who} needs {requirement}, which is not installed here")
        if not requirement.specifier.contains(found, prereleases=True):
            raise TorchwheelError(
                f"{who} needs {requirement}, but {requirement.name} {found} is installed here"
            )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
