"""Times the kernels on a GPU against PyTorch, eager and compiled.

    python bench/kernels.py [--out OUT.json] [--quick] [--wheel WHEEL]

Figures are device times: events around graph replays, the median of many, contestants in turn,
random inputs rotated past the L2 cache. Percentages are of the bandwidth of a device-to-device copy
in the same run: a 1 GiB one, and for ours also one that moves as many bytes as the call. A cell in
red loses to a peer by more than 2 %. Needs torch and an installed fusedops.
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
from kernels_cases import CASES, DTYPES, SHAPES, Case, peers
from kernels_timing import (
    Captured,
    Copies,
    Timing,
    interleaved,
    large_copy_bandwidth,
    sets_needed,
)

import fusedops

TOLERANCE = 1.02
PEERS = ("eager", "compile", "max-autotune")


@dataclass(frozen=True)
class Row:
    """One operator, dtype and shape, with every contestant's time."""

    op: str
    dtype: str
    shape: tuple[int, int]
    bytes_moved: int
    times: dict[str, Timing]
    failures: dict[str, str]

    def percent(self, who: str, bandwidth: float) -> float:
        """Share of `bandwidth`, the large copy's, that `who` reaches."""
        return 100 * self.bytes_moved / (self.times[who].median_us * 1e-6) / bandwidth

    @property
    def percent_of_its_copy(self) -> float:
        """Our share of the bandwidth of a copy of as many bytes."""
        return 100 * self.times["copy"].median_us / self.times["ours"].median_us

    @property
    def loses(self) -> bool:
        """Whether a peer is faster than we are, beyond the noise."""
        best = min(self.times[who].median_us for who in PEERS if who in self.times)
        return self.times["ours"].median_us > TOLERANCE * best


def measure(case: Case, shape: tuple[int, int], dtype: torch.dtype, samples: int) -> Row:
    """Time one case; a peer that cannot run is noted, not fatal."""
    moved = case.bytes_moved(shape, dtype)
    inputs = [case.inputs(shape, dtype) for _ in range(sets_needed(moved))]
    contestants: dict[str, Captured | Copies] = {
        "copy": Copies(moved),
        "ours": Captured(case.ours, inputs, moved),
    }
    failures = {}
    for who, call in peers(case).items():
        try:
            contestants[who] = Captured(call, inputs, moved)
        except Exception as error:
            if who == "eager":
                raise
            failures[who] = str(error).splitlines()[0][:200]
    times = interleaved(contestants, samples)
    return Row(case.op, str(dtype).removeprefix("torch."), shape, moved, times, failures)


HEAD = f"{'':<34}{'ours':>10}  {'% copy':>11}  {'eager':>5} {'compile':>7} {'autotune':>8}"


def line(row: Row, bandwidth: float, colour: bool) -> str:
    """The row of the printed table."""
    # A small copy is all launch: nothing to compare with.
    same = f"({row.percent_of_its_copy:.0f})" if row.bytes_moved > 1 << 26 else ""
    ours = f"{row.times['ours'].median_us:8.1f}us  {row.percent('ours', bandwidth):4.0f} {same:>5}"
    if colour and row.loses:
        ours = f"\033[31m{ours}\033[0m"
    others = "".join(
        f"{row.percent(who, bandwidth):{width}.0f}" if who in row.times else f"{'-':>{width}}"
        for who, width in zip(PEERS, (6, 8, 9), strict=True)
    )
    shape = "x".join(map(str, row.shape))
    return f"{row.op:<11}{row.dtype:<9} {shape:<13}{ours} {others}{' loses' * row.loses}"


def about(wheel: Path | None) -> dict[str, Any]:
    """The machine, the versions and the code that was timed."""
    library = fusedops.status().library
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
    parser.add_argument("--out", type=Path, default=Path("kernels.json"), help="the JSON")
    parser.add_argument("--quick", action="store_true", help="bias_gelu only")
    parser.add_argument("--wheel", type=Path, help="the installed wheel, for its sha256")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench kernels: no GPU that torch can use", file=sys.stderr)
        return 1
    if not fusedops.status().native:
        print(f"bench kernels: {fusedops.status().reason}", file=sys.stderr)
        return 1
    samples = 20 if options.quick else 40
    bandwidth = large_copy_bandwidth(samples)
    facts = about(options.wheel)
    print(f"{facts['gpu']}, torch {facts['torch']}, copy {bandwidth / 1e12:.3f} TB/s")
    print("per cent of the copy's bandwidth; in brackets, of a copy of as many bytes")
    print(HEAD)
    rows = []
    for case in CASES[:1] if options.quick else CASES:
        for dtype in DTYPES:
            for shape in SHAPES:
                row = measure(case, shape, dtype, samples)
                rows.append(row)
                print(line(row, bandwidth, sys.stdout.isatty()), flush=True)
    record = {"about": facts, "copy_bytes_per_second": bandwidth, "rows": [asdict(r) for r in rows]}
    aside = options.out.with_name(f".{options.out.name}.aside")
    aside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    aside.replace(options.out)
    lost = sum(row.loses for row in rows)
    print(f"{len(rows)} cells, {lost} lost to a peer; written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
