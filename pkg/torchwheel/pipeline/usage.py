"""What a container has used, as its control group counts it; empty where nothing is counted.

The group is seen from inside: version 2 of the interface, else version 1.
"""

import dataclasses
import re
from pathlib import Path

GROUP = Path("/sys/fs/cgroup")


@dataclasses.dataclass(frozen=True)
class Usage:
    """CPU seconds of all processes so far, and the most bytes they had at once."""

    cpu_seconds: float | None = None
    peak_bytes: int | None = None


def usage(group: Path = GROUP) -> Usage:
    """Read the running container's account."""
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
