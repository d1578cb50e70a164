"""Imports a wheel's packages, writes down the machine and runs the wheel's tests.

It runs in the environment under test, as `python -c`, and imports the standard library, torch,
pytest and the packages, but not torchwheel. One process does it all, because torch's import takes
seconds. The facts are one line of JSON.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path


def python_release() -> str:
    """This Python's release: "3.13.5", or "3.13.5t" if it is free-threaded."""
    return platform.python_version() + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "")


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


def gpu_in_child() -> "dict[str, str | None] | None":
    """The current GPU, found by a child: this process may still fork, as some tests do."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(gpu()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        raise SystemExit("torch.cuda ended the process that asked it for the GPU")
    found: dict[str, str | None] | None = json.loads(text)
    return found


def import_package(name: str) -> "dict[str, str | None]":
    """Import a package of the wheel; its file or its error."""
    try:
        return {"name": name, "file": importlib.import_module(name).__file__, "error": None}
    # Any error of an import is a finding about the wheel.
    except BaseException as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return {"name": name, "file": None, "error": text}


def packages_of(distribution: str) -> "list[str]":
    """Names that users of an installed distribution import: top packages and top modules."""
    files = importlib.metadata.files(distribution) or []
    names = {f.parts[0] for f in files if len(f.parts) == 2 and f.name == "__init__.py"}
    modules = [f.name for f in files if len(f.parts) == 1 and f.suffix in (".py", ".so")]
    return sorted(names.union(name.partition(".")[0] for name in modules))


def torch_facts() -> "dict[str, object]":
    """The torch of this environment, and the libraries that its import loads into the process."""
    import torch  # noqa: PLC0415 - this file is also read where there is no torch

    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    libraries = {line.split(maxsplit=5)[5] for line in mapped if ".so" in line}
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "rocm": getattr(torch.version, "rocm", None),
        "folder": str(Path(torch.__file__).parent),
        "old_abi": not torch._C._GLIBCXX_USE_CXX11_ABI,
        # Without a GPU torch.cuda.get_arch_list() is empty.
        "archs": (torch._C._cuda_getArchFlags() or "").split() if torch.version.cuda else [],
        "loaded": sorted(Path(library).name for library in libraries),
    }


def run_tests(tests: str, without_gpu: "list[str]", report: str, *, has_gpu: bool) -> int:
    """Run pytest on the folder of tests, or on the files that are for machines without a GPU."""
    import pytest  # noqa: PLC0415 - the other uses of this file need none

    chosen = [tests] if has_gpu or not without_gpu else [f"{tests}/{name}" for name in without_gpu]
    # The names of tests begin with the path in this folder, and the report names the files.
    options = [f"--rootdir={tests}", "-o", "junit_family=xunit1"]
    options += ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    return int(pytest.main([*options, *chosen]))


def ways_of(packages: "list[str]") -> "dict[str, dict[str, str]]":
    """The way that each operator family of a package runs now: prebuilt, built here, fallback.

    An extension that torchwheel ships has imported torchwheel's run-time half.
    """
    runtime = sys.modules.get("torchwheel_runtime.runtime")
    found: dict[str, dict[str, str]] = {}
    if runtime is None:
        return found
    for name in packages:
        runtime.load_now(name)  # a family that no test called may not be loaded yet
        status = runtime.status_of(name)
        if status is not None:
            found[name] = {family.operator: family.way for family in status.operators}
    return found


def choices_of(packages: "list[str]") -> "dict[str, list[str]]":
    """By extension, the lines of its status on the front end and on the kernels of each GPU.

    They are those of the process that ran the tests. A wheel with one library has none.
    """
    runtime = sys.modules.get("torchwheel_runtime.runtime")
    if runtime is None:
        return {}
    statuses = {name: runtime.status_of(name) for name in packages}
    return {name: list(status.choices) for name, status in statuses.items() if status is not None}


def own_variables() -> "dict[str, str | None]":
    """The TORCHWHEEL_ variables that are set; None for a value that names a folder or an address.

    Those are of this machine alone, and the record may be published.
    """
    found = {name: os.environ[name] for name in os.environ if name.startswith("TORCHWHEEL_")}
    return {name: None if "/" in found[name] else found[name] for name in sorted(found)}


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", action="store_true", help="print the facts of torch alone")
    parser.add_argument("--of", action="store_true", help="names are those of distributions")
    parser.add_argument(
        "--import", dest="imports", action="append", help="in place of the first name's packages"
    )
    parser.add_argument("--facts", help="write the facts to this file, instead of stdout")
    parser.add_argument("--tests", help="then run the tests in this folder")
    parser.add_argument("--without-gpu", action="append", default=[], help="its files for no GPU")
    parser.add_argument("--gpu-only", action="store_true", help="run none of it without a GPU")
    parser.add_argument("--junit", help="write the results of the tests to this file")
    parser.add_argument("names", nargs="*", help="packages to import")
    options = parser.parse_args()
    if options.torch:
        print(json.dumps(torch_facts()))
        return
    site, packages = sysconfig.get_path("platlib"), options.names
    if options.of:
        site = str(importlib.metadata.distribution(options.names[0]).locate_file(""))
        packages = [name for one in options.names for name in packages_of(one)]
        if options.imports:
            others = [name for one in options.names[1:] for name in packages_of(one)]
            packages = [*options.imports, *others]
    import torch  # noqa: PLC0415 - this file is also read where there is no torch

    libc, version = platform.libc_ver()
    machine = {
        "python": python_release(),
        "platform": f"{platform.system().lower()}_{platform.machine()}",
        "glibc": version if libc == "glibc" else None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "gpu": gpu_in_child(),
    }
    variables = own_variables()  # a test may change them
    imports = [import_package(name) for name in packages]
    facts = {"machine": machine, "site": site, "imported": imports, "variables": variables}
    if options.facts:
        Path(options.facts).write_text(json.dumps(facts), encoding="utf-8")
    else:
        print(json.dumps(facts))
    has_gpu = machine["gpu"] is not None
    if options.tests and (has_gpu or not options.gpu_only):
        status = run_tests(options.tests, options.without_gpu, options.junit, has_gpu=has_gpu)
        if options.facts:
            facts["operators"] = ways_of(packages)
            facts["choices"] = choices_of(packages)
            Path(options.facts).write_text(json.dumps(facts), encoding="utf-8")
        sys.exit(status)


if __name__ == "__main__":
    main()
