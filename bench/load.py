"""Time of `import fusedops` over torch, of the first call and of later calls, by installation.

    python bench/load.py universal=FOLDER cu130-stable=FOLDER [--runs 9] [--out FILE]

Each folder is a `pip install --target` of one wheel. A run is a new process of each installation,
in turn; the table has medians. Needs a GPU.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_STEADY_CALLS = 2000
_CHILD = f"""
import json, time
import torch
x = torch.randn(4, 256, device="cuda", dtype=torch.bfloat16)
bias = torch.randn(256, device="cuda", dtype=torch.bfloat16)
torch.nn.functional.gelu(x + bias)
torch.cuda.synchronize()
start = time.perf_counter()
import fusedops
imported = time.perf_counter()
fusedops.bias_gelu(x, bias)
torch.cuda.synchronize()
called = time.perf_counter()
for _ in range(200):
    fusedops.bias_gelu(x, bias)
torch.cuda.synchronize()
steady = time.perf_counter()
for _ in range({_STEADY_CALLS}):
    fusedops.bias_gelu(x, bias)
end = time.perf_counter()
torch.cuda.synchronize()
print(json.dumps({{
    "import_ms": (imported - start) * 1e3,
    "first_call_ms": (called - imported) * 1e3,
    "steady_us": (end - steady) / {_STEADY_CALLS} * 1e6,
    "library": fusedops.status().library.name,
    "torch": torch.__version__,
    "gpu": torch.cuda.get_device_name(),
}}))
"""
_FIGURES = ("import_ms", "first_call_ms", "steady_us")


def run(folder: Path) -> dict[str, Any]:
    """One process of an installation."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], env=env, capture_output=True, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    """Measure, print the table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("installation", nargs="+", help="NAME=FOLDER")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folders = {
        name: Path(path) for name, _, path in (i.partition("=") for i in options.installation)
    }
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in folders}
    for folder in folders.values():  # bytecode is compiled, files are in memory
        run(folder)
    for _ in range(options.runs):
        for name, folder in folders.items():
            samples[name].append(run(folder))
    print(f"{'':16}{'import ms':>12}{'first call ms':>16}{'steady us':>12}  library")
    for name, runs in samples.items():
        medians = [statistics.median(one[figure] for one in runs) for figure in _FIGURES]
        print(
            f"{name:16}{medians[0]:12.1f}{medians[1]:16.1f}{medians[2]:12.2f}  {runs[0]['library']}"
        )
    if options.out:
        record = {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "runs": options.runs,
            "samples": samples,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
