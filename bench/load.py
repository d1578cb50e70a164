"""Times of `import fusedops` over torch, of first calls and of later calls, by installation.

    python bench/load.py universal=WHEEL cu124=WHEEL@cu124 [--runs 9] [--out FILE]

Each argument names a wheel, or a folder of `pip install --target`; NAME=WHEEL@LIBRARY sets
TORCHWHEEL_LIBRARY. A run is a new process of each installation, in turn; the table has medians.
`others` are the first calls of operators of seven more families: a kernel's code is decompressed
and loaded at its first launch. Needs a GPU.
"""

import argparse
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torchwheel.smoke.requirements import bundled_with
from torchwheel_runtime.files import sha256
from torchwheel_runtime.text import table_rows

_STEADY_CALLS = 2000
_CHILD = f"""
import json, time
from pathlib import Path
import torch

def timed(call):
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3

def mapped():
    folder = str(Path(fusedops.__file__).parent)
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {{line.split(maxsplit=5)[5] for line in lines if folder in line}}
    return sorted(Path(file).name for file in files if file.endswith(".so"))

x = torch.randn(4, 256, device="cuda", dtype=torch.bfloat16)
bias = torch.randn(256, device="cuda", dtype=torch.bfloat16)
scores = torch.randn(1, 4, 64, 64, device="cuda", dtype=torch.bfloat16)
weight = torch.ones(4, 256, device="cuda", dtype=torch.int8)
scale = torch.ones(4, device="cuda")
torch.nn.functional.gelu(x + bias)
torch.cuda.synchronize()
start = time.perf_counter()
import fusedops
imported = (time.perf_counter() - start) * 1e3
at_import = mapped()
first = timed(lambda: fusedops.bias_gelu(x, bias))
calls = {{
    "vector_add": lambda: fusedops.vector_add(x, x),
    "rms_norm": lambda: fusedops.rms_norm(x, bias),
    "layer_norm": lambda: fusedops.layer_norm(x, bias, bias),
    "gated_activation": lambda: fusedops.gated_activation(x, kind="swiglu"),
    "bias_residual": lambda: fusedops.bias_residual(x, x, bias),
    "softmax": lambda: fusedops.softmax(scores),
    "dequantize": lambda: fusedops.dequantize(weight, scale),
    "add_padding": lambda: fusedops.add_padding(scores),
}}
others = {{name: timed(call) for name, call in calls.items()}}
for _ in range(200):
    fusedops.bias_gelu(x, bias)
torch.cuda.synchronize()
start = time.perf_counter()
for _ in range({_STEADY_CALLS}):
    fusedops.bias_gelu(x, bias)
steady = (time.perf_counter() - start) / {_STEADY_CALLS} * 1e6
torch.cuda.synchronize()
status = fusedops.status()
print(json.dumps({{
    "import_ms": imported,
    "first_call_ms": first,
    "others_ms": sum(others.values()),
    "steady_us": steady,
    "others": others,
    "mapped_at_import": at_import,
    "mapped": mapped(),
    "library": status.library.name,
    "torch": torch.__version__,
    "gpu": torch.cuda.get_device_name(),
}}))
"""
_FIGURES = ("import_ms", "first_call_ms", "others_ms", "steady_us")


@dataclasses.dataclass(frozen=True)
class Installation:
    """One installation to measure.

    Attributes:
        name: its name in the table.
        folder: the folder that PYTHONPATH gets.
        wheel: the wheel that was installed there; None for a folder that was made before.
        library: the kernel library that is forced, if any.
    """

    name: str
    folder: Path
    wheel: Path | None = None
    library: str | None = None

    def environment(self) -> dict[str, str]:
        """The variables of its processes."""
        forced = {"TORCHWHEEL_LIBRARY": self.library} if self.library else {}
        return {**os.environ, "PYTHONPATH": str(self.folder), **forced}

    def about(self) -> dict[str, Any]:
        """What the record says of it."""
        about: dict[str, Any] = {"library": self.library}
        if self.wheel:
            about |= {
                "wheel": self.wheel.name,
                "sha256": sha256(self.wheel),
                "size": self.wheel.stat().st_size,
            }
        return about


def install(argument: str, folder: Path) -> Installation:
    """The installation that NAME=WHEEL@LIBRARY or NAME=FOLDER names; a wheel goes to `folder`."""
    name, _, rest = argument.partition("=")
    text, _, library = rest.partition("@")
    path = Path(text)
    if path.suffix != ".whl":
        return Installation(name, path, library=library or None)
    target = folder / name
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    wheels = [str(path), *map(str, bundled_with(path))]
    subprocess.run([*command, "--target", str(target), *wheels], check=True)
    return Installation(name, target, path, library or None)


def run(installation: Installation) -> dict[str, Any]:
    """One process of an installation."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        env=installation.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{installation.name}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(samples: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    """The medians of each installation."""
    cells = [("", "import ms", "first call ms", "others ms", "later us", "library")]
    for name, runs in samples.items():
        rows = list(runs)
        medians = [statistics.median(one[figure] for one in rows) for figure in _FIGURES]
        cells.append((name, *(f"{value:.1f}" for value in medians), rows[0]["library"]))
    return "\n".join(table_rows("<16 >9 >13 >9 >8 <", cells))


def main() -> None:
    """Measure, print the table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("installation", nargs="+", help="NAME=WHEEL, NAME=WHEEL@LIBRARY")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        installations = [install(text, Path(folder)) for text in options.installation]
        samples: dict[str, list[dict[str, Any]]] = {one.name: [] for one in installations}
        for one in installations:  # bytecode is compiled, files are in memory
            run(one)
        for _ in range(options.runs):
            for one in installations:
                samples[one.name].append(run(one))
        about = {one.name: one.about() for one in installations}
    print(table(samples))
    if options.out:
        record = {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "runs": options.runs,
            "installations": about,
            "samples": samples,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
