"""CPU times of `import fusedops`, a first call and a hit of the JIT cache, in two trees.

    python bench/checks.py before=TREE after=TREE [--runs 15] [--out FILE]

A tree is a checkout of this repository. A run is a new child, forked after torch's import, of each
tree in turn. The table has medians and what the last tree adds to the first one's. The CPU time of
the child and of the programs that it starts is measured, as a busy machine changes it little.

No GPU is needed. The first call is that of a universal wheel of two small libraries, padded to the
size of fusedops', and it asks for no GPU: it is the time that torchwheel takes. "One library" is
the first call of a stable wheel. An aten wheel takes this time at its import. The hit needs a CUDA
toolkit, which CUDA_HOME, the PATH or torchwheel's cache has.
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel_runtime.files import record_hash
from torchwheel_runtime.text import table_rows

SIZES = {"front_end": 3 << 20, "kernels": 7 << 20, "single": 10 << 20}
"""Bytes of the libraries of fusedops' wheels that a process loads, rounded up."""

_INTERFACE = 'const char torchwheel_interface[] = "torchwheel_interface=one";'
_SOURCES = {
    "front_end": f"{_INTERFACE} _Bool torchwheel_use_kernels(int gpu, void *l) {{ return 1; }}",
    "kernels": _INTERFACE,
    "single": "",
}
_FILES = {
    "front_end": "measured/_lib/front_end/stable.so",
    "kernels": "measured/_lib/kernels/cu130.so",
    "single": "single/_lib/cu130-stable.so",
}

_SERVER = """
import hashlib, json, os, resource, sys
from pathlib import Path
import torch
from torch.library import Library
torch.version.cuda = "13.0"
site = Path(sys.argv[1])

def cpu_ms():
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return 1e3 * sum(one.ru_utime + one.ru_stime for one in used)

def timed(call):
    start = cpu_ms()
    result = call()
    return cpu_ms() - start, result

def import_fusedops():
    import fusedops
    return fusedops

def hit(fusedops):
    gpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    # Without a kernel of its own for a key, an operator must not be sent there.
    if torch._C._dispatch_has_kernel_for_dispatch_key("fusedops::vector_add", "BackendSelect"):
        gpu = gpu.add(torch._C.DispatchKey.BackendSelect)
    x = torch.ones(2)
    took, _ = timed(lambda: torch.ops.fusedops.vector_add.default.redispatch(gpu, x, x))
    (family,) = [one for one in fusedops.status().operators if one.operator == "vector_add"]
    assert family.way.startswith("jit"), family.reason
    return took

def first_call():
    from torchwheel_runtime import runtime
    from torchwheel_runtime.arch.devices import Gpu, VisibleGpus
    from torchwheel_runtime.arch.model import parse
    from torchwheel_runtime.builder import Extension, Operator
    from torchwheel_runtime.claims import Claims, Part
    from torchwheel_runtime.machine.facts import Driver, Torch
    from torchwheel_runtime.runtime import universal

    def part(kind, name, **facts):
        file = f"measured/_lib/{kind}/{name}.so"
        digest = hashlib.sha256((site / file).read_bytes()).hexdigest()
        return Part(kind, name, file, digest, **facts)

    def load_and_register(library):
        load_library(library)
        registered.impl("plus", lambda x: x + 1, "CPU")

    archs = (parse("9.0"),)
    libraries = (
        part("front_end", "stable", torch_release="2.6"),
        part("kernels", "cu130", backend="cuda", toolkit_version="13.0", archs=archs),
    )
    load_library, registered = universal.load_library, Library("measured", "IMPL")
    universal.load_library = load_and_register
    universal.installed_claims = lambda _: Claims("universal", "universal", "2.6", parts=libraries)
    universal.find_torch = lambda: Torch("2.13.0+cu130", "13.0", None, Path(torch.__file__).parent)
    universal.find_driver = lambda _: Driver("cuda", "580.1", "13.0")
    universal.visible_gpus = lambda _: VisibleGpus((Gpu(-1, "H100", archs[0]),))
    defined = Library("measured", "DEF")
    defined.define("plus(Tensor x) -> Tensor")
    defined.impl("plus", lambda x: x + 1000, "CompositeExplicitAutograd")
    extension = Extension("measured", "csrc", (Operator("plus", ()),), dispatch="CPU")
    runtime.load(extension, site / "measured", {"plus": ("plus",)})
    x = torch.zeros(1)
    took, result = timed(lambda: torch.ops.measured.plus(x))
    assert result.item() == 1, runtime.status_of("measured")
    return took

def one_library():
    from torchwheel_runtime import runtime
    from torchwheel_runtime.builder import Extension, Operator
    from torchwheel_runtime.runtime import prebuilt

    def load_and_register(library):
        load_library(library)
        registered.impl("plus", lambda x: x + 1, "CPU")

    load_library, registered = prebuilt.load_library, Library("single", "IMPL")
    prebuilt.load_library = load_and_register
    defined = Library("single", "DEF")
    defined.define("plus(Tensor x) -> Tensor")
    defined.impl("plus", lambda x: x + 1000, "CompositeExplicitAutograd")
    extension = Extension("single", "csrc", (Operator("plus", ()),), dispatch="CPU")
    sys.path.insert(0, str(site))
    runtime.load(extension, site / "single", {"plus": ("plus",)})
    x = torch.zeros(1)
    took, result = timed(lambda: torch.ops.single.plus(x))
    assert result.item() == 1, runtime.status_of("single")
    return took

def measure():
    imported, fusedops = timed(import_fusedops)
    return {
        "import": imported,
        "first call": first_call(),
        "one library": one_library(),
        "JIT hit": hit(fusedops),
    }

for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        print(json.dumps(measure()), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("null", flush=True)
"""
SOURCES = ("pkg", "pkg/torchwheel/src", "pkg/torchwheel_runtime/src")
FIGURES = ("import", "first call", "one library", "JIT hit")


def make_site(site: Path) -> None:
    """Make the libraries of a universal wheel, and an installed wheel with one library."""
    for kind, file in _FILES.items():
        library = site / file
        library.parent.mkdir(parents=True)
        source = site / f"{kind}.c"
        source.write_text(f"{_SOURCES[kind]}\nconst char padding[{SIZES[kind]}] = {{1}};\n")
        command = ["gcc", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
    info = site / "single-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: single\nVersion: 1.0\n")
    data = (site / _FILES["single"]).read_bytes()
    row = f"{_FILES['single']},{record_hash(hashlib.sha256(data).digest())},{len(data)}\n"
    (info / "RECORD").write_text(row)


class Tree:
    """A process that has imported torch, with the torchwheel and fusedops of a tree."""

    def __init__(self, tree: Path, site: Path, cache: Path) -> None:
        """Start it."""
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(tree / folder) for folder in SOURCES),
            "OMP_NUM_THREADS": "1",
            "TORCH_CUDA_ARCH_LIST": "9.0",
            "TORCHWHEEL_CACHE": str(cache),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(site)],
            env=environ,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self) -> dict[str, float]:
        """CPU milliseconds of each figure in a new child."""
        if self._process.stdin is None or self._process.stdout is None:
            raise SystemExit("no pipes")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        result: dict[str, float] | None = json.loads(self._process.stdout.readline() or "null")
        if result is None:
            raise SystemExit("a run failed; it said why above")
        return result

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


def table(samples: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """The medians of each tree, and what the last one adds to the first one's."""
    cells: list[tuple[str, ...]] = [("", *(f"{name} ms" for name in samples), "more ms", "more %")]
    for figure in FIGURES:
        medians = [statistics.median(run[figure] for run in runs) for runs in samples.values()]
        more = medians[-1] - medians[0]
        numbers = [f"{one:.2f}" for one in medians]
        cells.append((figure, *numbers, f"{more:+.2f}", f"{100 * more / medians[0]:+.1f}"))
    return "\n".join(table_rows(f"<12 {'>12 ' * len(samples)}>9 >8", cells))


def main() -> None:
    """Measure, print the table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", nargs="+", help="NAME=TREE")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with contextlib.ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="bench-checks-"))
        site = Path(folder, "site")
        make_site(site)
        trees: dict[str, Tree] = {}
        for name, _, path in (text.partition("=") for text in options.tree):
            trees[name] = Tree(Path(path).resolve(), site, Path(folder, name))
            ends.callback(trees[name].end)
        for tree in trees.values():  # bytecode is compiled, files are in memory, the cache filled
            tree.measure()
        samples: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
        for number in range(options.runs):
            for name in sorted(trees, reverse=bool(number % 2)):
                samples[name].append(trees[name].measure())
    print(table(samples))
    if options.out:
        record = {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "runs": options.runs,
            "samples": samples,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
