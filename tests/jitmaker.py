"""Libraries that tests want of the cache, builds that make them, and a run of one as a process.

As a script: `jitmaker.py FOLDER TEXT BYTES SECONDS`; it waits for a line, has the library made in
the cache FOLDER, and tells what it does, a line each.
"""

import contextlib
import dataclasses
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.jit import lookup, make
from torchwheel_runtime.jit.key import CacheKey, LibraryRequest
from torchwheel_runtime.tasks import Count, Task


def wanted(text: str = "one", name: str = "ext.scale") -> LibraryRequest:
    """A library of one source file."""
    return LibraryRequest(
        name=name,
        archs=("9.0",),
        toolkit="CUDA 13.0.88, gcc 12.2.0",
        torch="2.13.0+cu130 stable",
        commands=(("nvcc", "-c", "\0source\0/scale.cu"),),
        own_sources="",
        source=Path("/project"),
        files={"scale.cu": text.encode()},
    )


@dataclasses.dataclass(frozen=True)
class CachedLibrary:
    """The result of a lookup: the library's path, and what was said."""

    library: Path | None = None
    problem: str | None = None


def find_library(folder: Path, key: CacheKey) -> CachedLibrary:
    """Look up a library."""
    said: list[str] = []
    found = lookup.find_library(folder, key, said.append)
    return CachedLibrary(found and found.path, *said)


def make_library(folder: Path, request: LibraryRequest, build, progress) -> Path:
    """Have a library made; its path."""
    return make.make_library(folder, request, build, progress).path


def library_of(text: str, size: int = 1000) -> bytes:
    """What the builds here make of a source."""
    return (hashlib.sha256(text.encode()).digest() * (size // 32 + 1))[:size]


class Told(Quiet):
    """Progress that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def step(self, text: str, count: Count | None = None) -> None:
        self.said.append(text)

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[Task]:
        self.said.append(name)
        yield Task((name,))


class Builds:
    """A build that counts."""

    def __init__(self, size: int = 1000) -> None:
        self.size = size
        self.count = 0

    def __call__(self, source, output):
        self.count += 1
        built = output / "ext_scale.so"
        built.write_bytes(library_of((source / "scale.cu").read_text(), self.size))
        return built


class Process:
    """A run of this file, told to start; `until` reads its lines up to one that begins so."""

    def __init__(self, folder: Path, text: str, *, size: int = 1000, seconds: float = 0) -> None:
        self.lines: list[str] = []
        self.popen = subprocess.Popen(
            [sys.executable, __file__, str(folder), text, str(size), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def until(self, beginning: str) -> str:
        """The first line from now on that begins so."""
        assert self.popen.stdout
        for line in self.popen.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(beginning):
                return self.lines[-1]
        raise AssertionError(f"ended without {beginning!r}: {self.lines}")

    def start(self) -> None:
        """Let it begin; `until("ready")` comes first."""
        assert self.popen.stdin
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def ended(self) -> int:
        """Its exit status, when it has ended; its other lines are read."""
        rest, _ = self.popen.communicate(timeout=120)
        self.lines += rest.splitlines()
        return self.popen.returncode


class Aloud(Quiet):
    """Progress and events as lines."""

    def say(self, text: str) -> None:
        print(f"said {text}", flush=True)

    def step(self, text: str, count: Count | None = None) -> None:
        print(f"step {text}", flush=True)


def _process(folder: Path, text: str, size: int, seconds: float) -> None:
    def build(source, output):
        print("building", flush=True)
        with contextlib.suppress(OSError), (folder.parent / "builds").open("a") as log:
            log.write(f"{os.getpid()}\n")
        built = output / "ext_scale.so"
        data = library_of((source / "scale.cu").read_text(), size)
        # Slowly, so that a kill finds it half-written.
        with built.open("wb") as file:
            for part in range(10):
                file.write(data[size * part // 10 : size * (part + 1) // 10])
                file.flush()
                time.sleep(seconds / 10)
        if text.startswith("fails"):
            raise TorchwheelError(f"{source}/scale.cu(1): error: {text}")
        print("built", flush=True)
        return built

    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print(f"made {make_library(folder, wanted(text), build, Aloud())}", flush=True)
    except TorchwheelError as error:
        print(f"failed {error}", flush=True)
        sys.exit(error.status)


if __name__ == "__main__":
    _process(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
