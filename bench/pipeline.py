"""Times `nox -s wheels` as a user meets it: cold, one kernel file touched, nothing touched.

    nox -s bench -- pipeline [--runs 3] [--growth] [--record docs/records/pipeline.json]

Cold is a fresh copy of the tree with empty caches (torchwheel's, pip's, sccache's, nox's),
downloads included. Peak memory is the largest sum of the resident sizes of all processes the run
started, sampled; the compile figures are each compiler's own peak, from the kernel's accounting.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import growth
import psutil

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {"cold": 300.0, "touched": 30.0, "nothing": 10.0}
MARK = "TORCHWHEEL_BENCH_RUN"
_SAMPLE = 0.1


def copy_tree(target: Path) -> None:
    """The files git knows or would know, as a clone has them, in a git folder of their own."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    subprocess.run(["git", "init", "--quiet"], cwd=target, check=True)


class Sampler:
    """Sums the resident memory of every process that carries the run's mark."""

    def __init__(self, mark: str) -> None:
        self.mark, self.peak, self._stop = mark, 0, threading.Event()
        self._known: dict[int, bool] = {}

    def _ours(self, process: psutil.Process) -> bool:
        # A daemon (sccache) leaves the tree but keeps the environment.
        if process.pid not in self._known:
            self._known[process.pid] = process.environ().get(MARK) == self.mark
        return self._known[process.pid]

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE):
            total = 0
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error, OSError):
                    if self._ours(process):
                        total += process.memory_info().rss
            self.peak = max(self.peak, total)

    @contextlib.contextmanager
    def sampling(self) -> Iterator["Sampler"]:
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()


def environment(caches: Path, mark: str) -> dict[str, str]:
    """Every cache below `caches`, and the mark."""
    kept = {k: v for k, v in os.environ.items() if k not in {"VIRTUAL_ENV", "NOX_CURRENT_SESSION"}}
    return kept | {
        "TORCHWHEEL_CACHE": str(caches / "torchwheel"),
        "PIP_CACHE_DIR": str(caches / "pip"),
        "SCCACHE_DIR": str(caches / "sccache"),
        "SCCACHE_SERVER_UDS": str(caches / "sccache.sock"),
        "SCCACHE_IDLE_TIMEOUT": "60",
        MARK: mark,
    }


def measure(tree: Path, caches: Path, log: Path) -> tuple[float, int]:
    """Seconds and peak bytes of one `nox -s wheels`."""
    mark = uuid.uuid4().hex
    with Sampler(mark).sampling() as sampler, log.open("w") as written:
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "nox", "-s", "wheels"],
            cwd=tree,
            env=environment(caches, mark),
            stdout=written,
            stderr=subprocess.STDOUT,
            check=False,
        )
        seconds = time.monotonic() - begun
    if done.returncode:
        raise SystemExit(f"nox -s wheels failed:\n{log.read_text()[-4000:]}")
    return seconds, sampler.peak


def touch(tree: Path, number: int) -> None:
    """Change one kernel file so that its preprocessed text, and so every cache's key, changes."""
    kernel = sorted((tree / "csrc" / "kernels").glob("*.cu"))[0]
    kernel.write_text(kernel.read_text() + f"\nnamespace {{ struct Touched{number} {{}}; }}\n")


def compile_costs(caches: Path) -> dict[str, dict[str, float]]:
    """Each compile of the plan run alone, without launcher: seconds and peak MB."""
    costs = {}
    for ninja in (caches / "torchwheel" / "build").glob("*/*/*/build.ninja"):
        text = ninja.read_text()
        for found in re.finditer(
            r"^build (\S+): compile.*\n  argv = (.*)\n  label = (.*)$", text, re.M
        ):
            if not found[3].startswith(("CUDA", "C++")):
                continue
            (command,) = shlex.split(found[2].replace("$$", "$"))
            timed = ["/usr/bin/env", "python3", "-c", _TIMER, command]
            out = subprocess.run(
                timed, cwd=ninja.parent, capture_output=True, text=True, check=True
            )
            seconds, kilobytes = out.stdout.split()
            costs[found[3]] = {
                "seconds": round(float(seconds), 2),
                "peak_mb": int(kilobytes) // 1000,
            }
    return costs


# ru_maxrss of children is that of the largest single process.
_TIMER = """
import resource, shlex, subprocess, sys, time
begun = time.monotonic()
subprocess.run(shlex.split(sys.argv[1]), check=True)
print(time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--growth", action="store_true", help="in containers: bench/growth.py")
    options = parser.parse_args()
    if options.growth:
        found = growth.measure()
        print(growth.text(found))
        write_record(options.record, found)
        return
    taken: dict[str, list[tuple[float, int]]] = {name: [] for name in TARGETS}
    wheels: dict[str, int] = {}
    costs: dict[str, dict[str, float]] = {}
    for run in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            tree, caches, log = Path(folder, "tree"), Path(folder, "caches"), Path(folder, "log")
            tree.mkdir()
            caches.mkdir()
            copy_tree(tree)
            for name in TARGETS:
                if name == "touched":
                    touch(tree, run)
                taken[name].append(measure(tree, caches, log))
                print(f"run {run + 1}: {name:8} {taken[name][-1][0]:6.1f} s", flush=True)
            wheels = {p.name: p.stat().st_size for p in sorted((tree / "dist").glob("*.whl"))}
            if run + 1 == options.runs:
                costs = compile_costs(caches)
    figures = {
        name: {
            "median_s": round(statistics.median(s for s, _ in values), 1),
            "runs_s": [round(s, 1) for s, _ in values],
            "peak_mb": round(max(peak for _, peak in values) / 1e6),
            "target_s": TARGETS[name],
        }
        for name, values in taken.items()
    }
    print(f"\n{'nox -s wheels':14}  median     peak    target")
    for name, row in figures.items():
        verdict = "" if row["median_s"] <= row["target_s"] else "  MISSED"
        print(
            f"{name:14} {row['median_s']:6.1f} s {row['peak_mb']:5} MB "
            f"{row['target_s']:6.0f} s{verdict}"
        )
    for label, cost in costs.items():
        print(f"{label:44} {cost['seconds']:6.2f} s {cost['peak_mb']:5} MB")
    for name, size in wheels.items():
        print(f"{name:60} {size / 1e6:.2f} MB")
    write_record(options.record, {"pipeline": figures, "compile": costs, "wheels": wheels})


def write_record(path: Path | None, found: dict[str, object]) -> None:
    """Write the figures with the day and the machine they were taken on."""
    if path is None:
        return
    head = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat("T", "seconds"),
        "machine": f"{os.cpu_count()} cores, {psutil.virtual_memory().total >> 30} GiB, "
        f"{platform.platform()}, Python {platform.python_version()}",
    }
    path.write_text(json.dumps({**head, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
