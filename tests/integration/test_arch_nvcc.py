"""The words of an arch list and the table of archs, against the compiler itself."""

import re
import subprocess
from pathlib import Path

import pytest

from torchwheel_runtime.arch import lists
from torchwheel_runtime.arch.devices import VisibleGpus
from torchwheel_runtime.arch.model import CudaArch, gencode
from torchwheel_runtime.arch.releases import ToolkitRelease

pytestmark = pytest.mark.integration
CUDA = ToolkitRelease("cuda", "13.0")
IMAGE = re.compile(r"--image3?=kind=(elf|ptx),sm=(\d+[af]?)")


def told(nvcc: Path, *options: str) -> str:
    done = subprocess.run([nvcc, *options], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "kernel.cu"
    path.write_text("__global__ void kernel() {}\n")
    return str(path)


def images(commands: str) -> set[tuple[str, str]]:
    return set(IMAGE.findall(commands))


@pytest.mark.parametrize("word", ["all", "all-major"])
def test_words_mean_what_nvcc_means(word, nvcc, source):
    found = lists.parse_arch_list(word, CUDA, lambda: VisibleGpus(()), "here").archs
    flags = [flag for arch in found for flag in gencode(arch)]
    ours = images(told(nvcc, "--dryrun", "-c", source, *flags))
    assert len(ours) > 5
    assert ours == images(told(nvcc, "--dryrun", "-c", source, f"-arch={word}"))


def test_the_table_holds_what_nvcc_lists(nvcc):
    listed = set(told(nvcc, "--list-gpu-code").split())
    plain = {f"sm_{a.number}" for a in CUDA.archs if isinstance(a, CudaArch) and not a.suffix}
    assert plain == listed
