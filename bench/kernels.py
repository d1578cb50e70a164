"""Times the kernels on a GPU against PyTorch, eager and compiled.

    python bench/kernels.py --out OUT.json [--quick] [--wheel WHEEL]

Figures are device times: events around graph replays, the median of many, random inputs rotated
past the L2 cache. Percentages are of the bandwidth of a 1 GiB device-to-device copy of the same
run. A cell in red loses to a peer by more than 2 %. Needs torch and an installed fusedops.
"""

import argparse
import datetime
import hashlib
import json
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from kernels_cases import CASES, DTYPES, QUICK_SHAPES, SHAPES, Case, peers
from kernels_timing import Timing, copy_bandwidth, sets_needed, time_on_device

import fusedops

TOLERANCE = 1.02
COLUMNS = ("ours", "eager", "compile", "max-autotune")


@dataclass(frozen=True)
class Row:
    """One operator, dtype and shape, with every contestant's time."""

    op: str
    dtype: str
    shape: tuple[int, int]
    bytes_moved: int
    times: dict[str, Timing]
    failures: dict[str, str]

    def percent(self, who: str, copy: float) -> float:
        """Share of the copy's bandwidth that `who` reaches."""
        return 100 * self.bytes_moved / (self.times[who].median_us * 1e-6) / copy

    @property
    def loses(self) -> bool:
        """Whether a peer is faster than we are, beyond the noise."""
        best = min(t.median_us for who, t in self.times.items() if who != "ours")
        return self.times["ours"].median_us > TOLERANCE * best


def measure(case: Case, shape: tuple[int, int], dtype: torch.dtype, samples: int) -> Row:
    """Time one case; a peer that cannot run is noted, not fatal."""
    moved = case.bytes_moved(shape, dtype)
    inputs = [case.inputs(shape, dtype) for _ in range(sets_needed(moved))]
    times = {"ours": time_on_device(case.ours, inputs, samples)}
    failures = {}
    for who, call in peers(case).items():
        try:
            times[who] = time_on_device(call, inputs, samples)
        except Exception as error:
            if who == "eager":
                raise
            failures[who] = str(error).splitlines()[0][:200]
    return Row(case.op, str(dtype).removeprefix("torch."), shape, moved, times, failures)


def line(row: Row, copy: float, colour: bool) -> str:
    """The row of the printed table."""
    cells = []
    for who in COLUMNS:
        if who in row.times:
            us, share = row.times[who].median_us, row.percent(who, copy)
            text = f"{us:9.1f} us {share:5.1f} %"
        else:
            text = f"{'failed':>20}"
        red = colour and who == "ours" and row.loses
        cells.append(f"\033[31m{text}\033[0m" if red else text)
    mark = " loses" if row.loses else ""
    shape = "x".join(map(str, row.shape))
    return f"{row.op:<11} {row.dtype:<9} {shape:<12}" + "  ".join(cells) + mark


def about(wheel: Path | None) -> dict[str, Any]:
    """The machine, the versions and the code that was timed."""
    library = fusedops.native_status().library
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu": torch.cuda.get_device_name(),
        "driver": _driver(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "fusedops": fusedops.__version__,
        "library": library.name if library else None,
        "library_sha256": _sha256(library),
        "wheel": wheel.name if wheel else None,
        "wheel_sha256": _sha256(wheel),
    }


def _sha256(path: Path | None) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path else None


def _driver() -> str | None:
    tool = shutil.which("nvidia-smi")
    if not tool:
        return None
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--quick", action="store_true", help="bias_gelu only, large shapes only")
    parser.add_argument("--wheel", type=Path, help="the installed wheel, for its sha256")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench kernels: no GPU that torch can use", file=sys.stderr)
        return 1
    if not fusedops.native_status().loaded:
        print(f"bench kernels: {fusedops.native_status().reason}", file=sys.stderr)
        return 1
    samples = 30 if options.quick else 60
    copy = copy_bandwidth(samples)
    facts = about(options.wheel)
    print(f"{facts['gpu']}, torch {facts['torch']}, copy {copy / 1e12:.3f} TB/s")
    print(f"{'':<34}" + "".join(f"{who:>20}  " for who in COLUMNS))
    rows = []
    for case in CASES[:1] if options.quick else CASES:
        for dtype in DTYPES:
            for shape in QUICK_SHAPES if options.quick else SHAPES:
                row = measure(case, shape, dtype, samples)
                rows.append(row)
                print(line(row, copy, sys.stdout.isatty()), flush=True)
    record = {"about": facts, "copy_bytes_per_second": copy, "rows": [asdict(r) for r in rows]}
    aside = options.out.with_name(f".{options.out.name}.aside")
    aside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    aside.replace(options.out)
    lost = sum(row.loses for row in rows)
    print(f"{len(rows)} cells, {lost} lost to a peer; written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
