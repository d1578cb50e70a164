"""Time and memory of `torchwheel inspect --json` on wheels, and what it finds in them.

    python bench/inspect_wheels.py WHEEL… [--record FILE]

Each wheel is read by a process of its own. Seconds are of the wall; the CPU seconds and the largest
resident memory are the system's account of that process.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from torchwheel_runtime.text import table_rows


def measure(wheel: Path) -> dict[str, Any]:
    """Read one wheel."""
    command = [sys.executable, "-m", "torchwheel", "inspect", "--json", str(wheel)]
    with tempfile.TemporaryFile() as output:
        start = time.monotonic()
        # wait4 has the account of this child alone.
        child = os.posix_spawn(
            sys.executable,
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, output.fileno(), 1)],
        )
        _, status, used = os.wait4(child, 0)
        seconds = time.monotonic() - start
        output.seek(0)
        report = json.loads(output.read()) if status == 0 else None
    found = report["findings"] if report else []
    return {
        "wheel": wheel.name,
        "bytes": wheel.stat().st_size,
        "unpacked": report["unpacked"] if report else None,
        "libraries": len(report["libraries"]) if report else None,
        "unread": sum(
            bool(library["problem"] or library["gpu_code_problem"])
            for library in (report["libraries"] if report else ())
        ),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "memory_mib": used.ru_maxrss >> 10,
        "errors": sorted({f["gate"] for f in found if f["level"] == "error"}),
        "first_error": next(
            (f"{f['place']} {f['says']}".strip() for f in found if f["level"] == "error"), None
        ),
    }


def main() -> int:
    """Measure each wheel, print a table and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, nargs="+")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    rows = [measure(wheel) for wheel in options.wheel]
    cells = [["MiB", "seconds", "cpu", "memory", "wheel", "gates that do not hold"]]
    cells += [
        [
            f"{row['bytes'] / (1 << 20):.0f}",
            f"{row['seconds']:.1f}",
            f"{row['cpu_seconds']:.1f}",
            f"{row['memory_mib']} MiB",
            row["wheel"],
            " ".join(row["errors"]),
        ]
        for row in rows
    ]
    print("\n".join(table_rows(">5 >7 >5 >8 < <", cells)))
    if options.record:
        about = {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "date": time.strftime("%Y-%m-%d"),
        }
        content = {"schema": 1, "about": about, "wheels": rows}
        options.record.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
