"""What CI compiles for all variants of a toolkit, with one kernels job, beside one variant alone.

    nox -s bench -- compile_once [TOOLKIT] [--archs 8.0] [--record FILE]

Every job is what a job of CI is: a container, a checkout of its own, no objects of an earlier job
and no compiler cache. First one variant is built alone. Then the kernels are compiled, and each
variant of the toolkit links them. The files that were compiled are counted in the jobs' build logs;
CPU seconds are the container's own account of the build. The wheel that was built alone must have
the bytes of the one that was linked.
"""

import argparse
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from growth import ROOT, _compiled
from pipeline import write_record

from torchwheel.image.engine import find_engine
from torchwheel.matrix.kernel_builds import compiled_variants, select_kernels
from torchwheel.matrix.load import load
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import Variant, select
from torchwheel.pipeline.executors import compiler_of
from torchwheel.pipeline.in_container import read_usage
from torchwheel.pipeline.inputs import Clock, Run
from torchwheel.pipeline.kernel_artifacts import (
    Manifest,
    choose_artifacts,
    kernel_inputs,
    write_manifest,
)
from torchwheel.pipeline.kernels import compile_objects
from torchwheel.pipeline.sources import stage
from torchwheel.pipeline.wheels import with_archs
from torchwheel_runtime.builder.ninja import parallel_jobs
from torchwheel_runtime.console import Terminal
from torchwheel_runtime.files import sha256
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.text import table_rows
from torchwheel_runtime.toolkit.cache import cache_folder

MOST = 1.5
"""The most that all variants may compile, in CPU seconds of one variant alone."""


@contextmanager
def job(matrix: Matrix, progress: Terminal) -> Iterator[Run]:
    """A run with a checkout of its own, and so without objects of another one."""
    with tempfile.TemporaryDirectory(prefix="compile-once-") as name:
        root = Path(name).resolve() / "checkout"
        stage(ROOT, root)
        dist = Path(name).resolve() / "dist"
        (dist / "bundled").mkdir(parents=True)
        run = Run(
            matrix, root, dist, cache_folder(), "", (), progress, find_engine(), parallel_jobs()
        )
        try:
            yield run
        finally:
            shutil.rmtree(run.cached_folder("objects").parent, ignore_errors=True)


def row(name: str, run: Run, variants: Sequence[Variant]) -> dict[str, Any]:
    """What the containers of a job compiled."""
    folders = [run.variant_folder(variant) for variant in variants]
    logs = [folder / "build.log" for folder in folders]
    return {
        "job": name,
        "kernels": sum(_compiled(log, kind) for log in logs for kind in ("CUDA", "HIP")),
        "host_files": sum(_compiled(log, "C++") for log in logs),
        "cpu_seconds": round(sum(read_usage(folder)[0]["build"] for folder in folders), 1),
    }


def build(run: Run, variant: Variant, name: str) -> tuple[dict[str, Any], str]:
    """Build a variant in its container, without tests; its row and the hash of its wheel."""
    with tempfile.TemporaryDirectory() as out:
        executor = compiler_of(run, variant)
        built = executor.build(Path(out).resolve(), Clock(), tests=False)
        return row(name, run, [variant]), sha256(built.wheel)


def measure(toolkit: str, archs: Sequence[str]) -> dict[str, Any]:
    """One variant alone, then the kernels and every variant."""
    matrix = load(ROOT / "matrix.yaml")
    (kernels,) = select_kernels(matrix, [toolkit])
    matrix = with_archs(matrix, kernels.variants, tuple(archs))
    (kernels,) = select_kernels(matrix, [toolkit])
    wheels = [variant for variant in kernels.variants if variant.part is None]
    (alone,) = select(matrix, [min(v.id for v in wheels if v.abi == "aten")])
    with Terminal().live_line() as progress, tempfile.TemporaryDirectory() as name:
        with job(matrix, progress) as run:
            first, expected = build(run, alone, f"{alone.id} alone")
        progress.say(str(first))
        folder = Path(name).resolve() / toolkit
        folder.mkdir()
        with job(matrix, progress) as run:
            variants = compiled_variants(matrix, kernels)
            objects = compile_objects(run, variants, Shard(), folder)
            inputs = kernel_inputs(
                kernels, matrix.project.name, run.source, compiler_of(run, alone).compiler
            )
            write_manifest(folder, Manifest(inputs, str(Shard()), False, tuple(objects)))
            rows = [row(f"kernels of {toolkit}", run, variants)]
        progress.say(str(rows[0]))
        for variant in wheels:
            with job(matrix, progress) as run:
                linked = {variant.id: choose_artifacts(folder.parent, inputs)}
                linking = dataclasses.replace(run, linked=linked, kernels_only=True)
                made, digest = build(linking, variant, variant.id)
                rows.append(made)
                progress.say(str(made))
                if variant.id == alone.id and digest != expected:
                    sys.exit(f"{variant.id}: linked and built alone, it has other bytes")
    of_all = {
        key: sum(one[key] for one in rows) for key in ("kernels", "host_files", "cpu_seconds")
    }
    return {
        "toolkit": toolkit,
        "archs": inputs.archs,
        "sha256": {alone.id: expected},
        "alone": first,
        "jobs": rows,
        "all": {"job": f"all {len(rows)} jobs", **of_all},
        "ratio": {key: round(of_all[key] / first[key], 3) for key in ("kernels", "cpu_seconds")},
    }


def text(found: dict[str, Any]) -> str:
    """The table, and the ratio."""
    cells = [("job", "kernels", "C++", "CPU s")]
    for one in (found["alone"], *found["jobs"], found["all"]):
        seconds = f"{one['cpu_seconds']:.1f}"
        cells.append((one["job"], str(one["kernels"]), str(one["host_files"]), seconds))
    ratio = found["ratio"]["cpu_seconds"]
    return "\n".join([*table_rows("<30 >8 >5 >8", cells), f"{ratio:.2f} times one variant alone"])


def main() -> int:
    """Print and record it; 1 if it is more than it may be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("toolkit", nargs="?", default="cu124")
    parser.add_argument("--archs", default="", help="another arch list")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    found = measure(options.toolkit, options.archs.replace(";", " ").split())
    print(text(found))
    if options.record:
        write_record(options.record, found)
    return int(found["ratio"]["cpu_seconds"] > MOST)


if __name__ == "__main__":
    sys.exit(main())
