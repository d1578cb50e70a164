"""Installs verified wheels into an environment with pip or uv; torch stays as it is."""

import dataclasses
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from torchwheel import process
from torchwheel.errors import TorchwheelError, UsageError, program_error
from torchwheel.files import temporary_variables
from torchwheel.install.environment import TargetEnvironment
from torchwheel.install.page import OfferedWheel
from torchwheel.pip import pip_reason

Name = Literal["pip", "uv"]
_SECONDS = 3600


@dataclasses.dataclass(frozen=True)
class Installer:
    """A program that installs into an environment.

    Attributes:
        name: which one.
        command: what comes before its options, "install" among them.
    """

    name: Name
    command: tuple[str, ...]


def find_installer(environment: TargetEnvironment, wanted: Name | None = None) -> Installer:
    """The installer for an environment: its own pip, else uv, else the pip beside torchwheel.

    Raises:
        UsageError: there is none.
    """
    python = str(environment.python)
    pip = ("--disable-pip-version-check", "--no-input")
    if wanted != "uv" and "pip" in environment.installed:
        return Installer("pip", (python, "-m", "pip", *pip, "install"))
    uv = shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), _path())))
    if wanted != "pip" and uv:
        return Installer("uv", (uv, "pip", "install", "--python", python))
    if wanted != "uv" and importlib.util.find_spec("pip"):
        return Installer("pip", (sys.executable, "-m", "pip", "--python", python, *pip, "install"))
    raise UsageError(
        f"{python}: expected {wanted or 'pip or uv'}, found none; install it, "
        f"e.g. `{python} -m ensurepip`"
    )


def _path() -> str:
    return os.environ.get("PATH", os.defpath)


def install_files(
    installer: Installer, wheels: Sequence[tuple[OfferedWheel, Path]], folder: Path
) -> None:
    """Install wheels that were downloaded and verified, and nothing else.

    Args:
        installer: the program.
        wheels: each with its file; all files lie in one folder, with nothing else in it.
        folder: where the requirements may be written.
    """
    lines = [
        f"{wheel.file.partition('-')[0]}=={wheel.version} --hash=sha256:{wheel.sha256}\n"
        for wheel, _ in wheels
    ]
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(lines), encoding="utf-8")
    options = ["--no-deps", "--no-index", "--find-links", str(wheels[0][1].parent)]
    options += ["--require-hashes", "-r", str(requirements)]
    if installer.name == "pip":
        options += ["--force-reinstall", "--quiet"]
    else:
        options += ["--reinstall", "--offline", "--no-config", "--quiet"]
    _run(installer, options)


def install_others(
    installer: Installer,
    requirements: Sequence[Requirement],
    environment: TargetEnvironment,
    folder: Path,
) -> None:
    """Install requirements that the index does not offer, from where the installer is set up.

    The constraint keeps torch: a requirement that needs another one is an error.
    """
    constraints = folder / "constraints.txt"
    torch = environment.torch
    lines = [f"torch=={torch.version}\n"] if torch else []
    constraints.write_text("".join(lines), encoding="utf-8")
    _run(installer, ["--quiet", "--constraint", str(constraints), *map(str, requirements)])


def _run(installer: Installer, options: Sequence[str]) -> None:
    doing = f"{installer.name} install"
    variables = {**os.environ, **temporary_variables()}
    try:
        done = process.run([*installer.command, *options], env=variables, timeout=_SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"{doing}: {error.reason}") from None
    if done.status:
        said = done.output + done.errors
        reason = pip_reason(said) if installer.name == "pip" else done.last_words("it said nothing")
        raise program_error(f"{doing}: {reason}")
