"""A build environment that names the ABI flavour alone is completed; nothing is downloaded here."""

import subprocess
import sys
from pathlib import Path

import pytest
from targets import EXTENSION

from torchwheel.builder import environment, provision
from torchwheel.builder.provision import complete_environment
from torchwheel.console import Quiet
from torchwheel.errors import TorchwheelError
from torchwheel.toolkit.host import HostCompiler

ALONE = {environment.ABI: "stable"}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with a C++ compiler and nothing else; the folder of what is provisioned."""

    def no_system(*_):
        raise TorchwheelError("no CUDA toolkit here")

    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        provision, "host_compiler", lambda _: HostCompiler(Path("/bin/g++"), "gcc", "12")
    )
    monkeypatch.setattr(provision, "locate_system", no_system)
    monkeypatch.setattr(
        provision, "provision_pypi", lambda release, platform, *_: (tmp_path / release, platform)
    )
    monkeypatch.setattr(provision, "torch_headers", lambda release, *_: tmp_path / f"t{release}")
    return tmp_path


def complete(environ):
    return complete_environment({**ALONE, **environ}, EXTENSION, Quiet())


def test_everything_is_provisioned_where_there_is_nothing(machine):
    assert complete({}) == {
        environment.ABI: "stable",
        environment.CXX: "/bin/g++",
        environment.CUDA_HOME: str(machine / "13.0"),
        environment.TOOLKIT: "13.0",
        environment.ARCH_LIST: "7.5;8.0;9.0;10.0;11.0;12.0+PTX",
        environment.TORCH: str(machine / "t2.11"),
        environment.TORCH_RELEASE: "2.11",
    }


def test_what_is_named_is_taken(machine):
    named = {
        environment.CXX: "clang++",
        environment.TOOLKIT: "13.2",
        environment.ARCH_LIST: "9.0+PTX",
        environment.TORCH: "/my/torch",
    }
    found = complete(named)
    assert {name: found[name] for name in named} == named
    assert found[environment.CUDA_HOME] == str(machine / "13.2")


def test_an_installed_toolkit_comes_first(machine, monkeypatch):
    asked = []
    monkeypatch.setattr(provision, "locate_system", lambda *_: (Path("/usr/cuda"), "id"))
    monkeypatch.setattr(provision, "nvcc_release", lambda _: "12.4")
    monkeypatch.setattr(provision, "agreed_release", lambda *of: asked.append(of))
    found = complete({environment.ARCH_LIST: "9.0"})
    assert (found[environment.CUDA_HOME], found[environment.TOOLKIT]) == ("/usr/cuda", "12.4")
    assert asked == [(Path("/usr/cuda"), "12.4")]


def test_a_wrong_cuda_home_is_an_error_and_no_download(machine):
    with pytest.raises(TorchwheelError, match="no CUDA toolkit here"):
        complete({environment.CUDA_HOME: "/nowhere"})


@pytest.mark.parametrize(
    ("environ", "can"),
    [
        (ALONE, True),
        ({**ALONE, environment.CUDA_HOME: "/cuda"}, True),
        ({**ALONE, environment.BACKEND: "cuda"}, True),
        ({**ALONE, environment.BACKEND: "rocm"}, False),
        ({**ALONE, environment.PART: "kernels"}, False),
        ({environment.ABI: "aten"}, False),
        ({}, False),
    ],
)
def test_what_can_be_completed(environ, can):
    assert environment.can_complete(environ) == can


def test_a_whole_environment_is_left_as_it_is():
    whole = {
        **ALONE,
        environment.CUDA_HOME: "/cuda",
        environment.ARCH_LIST: "9.0",
        environment.TOOLKIT: "13.0",
        environment.TORCH: "/torch",
        environment.TORCH_RELEASE: "2.11",
    }
    assert not environment.can_complete(whole)


def test_provisioning_needs_no_pydantic():
    """Neither an installed extension (TORCHWHEEL_DOWNLOAD=1) nor pip's build environment has it."""
    code = (
        "import sys; sys.modules['pydantic'] = None\n"
        "import torchwheel.builder.provision, torchwheel.builder.probes\n"
    )
    env = {"PYTHONPATH": str(Path(__file__).parents[3] / "pkg")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
