"""What wheels require, and whether the current interpreter has it."""

import importlib.metadata
from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from torchwheel.errors import TorchwheelError
from torchwheel.inspect.wheel import Wheel


def requirements(wheel: Wheel) -> list[Requirement]:
    """What the wheel requires on this machine, its extras left out."""
    every: list[Requirement] = wheel.metadata.requires_dist or []
    return [one for one in every if not one.marker or one.marker.evaluate({"extra": ""})]


def check_installed(wheels: Sequence[Wheel], tools: Sequence[str]) -> None:
    """Raise one line if a requirement of the wheels, or a tool of the run, is not met here.

    A wheel counts as installed for the others: they are tried together.
    """
    own = {wheel.name: str(wheel.version) for wheel in wheels}
    wanted = [("smoke", one) for one in map(Requirement, tools)]
    wanted += [(wheel.path.name, one) for wheel in wheels for one in requirements(wheel)]
    for who, requirement in wanted:
        found = own.get(canonicalize_name(requirement.name)) or _version(requirement.name)
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
