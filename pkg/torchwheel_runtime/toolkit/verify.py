"""Checks that the parts of a toolkit are one release."""

import re
from collections.abc import Sequence
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.errors import TorchwheelError, program_error
from torchwheel_runtime.versions import minor_version

_ERROR = re.compile("error|fatal")


def tool_output(command: Sequence[str]) -> str:
    """The output of a tool of the toolkit; a failure is one line."""
    done = process.run(command)
    if done.status:
        why = done.reason(_ERROR, first=True, otherwise="failed")
        raise program_error(f"{Path(command[0]).name}: {why}")
    return done.output + done.errors


def _tool_release(tool: Path) -> str:
    """The release that a tool prints for --version, e.g. "13.0.88"."""
    match = re.search(r"\bV(\d+\.\d+\.\d+)", tool_output([str(tool), "--version"]))
    if not match:
        raise TorchwheelError(f"{tool}: prints no release for --version")
    return match[1]


def _cudart_version(root: Path) -> str:
    """The runtime's version from its header, as "13.0"."""
    header = root / "include" / "cuda_runtime_api.h"
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TorchwheelError(f"{header}: {error.strerror}") from error
    match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    if not match:
        raise TorchwheelError(f"{header}: defines no CUDART_VERSION")
    number = int(match[1])
    return f"{number // 1000}.{number % 1000 // 10}"


def nvcc_release(root: Path) -> str:
    """The release of a toolkit by its nvcc, as "13.0"."""
    return minor_version(_tool_release(root / "bin" / "nvcc"))


def agreed_release(root: Path, version: str) -> str:
    """The release of nvcc; nvcc, ptxas and cudart must all be of CUDA `version`."""
    releases = {tool: _tool_release(root / "bin" / tool) for tool in ("nvcc", "ptxas")}
    if len(set(releases.values())) > 1:
        named = ", ".join(f"{tool} {release}" for tool, release in releases.items())
        raise TorchwheelError(
            f"{root}: a mixed toolkit: {named}; every component must be one release"
        )
    release = releases["nvcc"]
    for name, part_version in (
        ("nvcc", ".".join(release.split(".")[:2])),
        ("cudart", _cudart_version(root)),
    ):
        if part_version != version:
            raise TorchwheelError(
                f"{root}: {name} is of CUDA {part_version}; {version} was asked for"
            )
    return release
