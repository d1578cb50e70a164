"""The toolkits that a machine has: where they are found, and whether their parts fit."""

import os
import platform
from pathlib import Path

import pytest

from programmaker import program
from torchwheel.toolkit.toolkit_home import assemble_cuda_home
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine import probe, toolkits
from torchwheel_runtime.machine.facts import Absent, InstalledToolkit
from torchwheel_runtime.machine.toolkit_layout import CUDA_TARGETS, cuda_headers, cuda_runtime
from torchwheel_runtime.machine.toolkits import (
    find_toolkits,
    inspect_cuda,
    locate_system,
    pip_install_command,
    require_cuda,
)

PLATFORM = probe.platform_tag()
HIP = "#define HIP_VERSION_MAJOR 6\n#define HIP_VERSION_MINOR 4\n"

# Folders laid out as CUDA toolkits are, with scripts that print what the tools print.


FILES = (
    "include/cuda_runtime.h",
    "include/cuda_runtime_api.h",
    "include/crt/host_config.h",
    "include/cccl/nv/target",
    "lib64/libcudart_static.a",
)


def banner(release: str) -> str:
    short = release.rpartition(".")[0]
    return f"Cuda compilation tools, release {short}, V{release}"


def cuda(root: Path, nvcc: str = "13.0.88", ptxas: str | None = None, nvvm: str | None = None):
    """A toolkit; its other parts are of nvcc's release unless said."""
    for tool, release in (("nvcc", nvcc), ("ptxas", ptxas or nvcc)):
        program(root / "bin" / tool, f"echo '{banner(release)}'")
    write_last = f"for out; do :; done; echo '// {banner(nvvm or nvcc)}' > \"$out\""
    program(root / "nvvm/bin/cicc", write_last)
    (root / "bin/nvcc.profile").touch()
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    numbers = list(map(int, nvcc.split(".")))
    version = f"#define CUDART_VERSION  {1000 * numbers[0] + 10 * numbers[1]}\n"
    (root / "include/cuda_runtime_api.h").write_text(version)
    return root


def conda(root: Path, **releases: str) -> Path:
    """A toolkit as conda lays it out, in a prefix that has headers of others."""
    cuda(root, **releases)
    own = root / "targets" / CUDA_TARGETS[platform.machine()]
    own.mkdir(parents=True)
    (root / "include").rename(own / "include")
    (root / "lib64").rename(own / "lib")
    (root / "include").mkdir()
    (root / "include" / "zlib.h").touch()
    return root


def wheels(site: Path, crt: str = "13.0.88", **releases: str) -> Path:
    """A toolkit as pip lays it out."""
    (site / f"nvidia_cuda_crt-{crt}.dist-info").mkdir(parents=True)
    return cuda(site / "nvidia" / "cu13", **releases)


@pytest.fixture
def found(tmp_path, monkeypatch):
    """What is found with these variables, in an otherwise empty world."""
    monkeypatch.setattr(toolkits, "USUAL_CUDA", tmp_path / "usual")
    monkeypatch.setattr(toolkits, "USUAL_ROCM", tmp_path / "rocm")

    def find(site=(), **environ: object) -> list[InstalledToolkit]:
        told = {"PATH": "", **{name: str(value) for name, value in environ.items()}}
        return [
            *find_toolkits("cuda", told, list(map(str, site)), tmp_path / "cache"),
            *find_toolkits("rocm", told),
        ]

    return find


def inspected(root: Path) -> tuple[str, str | None, str | None]:
    toolkit = inspect_cuda(root, "")
    return toolkit.release, toolkit.problem, toolkit.fix


def cached(tmp_path: Path, release: str) -> Path:
    name = f"cuda-{release}-{PLATFORM}-0123456789abcdef"
    return cuda(tmp_path / "cache/toolkits" / name, f"{release}.88")


def test_every_toolkit_in_the_order_of_preference(found, tmp_path):
    home, usual = cuda(tmp_path / "a", "12.4.131"), cuda(tmp_path / "usual", "13.2.86")
    path, site = cuda(tmp_path / "b"), tmp_path / "site-packages"
    installed = wheels(site)
    older, newer = cached(tmp_path, "13.2"), cached(tmp_path, "13.10")
    (newer.parent / f"{newer.name}.lock").touch()
    every = found([tmp_path, site], CUDA_HOME=home, PATH=path / "bin")
    assert [(one.root, one.release, one.where) for one in every] == [
        (home, "12.4", "CUDA_HOME"),
        (path, "13.0", "nvcc on the PATH"),
        (usual, "13.2", str(usual)),
        (installed, "13.0", "wheels in site-packages"),
        (newer, "13.10", "torchwheel's cache"),
        (older, "13.2", "torchwheel's cache"),
    ]
    assert {one.problem for one in every} == {None}


def test_a_toolkit_of_conda_is_whole(found, tmp_path):
    root = conda(tmp_path / "my env")
    (one,) = found(PATH=root / "bin")
    assert (one.root, one.release, one.problem) == (root, "13.0", None)
    assert require_cuda(root, "13.0") == "13.0"
    machine = platform.machine()
    own = root / "targets" / CUDA_TARGETS[machine]
    assert cuda_headers(root, machine) == own / "include"
    assert cuda_runtime(root, machine) == own / "lib" / "libcudart_static.a"
    # What a foreign project is built with has neither the headers nor the libraries of others.
    home = assemble_cuda_home(tmp_path / "home", root, tmp_path / "site", (), Path("/usr/bin/g++"))
    assert {path.name for path in (home / "include").iterdir()} == {
        *("cuda_runtime.h", "cuda_runtime_api.h", "crt", "cccl")
    }
    assert (home / "lib64" / "libcudart_static.a").is_file()


def test_a_folder_with_two_names_is_found_once(found, tmp_path):
    root = cuda(tmp_path / "cuda-13.0")
    (tmp_path / "usual").symlink_to(root)
    (one,) = found(CUDA_HOME=tmp_path / "usual", PATH=root / "bin")
    assert one == InstalledToolkit("cuda", root, "13.0", "CUDA_HOME")


def test_nothing_is_found_where_nothing_is(found):
    assert found() == []


def test_nothing_is_found_in_places_that_are_not_ones(found, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "usual").symlink_to(tmp_path / "circle")
    assert found([tmp_path / "file", tmp_path / "circle"], PATH=tmp_path / "circle") == []


def test_a_wrong_cuda_home_is_found_all_the_same(found, tmp_path):
    (one,) = found(CUDA_HOME=tmp_path)
    assert one.problem == "it has no bin/nvcc"
    assert one.fix == "set CUDA_HOME to a complete CUDA toolkit"
    assert one.release == ""


def script(nvcc: Path, root: Path) -> None:
    program(nvcc, f"echo '#$ _SPACE_= '; echo '#$ _HERE_={root}/bin'")


def link(nvcc: Path, root: Path) -> None:
    nvcc.parent.mkdir()
    nvcc.symlink_to(root / "bin/nvcc")


@pytest.mark.parametrize("make", [script, link])
def test_what_calls_nvcc_leads_to_the_toolkit(found, tmp_path, make):
    root = cuda(tmp_path / "cuda")
    make(tmp_path / "bin/nvcc", root)
    assert [one.root for one in found(PATH=tmp_path / "bin")] == [root]
    assert locate_system(print, {"PATH": str(tmp_path / "bin")})[0] == root


def test_a_script_that_says_nothing_is_no_toolkit(found, tmp_path):
    program(tmp_path / "bin/nvcc", "exit 1")
    (one,) = found(PATH=tmp_path / "bin")
    assert (one.root, one.problem) == (tmp_path, "nvcc failed with status 1")


@pytest.mark.parametrize(
    ("mixed", "named", "wheel"),
    [
        ({"nvvm": "13.5.37"}, "nvcc 13.0.88, ptxas 13.0.88, nvvm 13.5.37, crt 13.0.88", "nvvm"),
        ({"crt": "13.2.86"}, "nvcc 13.0.88, ptxas 13.0.88, nvvm 13.0.88, crt 13.2.86", "cuda-crt"),
    ],
)
def test_mixed_wheels_are_named_and_mended_by_pip(tmp_path, mixed, named, wheel):
    root = wheels(tmp_path, **mixed)
    fix = f"`pip install 'nvidia-{wheel}==13.0.88'`"
    assert inspected(root) == ("13.0", f"a mixed toolkit: {named}", fix)


def test_a_mixed_toolkit_that_is_no_wheels_is_to_be_installed_again(tmp_path):
    found = inspect_cuda(cuda(tmp_path, ptxas="12.9.86"), "")
    assert found.problem == "a mixed toolkit: nvcc 13.0.88, ptxas 12.9.86, nvvm 13.0.88"
    assert found.fix == "install this toolkit again, or set CUDA_HOME to another"


@pytest.mark.parametrize(
    ("change", "release", "problem"),
    [
        ("#define CUDART_VERSION 12090", None, "a mixed toolkit: nvcc 13.0, cudart 12.9; install "),
        ("nothing", None, "cuda_runtime_api.h defines no CUDART_VERSION; install this "),
        (None, None, "it has no cuda_runtime_api.h; install this toolkit again, or set CUDA_HOME"),
        ("#define CUDART_VERSION 13000", "13.2", "nvcc is of CUDA 13.0; 13.2 was asked for"),
    ],
)
def test_a_toolkit_that_is_not_the_one_asked_for_is_refused(tmp_path, change, release, problem):
    header = cuda(tmp_path) / "include/cuda_runtime_api.h"
    assert require_cuda(tmp_path) == require_cuda(tmp_path, "13.0") == "13.0"
    header.unlink() if change is None else header.write_text(change)
    with pytest.raises(TorchwheelError) as refused:
        require_cuda(tmp_path, release)
    assert str(refused.value).startswith(f"{tmp_path}")
    assert problem in str(refused.value)


def test_patch_releases_of_one_minor_are_one_compiler(tmp_path):
    assert inspected(cuda(tmp_path, nvcc="12.4.99", nvvm="12.4.131")) == ("12.4", None, None)


@pytest.mark.parametrize(
    ("missing", "pin"),
    [
        ("nvvm/bin/cicc", "nvidia-nvvm==13.0.88"),
        ("bin/ptxas", "nvidia-cuda-nvcc==13.0.88"),
        ("crt/host_config.h", "nvidia-cuda-crt==13.0.88"),
        ("cuda_runtime.h", "nvidia-cuda-runtime==13.0.*"),
        ("libcudart_static.a", "nvidia-cuda-runtime==13.0.*"),
        ("nv/target", "nvidia-cuda-cccl==13.*"),
    ],
)
def test_a_missing_part_is_named_with_its_wheel(tmp_path, missing, pin):
    root = wheels(tmp_path)
    (file,) = (path for path in root.rglob("*") if str(path).endswith(missing))
    file.unlink()
    assert inspected(root) == ("13.0", f"it has no {missing}", f"`pip install '{pin}'`")


def test_tools_that_fail_tell_why(tmp_path):
    root = cuda(tmp_path)
    program(root / "nvvm/bin/cicc", "echo 'cannot open libc'; exit 1")
    assert inspect_cuda(root, "").problem == "cannot open libc"
    program(root / "nvvm/bin/cicc", "exit 0")
    assert inspect_cuda(root, "").problem == "cicc makes no PTX"
    program(root / "bin/ptxas", "echo 1.0")
    assert inspect_cuda(root, "").problem == "ptxas names no release of CUDA"
    (root / "bin/nvcc").write_text("no program")
    assert inspect_cuda(root, "").problem == "nvcc does not start: Exec format error"
    (root / "bin/nvcc").chmod(0o644)
    assert inspect_cuda(root, "").problem == "nvcc does not start: Permission denied"


def test_without_a_temporary_folder_a_toolkit_is_not_known_to_be_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    problem = inspect_cuda(cuda(tmp_path), "").problem
    assert problem.startswith("cicc was not tried, for want of a temporary folder: No such file")


def test_a_user_without_a_home_has_no_cache(found, monkeypatch):
    def nowhere():
        raise TorchwheelError("home folder: expected HOME, found none")

    monkeypatch.setattr(toolkits, "cache_path", nowhere)
    assert list(find_toolkits("cuda", {"PATH": ""}, [])) == []


@pytest.mark.parametrize("name", ["x" * 5000, "ring/cache"])
def test_a_cache_that_no_path_leads_to_has_no_toolkit(found, tmp_path, name):
    (tmp_path / "ring").symlink_to("ring")
    assert list(find_toolkits("cuda", {"PATH": ""}, [], tmp_path / name)) == []


def test_a_tool_that_hangs_is_not_waited_for(tmp_path):
    slow = program(tmp_path / "slow", "sleep 60")
    assert probe.program_output([str(slow)], seconds=0.2) == Absent(
        "slow gave no answer in 0 s", problem="slow gave no answer in 0 s"
    )


def test_the_command_for_a_whole_toolkit_pins_every_wheel():
    assert pip_install_command("13.0") == (
        "`pip install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' "
        "'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.*'`"
    )


def rocm(root: Path, header: str | None = HIP) -> Path:
    program(root / "bin/hipcc")
    if header is not None:
        (root / "include/hip").mkdir(parents=True)
        (root / "include/hip/hip_version.h").write_text(header)
    return root


def test_every_rocm_in_the_order_of_preference(found, tmp_path):
    named, path, usual = (rocm(tmp_path / name) for name in ("named", "path", "rocm"))
    assert found(ROCM_PATH=named, PATH=path / "bin") == [
        InstalledToolkit("rocm", named, "6.4", "ROCM_PATH"),
        InstalledToolkit("rocm", path, "6.4", "hipcc on the PATH"),
        InstalledToolkit("rocm", usual, "6.4", str(usual)),
    ]


CORE = "#define ROCM_VERSION_MAJOR   10\n#define ROCM_VERSION_MINOR   1\n"


@pytest.mark.parametrize(
    ("files", "release"),
    [
        ({}, "6.4"),
        ({".info/version": "6.4.1-83\n"}, "6.4"),
        ({".info/version": "10.1.0\n"}, "10.1"),
        ({"include/rocm-core/rocm_version.h": CORE}, "10.1"),
        ({".info/version": "10.2.0", "include/rocm-core/rocm_version.h": CORE}, "10.2"),
    ],
    ids=["HIP's header", "one number", "version", "header", "both"],
)
def test_rocms_release_is_not_hips(files, release, found, tmp_path):
    root = rocm(tmp_path / "rocm")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert [one.release for one in found()] == [release]


def test_the_rocm_of_amds_wheels(found, tmp_path, monkeypatch):
    root = rocm(tmp_path / "_rocm_sdk_devel")
    sdk = program(tmp_path / "bin/rocm-sdk", f"[ \"$*\" = 'path --root' ] && echo {root}\n")
    monkeypatch.setattr(toolkits.sys, "executable", str(sdk.with_name("python")))
    assert found() == [InstalledToolkit("rocm", root, "6.4", "rocm-sdk")]


def test_hipcc_in_a_folder_of_hips_own(found, tmp_path):
    root = rocm(tmp_path / "rocm-5.0")
    program(root / "hip/bin/hipcc")
    assert [one.root for one in found(PATH=root / "hip/bin")] == [root]


def test_a_rocm_without_its_release_or_its_compiler(found, tmp_path):
    roots = {
        rocm(tmp_path / "no header", None): "No such file or directory",
        rocm(tmp_path / "empty header", ""): "hip_version.h tells no release",
        rocm(tmp_path / "odd"): "/odd/.info/version tells no release",
        tmp_path / "nowhere": "it has no bin/hipcc",
    }
    (tmp_path / "odd/.info").mkdir()
    (tmp_path / "odd/.info/version").write_text("develop\n")
    for root, problem in roots.items():
        (one,) = found(ROCM_PATH=root)
        assert one.release == ""
        assert one.problem.endswith(problem)
        assert one.fix == "set ROCM_PATH to a ROCm with hipcc and HIP's headers"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_holds_nothing(found, tmp_path):
    cuda(tmp_path / "usual").chmod(0)
    assert found() == []


@pytest.mark.parametrize(("make", "variable"), [(cuda, "CUDA_HOME"), (rocm, "ROCM_PATH")])
def test_a_compiler_that_others_can_exchange_is_named_and_not_started(
    found, tmp_path, make, variable
):
    planted, good = make(tmp_path / "planted"), make(tmp_path / "good")
    name = "nvcc" if make is cuda else "hipcc"
    program(planted / "bin" / name, f"touch {tmp_path}/started")
    (planted / "bin").chmod(0o777)
    path = f"{planted}/bin:{good}/bin"
    first, skipped = found(PATH=path)
    assert (first.root, first.problem) == (good, None)
    assert (skipped.root, skipped.where) == (planted, f"{name} on the PATH, skipped")
    assert skipped.problem.startswith(f"is not used: {planted}/bin: others may write to it")
    assert skipped.fix.endswith(f"or take {planted}/bin off the PATH")
    assert not (tmp_path / "started").exists()
    # A variable is the user's word.
    assert found(PATH="", **{variable: planted})[0].where == variable


def test_a_compiler_that_others_can_exchange_is_no_toolkit_of_the_system(tmp_path):
    planted, good = cuda(tmp_path / "planted"), cuda(tmp_path / "good")
    (planted / "bin").chmod(0o777)
    said = []
    root, _ = locate_system(said.append, {"PATH": f"{planted}/bin:{good}/bin"})
    assert root == good
    assert [text.startswith(f"{planted}/bin/nvcc: is not used: ") for text in said] == [True]
