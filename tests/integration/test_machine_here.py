"""The facts of the machine that runs the tests, held against what its own tools say."""

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import python_path
from programmaker import program, run_python
from torchwheel_runtime.arch.devices import Driver
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.discovery import find_machine
from torchwheel_runtime.machine.facts import Absent, InstalledToolkit, Torch
from torchwheel_runtime.machine.probe import find_driver
from torchwheel_runtime.machine.toolkits import find_toolkits, inspect_cuda
from torchwheel_runtime.machine.torch import find_torch
from torchwheel_runtime.validate.torch_rules import host_bounds

pytestmark = pytest.mark.integration
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed here"
)
WHOLE = """
import dataclasses, json
from torchwheel_runtime.machine.discovery import find_machine
print(json.dumps(dataclasses.asdict(find_machine()), default=str))
"""
FROM_FILES = """
import sys
from torchwheel_runtime.machine.torch import find_torch
found = find_torch()
assert "torch" not in sys.modules
import torch
assert found == find_torch(), (found, find_torch())
print(found.version, torch.version.cuda, torch.version.hip)
"""


@needs_torch
def test_torchs_files_say_what_torch_says_of_itself():
    done = run_python(FROM_FILES, env={**os.environ, "PYTHONPATH": python_path()})
    assert done.returncode == 0, done.stderr
    version, cuda, hip = done.stdout.split()
    found = find_torch()
    assert isinstance(found, Torch)
    assert (found.version, str(found.cuda), str(found.hip)) == (version, cuda, hip)
    assert (found.folder / "version.py").is_file()


def test_glibc_is_what_the_loader_says():
    found = probe.glibc_version()
    listed = subprocess.run(["ldd", "--version"], capture_output=True, text=True, check=False)
    if found is None:
        assert "GLIBC" not in listed.stdout
    else:
        assert listed.stdout.splitlines()[0].endswith(found)


def test_the_provisioned_toolkit_is_whole(nvcc):
    root = nvcc.parent.parent
    assert inspect_cuda(root, "") == InstalledToolkit("cuda", root, "13.0", "")
    found = [one for one in find_toolkits("cuda") if one.root == root.resolve()]
    assert [(one.release, one.problem) for one in found] == [("13.0", None)]


def test_the_toolkit_on_the_path_is_the_one_that_nvcc_runs_in(nvcc, tmp_path):
    """As scripts in /usr/local/bin call one."""
    script = program(tmp_path / "bin" / "nvcc", f'exec {nvcc} "$@"')
    environ = {"PATH": f"{script.parent}:{os.environ['PATH']}"}
    first = next(find_toolkits("cuda", environ, site=[], cache=tmp_path))
    assert (first.root, first.where) == (nvcc.parent.parent.resolve(), "nvcc on the PATH")


def test_the_bounds_are_those_of_the_header(nvcc):
    header = (nvcc.parent.parent / "include/crt/host_config.h").read_text()
    gcc = re.findall(r"^#if __GNUC__ > (\d+)", header, re.MULTILINE)
    clang = re.findall(r"^#if \(__clang_major__ >= (\d+)\)", header, re.MULTILINE)[-1]
    bounds = host_bounds("13.0")
    assert [bound.partition("<")[2] for bound in bounds.values()] == [str(int(gcc[0]) + 1), clang]


def test_the_driver_or_why_there_is_none():
    for backend in ("cuda", "rocm"):
        found = find_driver(backend)
        assert isinstance(found, Driver) or len(found.reason.splitlines()) == 1
    module = Path("/sys/module/nvidia/version")
    if module.is_file():
        found = find_driver("cuda")
        assert isinstance(found, Absent) or found.version == module.read_text().strip()


def test_the_whole_machine():
    found = find_machine()
    assert found.python == platform.python_version()
    assert found.platform == f"linux_{platform.machine()}"
    assert found.host is not None
    assert found.host.family in ("gcc", "clang")
    assert (found.driver is None) == (found.driver_problem is not None)
    assert bool(found.gpus) == (found.gpus_problem is None)
    roots = [one.root for one in found.toolkits]
    assert len(roots) == len(set(roots))
    if importlib.util.find_spec("torch"):
        assert (found.torch == find_torch(), found.torch_problem) == (True, None)


def test_a_bare_machine_is_facts_too(tmp_path):
    """No torch, no compiler on the PATH, no home: -S leaves site-packages out."""
    for name in ("torchwheel_runtime", "packaging"):
        spec = importlib.util.find_spec(name)
        (tmp_path / name).symlink_to(Path(spec.origin).parent)
    done = subprocess.run(
        [sys.executable, "-S", "-c", WHOLE],
        env={"PYTHONPATH": str(tmp_path), "PATH": "", "CUDA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["torch"], told["torch_problem"]) == (
        None,
        {"reason": "torch is not installed", "fix": None, "problem": None},
    )
    assert told["host"] is None
    assert told["host_problem"]["reason"].startswith("no C++ compiler")
    first = told["toolkits"][0]
    assert (first["where"], first["problem"]) == ("CUDA_HOME", "it has no bin/nvcc")
