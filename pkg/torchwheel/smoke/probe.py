"""Prints the machine and the origin of packages; runs in the environment under test.

It imports the standard library and torch alone, not torchwheel. Its last line is JSON.
"""

import importlib
import importlib.metadata
import json
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path


def driver() -> str | None:
    """The GPU driver's version, from the driver itself or from the kernel's module."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.splitlines()[0].strip()
    except (OSError, subprocess.SubprocessError, IndexError):
        module = Path("/sys/module/amdgpu/version")
        return module.read_text().strip() if module.is_file() else None


def gpu() -> "dict[str, str | None] | None":
    """The current GPU, or none."""
    import torch  # noqa: PLC0415 - this file is also read where there is no torch

    cuda = torch.cuda
    if not cuda.is_available():
        return None
    device = cuda.current_device()
    properties = cuda.get_device_properties(device)
    major, minor = cuda.get_device_capability(device)
    # A CUDA build has gcnArchName too, and there it is the name.
    arch = properties.gcnArchName if torch.version.hip else f"{major}.{minor}"
    return {"name": properties.name, "arch": arch, "driver": driver()}


def import_package(name: str) -> "dict[str, str | None]":
    """Import a package of the wheel; its file or its error."""
    try:
        return {"name": name, "file": importlib.import_module(name).__file__, "error": None}
    # Any error of an import is a finding about the wheel.
    except BaseException as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return {"name": name, "file": None, "error": text}


def packages_of(distribution: str) -> "list[str]":
    """Names that users of an installed distribution import: its top folders with an __init__.py."""
    files = importlib.metadata.files(distribution) or []
    names = {f.parts[0] for f in files if len(f.parts) == 2 and f.name == "__init__.py"}
    return sorted(names)


def torch_facts() -> "dict[str, object]":
    """The torch of this environment, and the libraries that its import loads into the process."""
    import torch  # noqa: PLC0415 - this file is also read where there is no torch

    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    libraries = {line.split(maxsplit=5)[5] for line in mapped if ".so" in line}
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "folder": str(Path(torch.__file__).parent),
        "old_abi": not torch._C._GLIBCXX_USE_CXX11_ABI,
        # Without a GPU torch.cuda.get_arch_list() is empty.
        "archs": (torch._C._cuda_getArchFlags() or "").split() if torch.version.cuda else [],
        "loaded": sorted(Path(library).name for library in libraries),
    }


def main(packages: "list[str]") -> None:
    """Print the facts of the machine and of the imports of `packages`, or others.

    `--of NAME …`: the packages of installed distributions. `--torch`: the facts of torch alone.
    """
    if packages == ["--torch"]:
        print(json.dumps(torch_facts()))
        return
    site = sysconfig.get_path("platlib")
    if packages[:1] == ["--of"]:
        site = str(importlib.metadata.distribution(packages[1]).locate_file(""))
        packages = [name for one in packages[1:] for name in packages_of(one)]
    import torch  # noqa: PLC0415 - this file is also read where there is no torch

    libc, version = platform.libc_ver()
    machine = {
        "python": platform.python_version(),
        "platform": f"{platform.system().lower()}_{platform.machine()}",
        "glibc": version if libc == "glibc" else None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "gpu": gpu(),
    }
    imports = [import_package(name) for name in packages]
    print(json.dumps({"machine": machine, "site": site, "imported": imports}))


if __name__ == "__main__":
    main(sys.argv[1:])
