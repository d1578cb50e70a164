import dataclasses
import platform
from pathlib import Path

import pytest

from targets import CUDA_ATEN, CUDA_STABLE, EXTENSION, environ_of
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.builder import variables
from torchwheel_runtime.builder.ninja import BYTES_PER_JOB, parallel_jobs
from torchwheel_runtime.builder.target import Python, Target, TorchHeaders
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.machine import toolkit_layout

HERE = f"linux_{platform.machine()}"
OTHER = "linux_aarch64" if HERE == "linux_x86_64" else "linux_x86_64"
CUDA = environ_of(Path("/cuda"), **{variables.ARCH_LIST: "8.0;9.0+PTX"})


@pytest.fixture(scope="module", autouse=True)
def cuda(tmp_path_factory):
    """A CUDA toolkit as far as it is looked at, for both platforms."""
    root = tmp_path_factory.mktemp("cuda")
    for place in ("lib64", "targets/sbsa-linux/lib", "targets/x86_64-linux/lib"):
        (root / place).mkdir(parents=True)
        (root / place / "libcudart_static.a").touch()
    CUDA[variables.CUDA_HOME] = str(root)
    return root


@pytest.fixture
def torch(tmp_path):
    """A torch's folder; the text of its CMake file can be set."""

    def write(text: str) -> Path:
        folder = tmp_path / "torch-root"
        config = folder / "torch/share/cmake/Torch/TorchConfig.cmake"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(text)
        return folder

    return write


@pytest.fixture
def rocm(tmp_path):
    """The environment of a build with ROCm."""
    library = tmp_path / "rocm" / "lib" / "libamdhip64.so"
    library.parent.mkdir(parents=True)
    library.touch()
    return {
        **{name: value for name, value in CUDA.items() if "CUDA" not in name},
        variables.BACKEND: "rocm",
        variables.ROCM_PATH: str(tmp_path / "rocm"),
        variables.ROCM_ARCH: "gfx90a;gfx942",
        variables.TOOLKIT: "6.4",
    }


def read(environ: dict[str, str]) -> Target:
    target = variables.read_target(environ, Path("/p"))
    assert target is not None
    return target


def test_without_an_abi_the_package_is_pure():
    assert variables.read_target({"CUDA_HOME": "/cuda"}, Path()) is None


def test_a_whole_environment_is_a_target():
    target = read(CUDA)
    assert target.toolkit.archs == (parse("8.0"), parse("9.0+PTX"))
    assert (target.cxx, target.python, target.sysroot) == ("g++", None, ())
    assert (target.platform, target.cross) == (HERE, False)


def test_another_platform_is_cross_compiled(cuda):
    target = read({**CUDA, variables.PLATFORM: OTHER})
    assert (target.platform, target.cross) == (OTHER, True)
    assert target.toolkit.runtime.is_relative_to(cuda / "targets")


@pytest.mark.parametrize(
    "place", ["lib64", "lib", "lib/x86_64-linux-gnu", "targets/x86_64-linux/lib"]
)
def test_each_installer_keeps_cudas_runtime_elsewhere(tmp_path, place):
    with pytest.raises(UsageError, match=r"no libcudart_static\.a in .*point it at a whole CUDA"):
        toolkit_layout.cuda_runtime(tmp_path, "x86_64")
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "libcudart_static.a").touch()
    assert (
        toolkit_layout.cuda_runtime(tmp_path, "x86_64") == tmp_path / place / "libcudart_static.a"
    )


def test_a_rocm_environment_is_a_target(rocm):
    target = read(rocm)
    assert target.toolkit.archs == (parse("gfx90a"), parse("gfx942"))
    assert target.toolkit.runtime == Path(rocm["ROCM_PATH"]) / "lib" / "libamdhip64.so"


def test_a_distributions_rocm_keeps_its_library_elsewhere(tmp_path):
    library = tmp_path / "lib" / "x86_64-linux-gnu" / "libamdhip64.so"
    library.parent.mkdir(parents=True)
    with pytest.raises(UsageError, match=r"no libamdhip64\.so in .*x86_64-linux-gnu; point it"):
        toolkit_layout.hip_runtime(tmp_path, "x86_64")
    library.touch()
    assert toolkit_layout.hip_runtime(tmp_path, "x86_64") == library


def test_a_sysroot_has_one_gcc(rocm, tmp_path):
    root = tmp_path / "sysroot"
    environ = {**rocm, variables.SYSROOT: str(root)}
    with pytest.raises(UsageError, match=r"expected once, found 0 times"):
        variables.read_target(environ, Path("/p"))
    machine = platform.machine()
    for release in ("10", "12"):
        library = root / f"usr/lib/gcc/{machine}-linux-gnu/{release}/libstdc++.a"
        library.parent.mkdir(parents=True)
        library.touch()
        if release == "10":
            target = read(environ)
            assert f"--gcc-install-dir={library.parent}" in target.sysroot
    with pytest.raises(UsageError, match=r"expected once, found 2 times"):
        variables.read_target(environ, Path("/p"))


def test_an_aten_target_is_for_the_running_python(torch, monkeypatch):
    python = Python(Path("/py"), Path("/pybind11"), ".so")
    monkeypatch.setattr(variables, "running_python", lambda: python)
    folder = torch('  set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n')
    environ = {**CUDA, variables.ABI: "aten", variables.TORCH: str(folder)}
    target = read(environ)
    assert (target.python, target.torch.old_abi) == (python, True)
    with pytest.raises(UsageError, match="build it on that platform"):
        variables.read_target({**environ, variables.PLATFORM: OTHER}, Path("/p"))


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")', True),
        ('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=1")', False),
        ("# -D_GLIBCXX_USE_CXX11_ABI=0 is no more", False),
        ("if(TORCH_CXX_FLAGS)", False),
    ],
)
def test_the_abi_is_read_from_torchs_own_file(torch, text, old):
    assert variables.has_old_abi(torch(f"x\n{text}\ny\n")) == old


def test_a_torch_without_its_cmake_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"TorchConfig\.cmake: No such file .*which C\+\+ ABI"):
        variables.has_old_abi(tmp_path)


def test_a_missing_pybind11_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install pybind11"):
        variables.running_python()


@pytest.mark.parametrize("name", sorted(set(CUDA) - {variables.ABI}))
def test_what_is_missing_is_named(name):
    environ = {key: value for key, value in CUDA.items() if key != name}
    with pytest.raises(UsageError, match=f"needs {name} too"):
        variables.read_target(environ, Path())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({variables.ABI: "atten"}, "TORCHWHEEL_ABI=atten: stable, aten or pure expected"),
        ({variables.BACKEND: "metal"}, "TORCHWHEEL_BACKEND=metal: cuda or rocm expected"),
        ({variables.ARCH_LIST: "8.0 9.x"}, r'"9\.x" is not an arch'),
        (
            {variables.ARCH_LIST: "gfx942"},
            'TORCH_CUDA_ARCH_LIST: "gfx942" is not an arch of CUDA',
        ),
        ({variables.BACKEND: "rocm"}, "needs ROCM_PATH, PYTORCH_ROCM_ARCH too"),
    ],
)
def test_a_wrong_value_is_named(change, says):
    with pytest.raises(UsageError, match=says):
        variables.read_target({**CUDA, **change}, Path())


OLD, NEW = TorchHeaders(Path("/torch"), "2.11"), TorchHeaders(Path("/torch"), "2.12")


def test_the_matrix_and_the_extension_name_one_floor():
    extension = dataclasses.replace(EXTENSION, torch="2.12")
    variables.require_stable_floor(extension, dataclasses.replace(CUDA_ATEN, torch=OLD))
    variables.require_stable_floor(extension, dataclasses.replace(CUDA_STABLE, torch=NEW))
    with pytest.raises(UsageError) as error:
        variables.require_stable_floor(extension, dataclasses.replace(CUDA_STABLE, torch=OLD))
    assert str(error.value) == (
        "TORCHWHEEL_TORCH_RELEASE=2.11: expected 2.12, the oldest torch that pkg's Extension "
        "names; make it and abis.stable.torch of the matrix the same"
    )


def test_jobs_follow_cores_and_free_memory():
    assert parallel_jobs({}, cores=8, free=100 * BYTES_PER_JOB) == 8
    assert parallel_jobs({}, cores=8, free=3 * BYTES_PER_JOB) == 3
    assert parallel_jobs({}, cores=8, free=0) == 1
    assert parallel_jobs({}, bytes_per_job=3 * BYTES_PER_JOB, cores=8, free=7 * BYTES_PER_JOB) == 2
    assert parallel_jobs({"MAX_JOBS": "5"}, cores=2, free=0) == 5


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²", "1" * 60])
def test_a_bad_max_jobs_is_named(text):
    with pytest.raises(UsageError, match=f"MAX_JOBS={text}"):
        parallel_jobs({"MAX_JOBS": text})
