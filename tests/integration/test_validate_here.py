"""What the rules say, held against what compilers do."""

import os
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import LibraryNeeds
from torchwheel_runtime.machine.discovery import find_host
from torchwheel_runtime.machine.facts import InstalledToolkit, Machine, Torch
from torchwheel_runtime.machine.toolkits import find_toolkits
from torchwheel_runtime.pip import run_pip
from torchwheel_runtime.toolkit.host import HostCompiler
from torchwheel_runtime.toolkit.lock import components
from torchwheel_runtime.validate import torch_rules
from torchwheel_runtime.validate.before_build import build_findings

pytestmark = pytest.mark.integration
STABLE = LibraryNeeds("stable", ">=2.11", "cuda", "13.0", (parse("9.0"),))
TORCH = Torch("2.11.0+cu130", "13.0", None, Path("/torch"))
KERNEL = "#include <cuda_fp16.h>\n__global__ void k(__half* x) { *x = __float2half(1.f); }\n"


def findings(toolkit: InstalledToolkit | None) -> list[str]:
    host = find_host(os.environ)
    assert isinstance(host, HostCompiler)
    machine = Machine("3.12.3", "linux_x86_64", "2.36", TORCH, host=host)
    return [one.line for one in build_findings(STABLE, machine, toolkit, package="pkg")]


def compiled(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """An nvcc run."""
    source = folder / "kernel.cu"
    source.write_text(KERNEL)
    command = [str(root / "bin/nvcc"), "-arch=sm_90", "-c", str(source), "-o", f"{source}.o"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """An environment with CUDA 13.0 and the nvvm that pip takes if it is not pinned: 300 MB."""
    root = tmp_path_factory.mktemp("mixed")
    venv.create(root)
    pins = {part.project: part.version for part in components("13.0")} | {"nvidia-nvvm": "13.5.37"}
    pip(root, "install", *(f"{project}=={version}" for project, version in pins.items()))
    yield root
    shutil.rmtree(root)


def pip(root: Path, *arguments: str) -> None:
    run_pip(["--python", str(root / "bin/python"), "--quiet", *arguments], "a toolkit")


def only(root: Path, tmp_path: Path) -> InstalledToolkit:
    (site,) = root.glob("lib/python3*/site-packages")
    (found,) = find_toolkits("cuda", {"PATH": ""}, [str(site)], tmp_path)
    return found


@pytest.mark.nightly
def test_a_mixed_toolkit_is_refused_and_the_command_fixes_it(mixed, tmp_path, monkeypatch):
    monkeypatch.setattr("torchwheel_runtime.machine.toolkits.USUAL_CUDA", tmp_path / "none")
    toolkit = only(mixed, tmp_path)
    assert findings(toolkit) == [
        "toolkit: expected a CUDA toolkit whose parts are of one release; found CUDA 13.0 in "
        f"{toolkit.root} (wheels in site-packages): a mixed toolkit: nvcc 13.0.88, ptxas "
        "13.0.88, nvvm 13.5.37, crt 13.0.88; `pip install 'nvidia-nvvm==13.0.88'`"
    ]
    refused = compiled(toolkit.root, tmp_path)
    assert refused.returncode != 0
    assert "Unsupported .version 9.5" in refused.stderr
    program, *command = shlex.split(toolkit.fix.strip("`"))
    assert program == "pip"
    pip(mixed, *command)
    mended = only(mixed, tmp_path)
    assert findings(mended) == []
    done = compiled(mended.root, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_host_compiler_here_is_judged_as_nvcc_judges_it(nvcc, tmp_path):
    root = nvcc.parent.parent
    toolkit = InstalledToolkit("cuda", root, "13.0", "CUDA_HOME")
    done = compiled(root, tmp_path)
    assert (findings(toolkit) == []) == (done.returncode == 0)
    assert ("unsupported" in done.stderr) == (findings(toolkit) != [])


def test_nvcc_refuses_the_first_compiler_past_the_bound(nvcc, tmp_path):
    """A g++ that says it is of another major; cpp's own macros decide."""
    limit = int(torch_rules.host_bounds("13.0")["gcc"].partition("<")[2])
    for major, taken in ((limit - 1, True), (limit, False)):
        source = tmp_path / "empty.cu"
        source.touch()
        done = subprocess.run(
            [str(nvcc), "-E", f"-Xcompiler=-U__GNUC__,-D__GNUC__={major}", str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ("unsupported GNU version" not in done.stderr) is taken, done.stderr


def test_ptxas_takes_the_ptx_of_its_release_and_no_newer(nvcc, tmp_path):
    """As its driver does: the same compiler is in it."""
    known = torch_rules._table()["ptx"]
    for release in ("12.9", "13.0", "13.1"):
        source = tmp_path / "empty.ptx"
        source.write_text(f".version {known[release]}\n.target sm_75\n.address_size 64\n")
        command = [str(nvcc.parent / "ptxas"), "-arch=sm_75", str(source), "-o", "empty.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert (done.returncode == 0) is torch_rules.compiles_ptx("13.0", release), done.stderr


def test_a_missing_toolkit_can_be_had_with_the_command(tmp_path):
    """pip finds every wheel of it; they are not brought here."""
    (sentence,) = findings(None)
    command = sentence.partition("`")[2].partition("`")[0]
    _, *arguments = shlex.split(command)
    options = ["--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", arguments[0], *options, *arguments[1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
