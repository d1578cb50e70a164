"""What one more variant costs, in containers, beside the same work done the usual way.

    nox -s bench -- pipeline --growth [--record docs/records/growth.json]
    python bench/growth.py DIST [--record FILE]    the parts of the universal wheel in DIST
    python bench/growth.py RECORD                  the same, from a record of the second form

The first variant of a toolkit compiles its kernels; each further torch or Python compiles its front
end alone. The usual way is torch's CUDAExtension with torch/extension.h in every file, one build
per variant: same kernels, same image, same archs. CPU seconds are the container's own account of
the build; torch's installation for the usual way is not counted.

The second form reads what `torchwheel wheels --container --dist DIST universal` wrote; for whole
figures that run must have found no objects of an earlier one.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchwheel.image.engine import Engine, find_engine, volume_options
from torchwheel.image.images import ensure_image
from torchwheel.image.recipes import image_of
from torchwheel.inspect.wheel import read_wheel
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import Variant, select
from torchwheel.pipeline.container_options import OWN, VARIANT, index_options
from torchwheel.pipeline.inside import usage
from torchwheel_runtime.arch.releases import TorchFacts, torch_releases
from torchwheel_runtime.builder.recipe import INCLUDE
from torchwheel_runtime.console import Terminal
from torchwheel_runtime.text import size_text, table_rows
from torchwheel_runtime.toolkit.cache import cache_folder
from torchwheel_runtime.versions import version_numbers

ROOT = Path(__file__).resolve().parents[1]
# In the order of the matrix, which is that of the builds: the first compiles the kernels.
VARIANTS = (
    "cu130-stable",
    "cu130-torch2.11-cp310",
    "cu130-torch2.11-cp311",
    "cu130-torch2.11-cp312",
    "cu130-torch2.11-cp313",
)
USUAL = ("cu130-torch2.11-cp312",)

# Runs in the image: torch into a folder, then the build alone, with the account before and after.
_SETUP = """\
import glob, sys
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
sources = sorted(glob.glob("csrc/kernels/*.cu") + glob.glob("csrc/families/*.cpp"))
setup(name="usual", version="1", packages=[], cmdclass={"build_ext": BuildExtension}, ext_modules=[
    CUDAExtension("usual._C", [*sources, "binding.cpp"], include_dirs=["/src/csrc"],
                  extra_compile_args={"cxx": ["-O2"], "nvcc": ["-O3"]})])
"""
_SCRIPT = """
set -e
cd /src
uv venv --quiet /tmp/venv
uv pip install --quiet --python /tmp/venv "$1" setuptools packaging ninja numpy
export PATH=/tmp/venv/bin:$PATH PYTHONPATH=/opt/torchwheel
# The usual way links the shared runtime, which torch's wheels bring without its development link.
mkdir /tmp/lib
ln -s "$(find -L /tmp/venv/lib -name 'libcudart.so.*' | head -n 1)" /tmp/lib/libcudart.so
export LIBRARY_PATH=/tmp/lib
python -m torchwheel.pipeline.inside account start
python setup.py -q build_ext --build-temp /tmp/objects --build-lib /tmp/built
python -m torchwheel.pipeline.inside account build
"""


def ours(scratch: Path) -> list[dict[str, Any]]:
    """Every variant in turn, without caches: its CPU seconds, compiles and memory."""
    dist, cache = scratch / "dist", scratch / "cache"
    cache.mkdir()
    # What is downloaded is not what is measured.
    for name in ("uv", "torch"):
        (cache_folder() / name).mkdir(exist_ok=True)
        (cache / name).symlink_to(cache_folder() / name)
    command = [sys.executable, "-m", "torchwheel", "wheels", "--container", "--at-once", "1"]
    subprocess.run(
        [*command, "--dist", str(dist), *VARIANTS],
        cwd=ROOT,
        env={**os.environ, "TORCHWHEEL_CACHE": str(cache)},
        check=True,
    )
    found = {
        row["variant"]: row["record"]
        for row in json.loads((dist / "report.json").read_text())["variants"]
    }
    rows = []
    for name in VARIANTS:
        record = found[name]
        (log,) = cache.glob(f"build/*/{name}-contained/build.log")
        rows.append(
            {
                "variant": name,
                "cpu_seconds": record["cpu_seconds"]["build"],
                "repair_cpu_seconds": record["cpu_seconds"]["repair"],
                "test_cpu_seconds": record["cpu_seconds"]["test"],
                "kernels_compiled": _compiled(log, "CUDA"),
                "files_compiled": _compiled(log, "CUDA") + _compiled(log, "C++"),
                "peak_bytes": record["peak_bytes"],
                "size": record["size"],
            }
        )
    return rows


def _compiled(log: Path, kind: str) -> int:
    lines = log.read_text().splitlines()
    return len({line.split("] ", 1)[1] for line in lines if f"] {kind} " in line})


def _usual_project(folder: Path) -> None:
    """The same sources with torch/extension.h in every file."""
    shutil.copytree(ROOT / "csrc", folder / "csrc")
    shutil.copytree(INCLUDE / "torchwheel", folder / "csrc" / "torchwheel")
    for source in [*folder.glob("csrc/kernels/*.cu"), *folder.glob("csrc/families/*.cpp")]:
        source.write_text(f"#include <torch/extension.h>\n{source.read_text()}")
    torch = folder / "csrc" / "torch"
    binding = [*sorted(torch.glob("families/*.cpp")), torch / "aten" / "typed.cpp"]
    aten = "".join(f'#include "{path.relative_to(folder / "csrc")}"\n' for path in binding)
    module = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { (void)m; }\n"
    (folder / "binding.cpp").write_text(f"#include <torch/extension.h>\n{aten}{module}")
    (folder / "setup.py").write_text(_SETUP)


def usual(engine: Engine, variant: Variant, scratch: Path) -> dict[str, Any]:
    """One variant the usual way, in the image that ours is built in."""
    matrix = load(ROOT / "matrix.yaml")
    with Terminal().live_line() as progress:
        image = ensure_image(engine, image_of(matrix, variant, ROOT), cache_folder(), progress)
    objects = scratch / f"usual-{variant.id}"
    objects.mkdir()
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "src"
        _usual_project(project)
        for folder in (objects, project, Path(name)):
            folder.chmod(0o777)
        volumes, told = index_options(os.environ)
        volumes += [
            OWN,
            (str(project), "/src", "rw"),
            (str(objects), VARIANT, "rw"),
        ]
        toolkit = variant.toolkit
        environ = {
            **told,
            "UV_NO_CACHE": "1",
            "TORCH_CUDA_ARCH_LIST": ";".join(map(str, toolkit.archs if toolkit else ())),
        }
        command = ["run", "--rm", *volume_options(volumes)]
        command += [f"--env={key}={value}" for key, value in environ.items()]
        python = f"/opt/python/{variant.python_tag}-{variant.python_tag}/bin"
        command += [f"--env=PATH={python}:/usr/local/bin:/usr/bin:/bin", image.reference]
        command += ["bash", "-c", _SCRIPT, "usual", f"torch{variant.torch_range}"]
        engine.call(command, f"{variant.id} the usual way", objects / "log")
    before, after = (
        json.loads((objects / f"usage-{step}.json").read_text()) for step in ("start", "build")
    )
    seconds = after["cpu_seconds"] - before["cpu_seconds"]
    return {
        "variant": variant.id,
        "cpu_seconds": round(seconds, 1),
        "peak_bytes": after["peak_bytes"],
    }


def measure() -> dict[str, Any]:
    """Both ways, one after the other."""
    engine = find_engine()
    if usage().cpu_seconds is None:
        print("note: this kernel counts no CPU time for control groups", file=sys.stderr)
    matrix = load(ROOT / "matrix.yaml")
    with tempfile.TemporaryDirectory(prefix="growth-") as name:
        scratch = Path(name)
        scratch.chmod(0o755)
        mine = ours(scratch)
        theirs = [usual(engine, variant, scratch) for variant in select(matrix, USUAL)]
    first = mine[0]["cpu_seconds"]
    for row in mine:
        row["of_the_first"] = round(row["cpu_seconds"] / first, 4)
    return {"ours": mine, "usual": theirs}


def text(found: dict[str, Any]) -> str:
    """The table, 80 columns wide."""
    lines = [f"{'variant':<24}{'CPU s':>8}{'of first':>10}{'kernels':>9}{'files':>7}{'MiB':>8}"]
    for row in found["ours"]:
        lines.append(
            f"{row['variant']:<24}{row['cpu_seconds']:>8.1f}{row['of_the_first']:>10.1%}"
            f"{row['kernels_compiled']:>9}{row['files_compiled']:>7}"
            f"{(row['peak_bytes'] or 0) / 2**20:>8.0f}"
        )
    ours_of = {row["variant"]: row["cpu_seconds"] for row in found["ours"]}
    for row in found["usual"]:
        ratio = row["cpu_seconds"] / ours_of[row["variant"]]
        lines.append(
            f"{row['variant'] + ' (usual)':<32}{row['cpu_seconds']:>6.1f} CPU s,"
            f" {ratio:.0f} times ours"
        )
    return "\n".join(lines)


# The releases that the universal wheel serves, and the toolkits it is made of.
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
OLDEST = {"cuda": (12, 4), "rocm": (6, 4)}


def parts(dist: Path) -> list[dict[str, Any]]:
    """The parts of the universal wheel in `dist`: CPU seconds, files compiled, bytes."""
    (record,) = (
        row["record"]
        for row in json.loads((dist / "report.json").read_text())["variants"]
        if row["variant"] == "universal"
    )
    wheel = dist / record["file"]
    with zipfile.ZipFile(wheel) as archive:
        members = {info.filename: info for info in archive.infolist()}
    claims = read_wheel(wheel).claims
    files = {(part.kind, part.name): part.file for part in claims.parts} if claims else {}
    (variant,) = select(load(ROOT / "matrix.yaml"), ["universal"])
    key = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
    rows = []
    for part in variant.parts:
        if part.part is None or (part.part, part.library) not in files:
            continue
        info = members[files[part.part, part.library]]
        (log,) = cache_folder().glob(f"build/*-{key}/{part.id}-contained/build.log")
        rows.append(
            {
                "part": part.id,
                "kind": part.part,
                "cpu_seconds": record["cpu_seconds"].get(part.id),
                "files_compiled": sum(_compiled(log, kind) for kind in ("CUDA", "HIP", "C++")),
                "bytes_installed": info.file_size,
                "bytes_in_wheel": info.compress_size,
            }
        )
    return rows


def peer_files(releases: Mapping[str, TorchFacts], minors: Iterable[str]) -> dict[str, int]:
    """Files of an extension with one for each torch minor, CPython and toolkit.

    `by_release` has a file for each release of CUDA and ROCm that the torch was published for,
    `by_major` for each major release.
    """
    counts = {"by_release": 0, "by_major": 0}
    for minor in minors:
        facts = releases[minor]
        pythons = len(set(facts.pythons) & set(PYTHONS))
        toolkits = [
            (backend, version_numbers(version))
            for backend, versions in facts.toolkits.items()
            for version in versions
            if version_numbers(version) >= OLDEST[backend]
        ]
        counts["by_release"] += pythons * len(toolkits)
        counts["by_major"] += pythons * len({(name, numbers[0]) for name, numbers in toolkits})
    return counts


def sharing(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums over the parts as they are, and with a copy of all kernels for each front end.

    CPU seconds are None if those of a part are not known.
    """
    front_ends = sum(row["kind"] == "front_end" for row in rows)
    known = all(row["cpu_seconds"] is not None for row in rows)
    found: dict[str, Any] = {"front_ends": front_ends}
    for name, copies in (("shared", 1), ("copied", front_ends)):
        counted = [(row, copies if row["kind"] == "kernels" else 1) for row in rows]
        found[name] = {
            "bytes_in_wheel": sum(row["bytes_in_wheel"] * count for row, count in counted),
            "cpu_seconds": round(sum(row["cpu_seconds"] * count for row, count in counted), 3)
            if known
            else None,
        }
    return found


def _sum_text(sums: Mapping[str, Any]) -> str:
    seconds = sums["cpu_seconds"]
    return size_text(sums["bytes_in_wheel"]) + ("" if seconds is None else f", {seconds:.0f} CPU s")


def parts_text(rows: Sequence[Mapping[str, Any]], peers: Mapping[str, int]) -> str:
    """The table of the parts, what sharing bought, and the files that others need instead."""
    shares = sharing(rows)
    cells = [("part", "CPU s", "files", "installed", "in the wheel")]
    for row in rows:
        seconds = row["cpu_seconds"]
        cells.append(
            (
                row["part"],
                "-" if seconds is None else f"{seconds:.1f}",
                str(row["files_compiled"]),
                size_text(row["bytes_installed"]),
                size_text(row["bytes_in_wheel"]),
            )
        )
    lines = table_rows("<22 >7 >6 >10 >13", cells)
    return "\n".join(
        [
            *lines,
            f"each kernel library once: {_sum_text(shares['shared'])}; in each of "
            f"{shares['front_ends']} front ends: {_sum_text(shares['copied'])}",
            f"files for the same torch releases and Pythons, one for each release of a toolkit: "
            f"{peers['by_release']}, for each major release: {peers['by_major']}",
        ]
    )


def main() -> None:
    """Print and record what the parts of a universal wheel cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "dist", type=Path, help="folder of a `torchwheel wheels` run, or a record of this command"
    )
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    if options.dist.is_file():
        if options.record:
            parser.error(f"--record: {options.dist} is a record already; name the folder of a run")
        found = json.loads(options.dist.read_text())
        print(parts_text(found["universal"], found["files_of_peers"]))
        return
    known = torch_releases()
    rows, peers = parts(options.dist), peer_files(known, known)
    print(parts_text(rows, peers))
    if options.record:
        from pipeline import write_record  # noqa: PLC0415 - pipeline.py imports this file

        found = {"universal": rows, "sharing": sharing(rows), "files_of_peers": peers}
        write_record(options.record, found)


if __name__ == "__main__":
    main()
