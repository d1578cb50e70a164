"""What the doctor says the loader would do is what the loader does."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
import torch
from doctor_bench import USES_TORCH, Bench, calling

from torchwheel.doctor.loader import Loader
from torchwheel.inspect.elf import read_library
from torchwheel.inspect.wheel import ELF_MAGIC

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on PATH"),
]

TORCH = Path(torch.__file__).parent
LOADS = """
import ctypes, json, os, sys, torch
found = {}
for path in sys.argv[1:]:
    try:
        ctypes.CDLL(path)
        found[path] = None
    except OSError as error:
        found[path] = str(error)
print(json.dumps(found), flush=True)
os._exit(0)  # some libraries do not end well
"""


def really(*paths: Path, **env: str) -> dict[str, str | None]:
    """What the loader says of each library, in a Python that has imported torch."""
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *map(str, paths)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def faults(path: Path, **env: str) -> list[str]:
    """What the doctor finds wrong with a library."""
    links = Loader(Path(sys.executable), TORCH, {**os.environ, **env}).links(
        read_library(path), path
    )
    return [*links.absent, *links.undefined, *(version for _, version in links.outdated)]


@pytest.fixture
def bench(tmp_path, request):
    return Bench(tmp_path, lambda: request.getfixturevalue("nvcc"), tmp_path)


def whole(bench):
    bench.compiled()


def absent(bench):
    bench.compiled(calling("gone"), bench.stub("libgone.so.1", "gone"))


def absent_below(bench):
    """A library that is there and asks for one that is not."""
    gone = bench.stub("libgone.so.1", "gone")
    (bench.folder / "mid.c").write_text(calling("gone"))
    command = ["gcc", "-shared", "-fPIC", "mid.c", gone, "-o", "libmid.so"]
    subprocess.run(command, cwd=bench.folder, check=True)
    bench.compiled("void f(void);\nvoid g(void) { f(); }", "-L.", "-lmid", "-Wl,-rpath,$ORIGIN")


def undefined(bench):
    bench.compiled(calling("_ZNK3c106SymInt6sym_neERKS0_"))


def weak(bench):
    bench.compiled("void gone(void) __attribute__((weak));\nvoid f(void) { if (gone) gone(); }")


def unlinked(bench):
    bench.compiled(USES_TORCH, links=())


def of_python(bench):
    bench.compiled("void *PyLong_FromLong(long);\nvoid *f(void) { return PyLong_FromLong(1); }")


def new_glibc(bench):
    libc = bench.stub("libc.so.6", "of_tomorrow", "GLIBC_2.99")
    bench.compiled(calling("of_tomorrow"), "-nostdlib", libc)


def new_libstdcxx(bench):
    bench.compiled(calling("of_tomorrow"), bench.stub("libstdc++.so.6", "of_tomorrow", "GLIBCXX_9"))


def by_run_path(bench):
    bench.compiled(calling("here"), bench.stub("libhere.so.1", "here"), "-Wl,-rpath,$ORIGIN/stub")


def by_old_run_path(bench):
    flags = ("-Wl,--disable-new-dtags", "-Wl,-rpath,${ORIGIN}/stub")
    bench.compiled(calling("here"), bench.stub("libhere.so.1", "here"), *flags)


def by_inherited_run_path(bench):
    """The older kind serves what is brought in too."""
    below = bench.stub("libbelow.so.1", "below")
    (bench.folder / "mid.c").write_text(calling("below").replace("void f(", "void mid("))
    command = ["gcc", "-shared", "-fPIC", "mid.c", below, "-o", "stub/libmid.so"]
    subprocess.run(command, cwd=bench.folder, check=True)
    flags = ("-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/stub", "-Lstub", "-lmid")
    bench.compiled(calling("mid"), *flags)


def by_torchs_name(bench):
    """A soname that torch has loaded is that, wherever else there is one."""
    bench.stub("libc10.so", "nothing")
    bench.compiled(USES_TORCH, "-Wl,-rpath,$ORIGIN/stub")


KINDS = [
    *(whole, absent, absent_below, undefined, weak, unlinked, of_python, new_glibc),
    *(new_libstdcxx, by_run_path, by_old_run_path, by_inherited_run_path, by_torchs_name),
]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_the_loader_agrees(make, bench):
    make(bench)
    path = bench.folder / "_C.so"
    said = really(path)[str(path)]
    found = faults(path)
    assert bool(found) == bool(said), (found, said)
    assert said is None or any(fault in said for fault in found)


def test_the_variable_is_heeded(bench):
    absent(bench)
    path, folder = bench.folder / "_C.so", str(bench.folder / "stub")
    assert faults(path)
    assert not faults(path, LD_LIBRARY_PATH=folder)
    assert really(path, LD_LIBRARY_PATH=folder)[str(path)] is None


def test_the_loader_agrees_on_every_library_that_is_installed_here():
    site = Path(sysconfig.get_path("platlib"))
    paths = [path for path in site.rglob("*.so*") if path.is_file() and _is_elf(path)]
    # NVIDIA's ask for a driver that need not be here; torch's own test libraries abort.
    paths = [path for path in paths if not {"nvidia", "torch"} & set(path.parts)]
    if not paths:
        pytest.skip("no native library in site-packages")
    said = really(*paths)
    loader = Loader(Path(sys.executable), TORCH, os.environ)
    began = time.monotonic()
    for path in paths:
        links = loader.links(read_library(path), path)
        assert bool(links.absent or links.undefined or links.outdated) == bool(said[str(path)]), (
            path
        )
    assert time.monotonic() - began < 60


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == ELF_MAGIC
