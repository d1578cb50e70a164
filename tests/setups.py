"""Makes set-ups for the doctor: a Python of its own, with what a test puts into it and no more."""

import functools
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

import torchwheel
import torchwheel_runtime

TORCH = Path(torch.__file__).parent
LIGHT = ("packaging",)
"""What the run-time half of torchwheel depends on, and what that needs."""
CUOBJDUMP = "nvidia-cuda-cuobjdump"
"""What the doctor reads a library's machine code with; of torchwheel's extra."""
FOR_TORCH = (
    *("filelock", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe"),
    "fsspec",
)

# Answers what the doctor asks of NVIDIA's driver.
NVML = """
#include <string.h>
int nvmlInit_v2(void) { return STATUS; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int status) { return "Driver Not Loaded"; }
int nvmlSystemGetDriverVersion(char *text, unsigned n) { strncpy(text, DRIVER, n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *cuda) { *cuda = CUDA; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) { *device = (void *)8; return 0; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) {
  *major = ARCH / 10;
  *minor = ARCH % 10;
  return 0;
}
int nvmlDeviceGetName(void *d, char *text, unsigned n) { strncpy(text, NAME, n); return 0; }
int nvmlDeviceGetUUID(void *d, char *text, unsigned n) { strncpy(text, "GPU-1", n); return 0; }
int nvmlDeviceGetNumGpuCores(void *d, unsigned *n) { *n = 1000; return 0; }
int nvmlDeviceGetMaxClockInfo(void *d, unsigned kind, unsigned *n) { *n = 1000; return 0; }
"""


class Setup:
    """A Python without pip: torchwheel, what it needs, and what is put in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        self.python = venv / "bin" / "python"
        (self.site,) = venv.glob("lib/python3*/site-packages")
        self.here = folder / "here"
        self.here.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "COLUMNS": "80",
            "LC_ALL": "C.UTF-8",
        }
        self.prefix: list[str] = []
        link((*LIGHT, CUOBJDUMP), self.site)
        for half in (torchwheel, torchwheel_runtime):
            (self.site / half.__name__).symlink_to(half.__path__[0])

    def add_torch(self, **version: str | None) -> Path:
        """The torch of the tests; `version` changes what it says of itself (version.py)."""
        link(FOR_TORCH, self.site)
        if not version:
            link(["torch"], self.site)
            return self.site / "torch"
        folder = self.site / "torch"
        folder.mkdir()
        for name in ("functorch", "torchgen"):
            (self.site / name).symlink_to(TORCH.parent / name)
        for path in TORCH.iterdir():
            if path.name not in ("version.py", "__pycache__"):
                (folder / path.name).symlink_to(path)
        # Compiled already: Python would take half a second for it in each set-up.
        (folder / "__pycache__").mkdir()
        for path in (TORCH / "__pycache__").iterdir():
            if not path.name.startswith("version."):
                (folder / "__pycache__" / path.name).symlink_to(path)
        told = {"__version__": torch.__version__, "cuda": None, "hip": None, **version}
        lines = [f"{name} = {value!r}\n" for name, value in told.items()]
        lines += ["debug = False\n", "git_version = ''\n", "xpu = None\n", "rocm = None\n"]
        (folder / "version.py").write_text("".join(lines))
        info = self.site / f"torch-{told['__version__']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: torch\nVersion: {told['__version__']}\n"
        )
        return folder

    def unpack(self, wheel: Path) -> None:
        """Put the wheel's files where pip would, which takes pip ten times as long."""
        shutil.unpack_archive(wheel, self.site, "zip")

    def install(self, wheel: Path) -> None:
        """As a user does, with pip."""
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet"]
            + ["--no-deps", "--no-index", "--no-compile", str(wheel)],
            check=True,
        )

    def add_gpu(self, **facts: str | int) -> None:
        """An NVIDIA driver with a GPU, as far as can be asked: a stand-in for its library."""
        told = {
            "STATUS": 0,
            "DRIVER": '"580.95.05"',
            "CUDA": 13000,
            "ARCH": 90,
            "NAME": '"NVIDIA H200"',
        }
        lib = self.folder / "driver"
        lib.mkdir()
        (lib / "nvml.c").write_text(NVML)
        macros = [f"-D{name}={value}" for name, value in {**told, **facts}.items()]
        subprocess.run(
            ["gcc", "-shared", "-fPIC", *macros, lib / "nvml.c", "-o", lib / "libnvidia-ml.so.1"],
            check=True,
        )
        self.env["LD_LIBRARY_PATH"] = str(lib)

    def doctor(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run it in a folder of its own."""
        return subprocess.run(
            [*self.prefix, self.python, "-m", "torchwheel", "doctor", *arguments],
            cwd=self.here,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def verdict(self, *arguments: str, **env: str) -> tuple[int, dict[str, object]]:
        """The exit status, and the first verdict of the JSON."""
        done = self.doctor(*arguments, "--json", **env)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)["verdicts"][0]


def link(names: Iterable[str], site: Path) -> None:
    """Put installed distributions into `site`, as links."""
    for name in names:
        for source in _tops(name):
            target = site / source.name
            if not target.exists():
                target.symlink_to(source)


@functools.cache
def _tops(name: str) -> tuple[Path, ...]:
    """What a distribution has in site-packages."""
    files = importlib.metadata.files(name) or []
    tops = {file.parts[0] for file in files} - {"..", "__pycache__", "bin"}
    root = Path(str(importlib.metadata.distribution(name).locate_file("")))
    return tuple(sorted(root / top for top in tops if (root / top).exists()))
