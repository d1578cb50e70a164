"""What the doctor says the loader would do is what the loader does."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from doctor_bench import USES_TORCH, Bench, calling

from torchwheel_runtime.doctor.native import Loader
from torchwheel_runtime.inspect.elf import read_library
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on PATH"),
]

TORCH = Path(torch.__file__).parent
# Each library in a process of its own, which has imported torch: what is loaded stays loaded.
LOADS = """
import ctypes, json, os, sys, torch
for line in sys.stdin:
    child = os.fork()
    if not child:
        try:
            ctypes.CDLL(line.rstrip())
            said = None
        except OSError as error:
            said = str(error)
        print(json.dumps(said), flush=True)
        os._exit(0)  # some libraries do not end well
    _, status = os.waitpid(child, 0)
    if status:
        print(json.dumps(f"ended with status {status}"), flush=True)
"""
Load = Callable[[Path], str | None]
"""Loads a library; returns what the loader says against it."""


@contextlib.contextmanager
def python_with_torch(**env: str) -> Iterator[Load]:
    """A Python that has imported torch, and loads libraries."""
    with subprocess.Popen(
        [sys.executable, "-c", LOADS],
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def load(path: Path) -> str | None:
            assert process.stdin
            assert process.stdout
            print(path, file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        yield load


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    with python_with_torch() as load:
        yield load


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
def test_the_loader_agrees(make, bench, load):
    make(bench)
    path = bench.folder / "_C.so"
    said, found = load(path), faults(path)
    assert bool(found) == bool(said), (found, said)
    assert said is None or any(fault in said for fault in found)


def test_the_variable_is_heeded(bench):
    absent(bench)
    path, folder = bench.folder / "_C.so", str(bench.folder / "stub")
    assert faults(path)
    assert not faults(path, LD_LIBRARY_PATH=folder)
    with python_with_torch(LD_LIBRARY_PATH=folder) as load:
        assert load(path) is None


@pytest.mark.nightly
def test_the_loader_agrees_on_every_library_that_is_installed_here(load):
    site = Path(sysconfig.get_path("platlib"))
    paths = [path for path in site.rglob("*.so*") if path.is_file() and _is_elf(path)]
    # NVIDIA's ask for a driver that need not be here; torch's own test libraries abort.
    paths = [path for path in paths if not {"nvidia", "torch"} & set(path.parts)]
    if not paths:
        pytest.skip("no native library in site-packages")
    loader = Loader(Path(sys.executable), TORCH, os.environ)
    began = time.monotonic()
    for path in paths:
        links = loader.links(read_library(path), path)
        fault = bool(links.absent or links.undefined or links.outdated)
        assert fault == bool(load(path)), path
    assert time.monotonic() - began < 60


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == ELF_MAGIC
