"""The clean environment a wheel is tried in, and the current one for a machine that is offline."""

import dataclasses
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from torchwheel import files, process
from torchwheel.console import Progress
from torchwheel.inspect.wheel import Wheel
from torchwheel.lock import hold_lock, say_waiting
from torchwheel.pip import pip_install
from torchwheel.smoke.requirements import check_installed, requirements

TORCH = "torch"
COMPLETE = "complete"
"""Marker of a finished base: a venv cannot be renamed into place, so it is built where it stays."""
_OURS = ("PYTHONPATH", "PYTHONHOME", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "VIRTUAL_ENV")


@dataclasses.dataclass(frozen=True)
class Environment:
    """An interpreter, the variables to run it with, and the folder the wheel is installed in."""

    python: Path
    environ: Mapping[str, str]
    site: Path


def usual_torch(wheel: Wheel, usual: str) -> str | None:
    """The usual release if the wheel can be beside it; none: a release that the wheel asks for."""
    asked = (one for one in requirements(wheel) if canonicalize_name(one.name) == TORCH)
    return usual if all(one.specifier.contains(usual, prereleases=True) for one in asked) else None


def pins(wheels: Sequence[Wheel], torch: str | None, requires: Sequence[str]) -> tuple[str, ...]:
    """What the base holds: all that the wheels and the tests need, but for the wheels themselves.

    torch is as pinned, or as the wheels ask for it.
    """
    every = [one for wheel in wheels for one in requirements(wheel)]
    named = [str(one) for one in every if canonicalize_name(one.name) == TORCH]
    own = [f"torch=={torch}"] if torch else named or [TORCH]
    there = {TORCH, *(wheel.name for wheel in wheels)}
    others = [str(one) for one in every if canonicalize_name(one.name) not in there]
    tools = requires if any(one.startswith("pytest") for one in requires) else ("pytest", *requires)
    return tuple(sorted({*own, *others, *tools}))


def base(cache: Path, wanted: Sequence[str], progress: Progress) -> Path:
    """A cached venv with the pinned packages, made once per Python and set of pins."""
    key = "\n".join([sys.version, platform.machine(), *sorted(wanted)])
    folder = cache / "smoke" / hashlib.sha256(key.encode()).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    busy = say_waiting(progress.say, "smoke environment: another run makes it")
    with (
        hold_lock(folder.with_name(f"{folder.name}.lock"), busy),
        files.explain_full_disk(folder),
    ):
        if not (folder / COMPLETE).is_file():
            progress.step(f"smoke environment: {' '.join(wanted)}")
            shutil.rmtree(folder, ignore_errors=True)
            python = _venv(folder)
            doing = f"cannot install {' '.join(wanted)}"
            pip_install(python, wanted, offline=False, doing=doing)
            files.write_text(folder / COMPLETE, "\n".join(sorted(wanted)) + "\n")
    return folder


def clean(wheels: Sequence[Wheel], base_folder: Path, temporary: Path) -> Environment:
    """A fresh venv over the base; pip finds there what the wheels require, without an index."""
    env = over(base_folder, temporary / "venv")
    doing = f"{wheels[0].path.name} does not install beside the packages of the smoke environment"
    pip_install(env.python, _files(wheels), offline=True, doing=doing)
    return env


def over(base_folder: Path, folder: Path) -> Environment:
    """A fresh venv in `folder` in which the packages of the base are there too."""
    python = _venv(folder)
    site = site_of(folder)
    # addsitedir, not a bare path: the base may have .pth files of its own.
    (site / "base.pth").write_text(f"import site; site.addsitedir({str(site_of(base_folder))!r})\n")
    return Environment(python, {**_foreign(), "PYTHONNOUSERSITE": "1"}, site)


def here(wheels: Sequence[Wheel], packages: Sequence[str], temporary: Path) -> Environment:
    """The running interpreter, with the wheels in a temporary folder in front of everything."""
    check_installed(wheels, ("pytest",))
    target, python = temporary / "site", Path(sys.executable)
    arguments = ["--no-deps", "--target", str(target), *_files(wheels)]
    pip_install(python, arguments, offline=True, doing=f"{wheels[0].path.name} does not install")
    rest = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    # The source tree may be on PYTHONPATH (to find torchwheel): it must not be what is tested.
    kept = [one for one in rest if not any((Path(one) / name).exists() for name in packages)]
    path = os.pathsep.join([str(target), *(str(Path(one).resolve()) for one in kept)])
    return Environment(python, {**_foreign(), "PYTHONPATH": path}, target)


def _files(wheels: Sequence[Wheel]) -> list[str]:
    return [str(wheel.path.resolve()) for wheel in wheels]


def _foreign() -> dict[str, str]:
    """The variables of this process, less those that would lead back to our own packages."""
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def _venv(folder: Path) -> Path:
    done = process.run([sys.executable, "-m", "venv", "--without-pip", folder])
    done.require(f"cannot make a virtual environment in {folder}")
    return folder / "bin" / "python"


def site_of(folder: Path) -> Path:
    """The site-packages of a venv made here."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / python / "site-packages"
