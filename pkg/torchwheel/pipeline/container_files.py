"""The files that a container and this machine leave for each other, in the variant's folder.

Containers import this module: only the standard library is present where they try a wheel.
"""

import contextlib
import dataclasses
import json
import re
from pathlib import Path

from torchwheel.steps.compiler_cache import CacheUse
from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.files import write_text
from torchwheel_runtime.json_files import read_json

GROUP = Path("/sys/fs/cgroup")


@dataclasses.dataclass(frozen=True)
class Usage:
    """CPU seconds of all processes of the container so far, and their peak memory."""

    cpu_seconds: float | None = None
    peak_bytes: int | None = None


def usage(group: Path = GROUP) -> Usage:
    """Read the usage of the running container from its control group."""
    micro = re.search(r"usage_usec (\d+)", _read(group / "cpu.stat"))
    nano = _number(group / "cpuacct" / "cpuacct.usage")
    if micro:
        cpu: float | None = int(micro[1]) / 1e6
    else:
        cpu = nano / 1e9 if nano is not None else None
    peak = _number(group / "memory.peak")
    if peak is None:
        peak = _number(group / "memory" / "memory.max_usage_in_bytes")
    return Usage(cpu and round(cpu, 3), peak)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


VARIANT = Path("/variant")
BUNDLED = Path("/bundled")
CLAIMS = "claims.json"
PLAN = "own-build.json"
"""Of an ordinary project: what its own build needs to know."""
DIVIDED = "divided"
"""Folder of an ordinary project's steps and objects, where jobs divide its build."""
CACHE_USE = "cache-use.json"
"""Of an ordinary project: the files that the compiler cache had, and those that were compiled."""
PROBE = "probe.json"
JUNIT = "junit.xml"
STEPS = ("start", "build", "repair", "test")
"""The steps after which the container's usage is written down, in order."""


def account(step: str, folder: Path = VARIANT) -> None:
    """Write down the usage of the container when `step` ended."""
    write_text(folder / usage_file(step), json.dumps(dataclasses.asdict(usage())) + "\n")


def usage_file(step: str) -> str:
    """Name of the file that `account` writes."""
    return f"usage-{step}.json"


def read_usage(folder: Path) -> tuple[dict[str, float], int | None]:
    """CPU seconds of each step of the last container, and its peak memory when the build ended."""
    seconds: dict[str, float] = {}
    before, peak = 0.0, None
    for step in STEPS:
        try:
            usage = read_json(folder / usage_file(step), Usage)
        except (OSError, MalformedError):
            continue
        if usage.cpu_seconds is not None:
            seconds[step] = round(usage.cpu_seconds - before, 3)
            before = usage.cpu_seconds
        if step == "build":
            peak = usage.peak_bytes
    return seconds, peak


def read_cache_use(folder: Path) -> CacheUse | None:
    """What the compiler cache did for the last container; None where nobody counted."""
    with contextlib.suppress(OSError, MalformedError):
        return read_json(folder / CACHE_USE, CacheUse)
    return None
