"""Smoke tests of the installed package: they need torch and pytest, nothing of this repository."""

import os

import pytest
import torch

# Else torch 2.7 and 2.8 allocate at each product with a bias (docs/ops/attention.md).
os.environ.setdefault("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "1")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "nightly: not tried for every push, but with every wheel")


@pytest.fixture(autouse=True)
def fresh_inputs() -> None:
    """New random inputs every run; a failed test's report shows the seed that repeats it."""
    print(f"torch.manual_seed({torch.seed()})")


@pytest.fixture
def gpu() -> torch.device:
    """The GPU to test on; skips where there is none.

    What is not prebuilt is built at its first call there.
    """
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture
def other_gpu(gpu) -> torch.device:
    """A GPU that is not the current one."""
    if torch.cuda.device_count() < 2:
        pytest.skip("only one GPU")
    return torch.device("cuda", 1 - gpu.index)


@pytest.fixture
def counted_gpu(gpu) -> torch.device:
    """The GPU, where torch's allocator counts what is allocated on it."""
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        pytest.skip("torch's allocator, which counts, is off")
    return gpu


@pytest.fixture
def anywhere() -> torch.device:
    """The GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
