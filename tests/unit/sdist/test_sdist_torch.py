"""The variant, the toolkit, the variables and the claims of an sdist's wheel."""

import dataclasses
import os
import re
from pathlib import Path

import pytest

from programmaker import program
from torchwheel.cli import main
from torchwheel.matrix.sections import HostCompilerBounds as HostBounds
from torchwheel.matrix.sections import Toolkit
from torchwheel.pipeline.inputs import claims_of
from torchwheel.sdist.build_setup import (
    PYTHON,
    host_for,
    newest_torch,
    sdist_environment,
    sdist_variant,
    toolkit_for,
    torch_requirement,
)
from torchwheel.sdist.project_settings import ProjectSettings
from torchwheel.sdist.request import SdistRequest, check_request, parse_allowed
from torchwheel.smoke.testing import EnvironmentTorch
from torchwheel.smoke.trial_environment import Environment
from torchwheel_runtime.arch.model import Arch, parse
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.toolkit.host import HostCompiler


def parsed(*names: str) -> tuple[Arch, ...]:
    return tuple(map(parse, names))


TORCH = EnvironmentTorch(
    *("2.11.0+cu130", "13.0", None, Path("torch")),
    archs=("sm_75", "sm_80", "sm_90", "compute_90"),
    loaded=("libcudart.so.13",),
)
TAG = f"cp{PYTHON.replace('.', '')}"


def with_cuda(release: str | None, *archs: str, hip: str | None = None) -> EnvironmentTorch:
    """The same torch for another CUDA, with machine code for `archs`, e.g. "sm_50"."""
    return dataclasses.replace(TORCH, cuda=release, hip=hip, archs=archs or TORCH.archs)


def chosen(
    torch: EnvironmentTorch = TORCH,
    asked: str | None = None,
    archs: str | None = None,
    **environ: str,
) -> tuple[Toolkit, list[str]]:
    """The toolkit, and what was said."""
    said: list[str] = []
    own = ProjectSettings(None, None)
    return toolkit_for(torch, asked, archs, own, said.append, environ), said


LISTED = {"TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX"}


@pytest.mark.parametrize(
    ("torch", "asked", "archs", "environ", "name", "source", "found"),
    [
        # By default it is torch's own CUDA, and torch's archs.
        (TORCH, None, None, {}, "cu130", "pypi", ("7.5", "8.0", "9.0")),
        # A release that is not pinned is the system's.
        (with_cuda("12.6"), None, None, {}, "cu126", "system", ("7.5", "8.0", "9.0")),
        # Another minor of torch's CUDA serves, too.
        (TORCH, "13.2", "9.0 12.0+PTX", {}, "cu132", "pypi", ("9.0", "12.0+PTX")),
        # The arch list of the command line comes first.
        (TORCH, None, "Turing", LISTED, "cu130", "pypi", ("7.5+PTX",)),
        (TORCH, None, None, LISTED, "cu130", "pypi", ("8.0", "9.0+PTX")),
    ],
)
def test_the_toolkit_and_the_archs_of_a_call(torch, asked, archs, environ, name, source, found):
    toolkit, said = chosen(torch, asked, archs, **environ)
    assert (toolkit.name, toolkit.source, toolkit.archs) == (name, source, parsed(*found))
    assert said == []


def test_a_toolkit_brings_the_bounds_of_its_host_compiler():
    assert chosen()[0].host_compiler.gcc == ">=6,<16"
    # One of tomorrow asks its own compiler about the host.
    assert chosen(asked="13.99")[0].host_compiler == HostBounds(gcc="", clang="")


def test_archs_that_the_toolkit_cannot_compile_are_left_out_and_named():
    toolkit, said = chosen(with_cuda("13.0", "sm_50", "sm_90"))
    assert toolkit.archs == parsed("9.0")
    assert said == ["left out: 5.0: CUDA 13.0 cannot compile for it; CUDA 11.8 to 12.9 can"]


def test_archs_that_torch_refuses_are_left_out_where_it_reads_them():
    toolkit, said = chosen(archs="8.8 9.0")
    assert toolkit.archs == parsed("9.0")
    assert said == [
        "left out: 8.8: the BuildExtension of torch 2.11 refuses it; see --archs-by declared"
    ]
    own = toolkit_for(
        TORCH, None, "8.8 10.0f", ProjectSettings(None, None), said.append, {}, archs_by="declared"
    )
    assert own.archs == parsed("8.8", "10.0f")
    assert len(said) == 1


@pytest.mark.parametrize(
    ("torch", "asked", "archs", "says"),
    [
        (TORCH, "12.8", None, r"--toolkit 12\.8: expected CUDA 13, that of torch 2\.11\.0\+cu130"),
        (TORCH, None, "6.0", r"--archs: nothing to compile for: 6\.0: CUDA 13\.0 cannot"),
        (TORCH, None, "9.x", r'--archs: "9\.x" is not an arch'),
        (TORCH, None, "8.8 10.0f", r"--archs: nothing to compile for: 8\.8: the BuildExtension of"),
        (with_cuda(None), None, None, r"built for CPUs only: .*--cpu"),
        (with_cuda(None, hip="6.4"), None, None, r"built with ROCm 6\.4: name a torch for CUDA"),
    ],
)
def test_what_cannot_be_is_a_wrong_call(torch, asked, archs, says):
    with pytest.raises(UsageError, match=says):
        chosen(torch, asked, archs)


def test_the_claims_name_torch_and_toolkit():
    variant = sdist_variant(TORCH, chosen(archs="9.0")[0])
    claims = claims_of(variant, None, ["libcudart.so.13"])
    assert claims.variant == f"cu130-torch2.11-{TAG}"
    assert (claims.abi, claims.torch_range, claims.local) == ("aten", "==2.11.*", "cu130torch2.11")
    assert (claims.backend, claims.toolkit, claims.toolkit_version) == ("cuda", "cu130", "13.0")
    assert claims.archs == parsed("9.0")
    assert claims.borrowed == ("libcudart.so.13",)
    assert claims_of(variant, "git.1").local == "git.1.cu130torch2.11"


def test_a_build_without_cuda_claims_none():
    claims = claims_of(sdist_variant(TORCH, None))
    assert (claims.backend, claims.toolkit, claims.archs) == (None, None, ())
    assert (claims.variant, claims.local) == (f"cpu-torch2.11-{TAG}", "cputorch2.11")


def test_the_usual_torch_is_a_release():
    assert re.fullmatch(r"2\.\d+\.0", newest_torch())


@pytest.fixture
def environ(tmp_path):
    """What setup.py is told in a process with these variables."""

    def tell(cuda: Path | None, **variables: str) -> dict[str, str]:
        return sdist_environment(
            Environment(tmp_path / "env" / "bin" / "python", {}, tmp_path),
            toolkit=chosen(archs="8.0 9.0+PTX")[0] if cuda else None,
            cuda_home=cuda,
            host=HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0"),
            cxx=Path("/cache/g++"),
            jobs=3,
            environ={"PATH": "/bin", **variables},
        )

    return tell


def test_setup_py_is_told_of_the_toolkit(environ, tmp_path):
    found = environ(Path("/cuda"))
    assert found["CUDA_HOME"] == "/cuda"
    assert found["TORCH_CUDA_ARCH_LIST"] == "8.0;9.0+PTX"
    # CMake tries the compiler for these, before torch's own list counts.
    assert (found["CUDAARCHS"], found["CUDACXX"]) == (
        "80-real;90-real;90-virtual",
        "/cuda/bin/nvcc",
    )
    assert (found["CXX"], found["NVCC_CCBIN"]) == ("/cache/g++", "/usr/bin/g++")
    assert (found["MAX_JOBS"], found["FORCE_CUDA"]) == ("3", "1")
    assert found["PATH"].split(":")[:2] == ["/cuda/bin", "/bin"]
    assert found["VIRTUAL_ENV"] == str(tmp_path / "env")
    assert environ(Path("/cuda"), FORCE_CUDA="0")["FORCE_CUDA"] == "0"


def test_without_cuda_it_is_told_of_none(environ):
    found = environ(None)
    assert found["FORCE_CUDA"] == "0"
    assert found.keys().isdisjoint({"CUDA_HOME", "CUDAARCHS", "TORCH_CUDA_ARCH_LIST"})


def test_a_right_call_passes(tmp_path):
    (tmp_path / "setup.py").touch()
    check_request(SdistRequest(tmp_path, tmp_path, torch="2.13.0+cpu", cpu=True))
    check_request(SdistRequest(tmp_path / "setup.py", tmp_path, toolkit="13.0", archs="9.0"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"source": Path("nonesuch")},
            "nonesuch: not found; expected an sdist, a project's folder or NAME",
        ),
        ({"source": Path("empty")}, r"empty: pyproject\.toml or setup\.py expected in it"),
        (
            {"source": Path("pipe.tar.gz")},
            "pipe.tar.gz: expected a file or a folder, found neither",
        ),
        ({"source": Path("git+https://me:word@host/x")}, "git+https:/****@host/x: not found"),
        ({"source": Path("demo.whl")}, "a wheel is built already"),
        ({"torch": "2.11"}, '--torch "2.11": a release expected, e.g. 2.11.0'),
        ({"torch": "2.11.0; rm"}, "--torch"),
        ({"toolkit": "13"}, '--toolkit "13": a release expected, e.g. 13.0'),
        ({"cpu": True, "archs": "9.0"}, "--cpu builds without CUDA"),
        ({"cpu": True, "toolkit": "13.0"}, "--cpu builds without CUDA"),
        ({"cpu": True, "archs_by": "replaced"}, "--cpu builds without CUDA"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_fetched(tmp_path, monkeypatch, change, says):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("demo.tar.gz").touch()
    Path("demo.whl").touch()
    os.mkfifo("pipe.tar.gz")
    request = dataclasses.replace(SdistRequest(Path("demo.tar.gz"), Path("dist")), **change)
    with pytest.raises(UsageError, match=re.escape(says) if "\\" not in says else says):
        check_request(request)


def test_declarations_reach_the_compiler_and_the_gates(tmp_path, monkeypatch):
    asked = []

    def stop(request, *_):
        asked.append(request)
        raise UsageError("stop")

    (tmp_path / "setup.py").touch()
    monkeypatch.setattr("torchwheel.sdist.build.build_sdist", stop)
    call = ["build", str(tmp_path), "--no-launcher", "--archs-by", "replaced"]
    call += ["--config-setting=--build-option=-j1"]
    call += ["--allow", "runtime:*/_C.so:calls the driver: cuInit", "--allow", "archs:*:none"]
    assert main(call) == 2
    (request,) = asked
    limits = request.limits
    assert limits.reason("runtime", "demo/_C.so") == "calls the driver: cuInit"
    assert limits.reason("archs", "demo/_C.so") == "none"
    assert limits.reason("content", "demo/_C.so") is None
    assert request.archs_by == "replaced"
    assert request.settings == {"--build-option": "-j1"}


@pytest.mark.parametrize("text", ["size:*:why", "runtime:*/_C.so", "runtime::why", "archs:*: ", ""])
def test_an_allowance_names_its_gate_libraries_and_reason(text):
    with pytest.raises(UsageError, match="--allow: expected GATE:LIBRARY:REASON"):
        parse_allowed(text)


@pytest.mark.parametrize("name", [".", "csrc/..", "../demo", "../demo/", "csrc/../../demo/."])
def test_a_project_has_its_folders_name(tmp_path, monkeypatch, name):
    (tmp_path / "demo/csrc").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "demo")
    assert SdistRequest(Path(name), tmp_path).name == "demo"


def test_calls_that_differ_build_in_folders_of_their_own(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"a")
    (tmp_path / "b.tar.gz").write_bytes(b"b")
    request = SdistRequest(tmp_path / "a.tar.gz", tmp_path)
    others = [
        dataclasses.replace(request, source=tmp_path / "b.tar.gz"),
        dataclasses.replace(request, source=tmp_path),
        dataclasses.replace(request, torch="2.11.0"),
        dataclasses.replace(request, archs="9.0"),
        dataclasses.replace(request, archs_by="replaced"),
        dataclasses.replace(request, cpu=True),
    ]
    assert len({one.key() for one in (request, *others)}) == 7
    assert dataclasses.replace(request, dist=tmp_path / "dist").key() == request.key()


@pytest.mark.parametrize(
    ("torch", "cpu", "pinned"),
    [
        ("2.13.0", True, "torch==2.13.0+cpu"),
        ("2.13.0+cpu", True, "torch==2.13.0+cpu"),
        ("2.13.0", False, "torch==2.13.0"),
    ],
)
def test_without_cuda_a_cpu_torch_is_installed(tmp_path, torch, cpu, pinned):
    request = SdistRequest(tmp_path, tmp_path, torch=torch, cpu=cpu)
    requirement, options = torch_requirement(request)
    assert requirement == pinned
    assert bool(options) == (cpu and "+" not in torch)


@pytest.mark.parametrize(
    ("torch", "gcc", "taken"),
    [
        ("2.13.0", "10.2", True),
        ("2.14.1", "10.2", False),
        ("2.14.1", "11.4", True),
        ("2.99.0", "10.2", False),  # of tomorrow: as the newest that is known
        (None, "10.2", False),
    ],
)
def test_the_compiler_has_the_cxx_of_torchs_headers(tmp_path, monkeypatch, torch, gcc, taken):
    """It is asked before torch is downloaded."""
    major, minor = gcc.split(".")
    lines = [f"echo '#define __GNUC{name}__ {n}'" for name, n in (("", major), ("_MINOR", minor))]
    program(tmp_path / "g++", "; ".join([*lines, "echo '#define __GNUC_PATCHLEVEL__ 0'"]))
    monkeypatch.setenv("CXX", str(tmp_path / "g++"))
    request = SdistRequest(tmp_path, tmp_path, torch=torch)
    if taken:
        assert host_for(request).version == f"{gcc}.0"
        return
    with pytest.raises(
        TorchwheelError,
        match=r"g\+\+ is gcc 10\.2\.0; torch 2\.\d+, whose headers are C\+\+20, takes gcc >=11",
    ):
        host_for(request)
