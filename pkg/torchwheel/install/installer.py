"""Installs verified wheels into an environment with pip or uv; torch stays as it is."""

import dataclasses
import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from torchwheel.install.environment import TargetEnvironment
from torchwheel.install.page import OfferedWheel
from torchwheel_runtime import process
from torchwheel_runtime.errors import TorchwheelError, UsageError, program_error
from torchwheel_runtime.files import temporary_variables
from torchwheel_runtime.pip import pip_reason
from torchwheel_runtime.text import hide_users

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
        return Installer("pip", (*process.python_module(python, "pip"), *pip, "install"))
    uv = shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), _path())))
    if wanted != "pip" and uv:
        target = str(environment.python.absolute())
        return Installer("uv", (str(Path(uv).absolute()), "pip", "install", "--python", target))
    if wanted != "uv" and importlib.util.find_spec("pip"):
        ours = process.python_module(sys.executable, "pip")
        return Installer("pip", (*ours, "--python", python, *pip, "install"))
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
    variables, folder = {**os.environ, **temporary_variables()}, None
    if installer.name == "uv":
        # It obeys uv.toml and pyproject.toml of the folder that it runs in and of those above.
        variables, folder = {**variables, **_absolute_places(variables)}, "/"
    try:
        command = [*installer.command, *options]
        done = process.run(command, cwd=folder, env=variables, timeout=_SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"{doing}: {error.reason}") from None
    if done.status:
        said = done.output + done.errors
        reason = pip_reason(said) if installer.name == "pip" else done.last_words("it said nothing")
        raise program_error(hide_users(f"{doing}: {reason}"))


_PLACES = {
    **dict.fromkeys(("UV_CACHE_DIR", "UV_CONFIG_FILE", "SSL_CERT_FILE", "SSL_CLIENT_CERT"), ""),
    **dict.fromkeys(("UV_CONSTRAINT", "UV_OVERRIDE", "UV_BUILD_CONSTRAINT"), " "),
    **dict.fromkeys(("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"), " "),
    "UV_FIND_LINKS": ",",
}
"""uv's variables that name files, folders or addresses, and what separates several of them."""


def _absolute_places(environ: Mapping[str, str]) -> dict[str, str]:
    """These variables for another folder: a relative path means what it means in this one."""
    found = {}
    for name, separator in _PLACES.items():
        if value := environ.get(name):
            places = value.split(separator) if separator else [value]
            found[name] = separator.join(map(_absolute_place, places))
    return found


def _absolute_place(text: str) -> str:
    """A path, or NAME=PATH as of an index, with the path made absolute; an address stays."""
    if not text or "://" in text or text.startswith("file:"):
        return text
    name, equals, path = text.rpartition("=")
    return f"{name}{equals}{Path(path).absolute()}"
