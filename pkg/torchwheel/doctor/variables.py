"""Environment variables that decide what is found, built and loaded."""

from collections.abc import Mapping

_OWN = "TORCHWHEEL_"
_OTHERS = (
    *("CUDA_HOME", "ROCM_PATH", "CXX", "TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH"),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "CONDA_PREFIX"),
)


def told(environ: Mapping[str, str]) -> dict[str, str]:
    """Those that are set, torchwheel's own first."""
    own = sorted(name for name in environ if name.startswith(_OWN))
    return {name: environ[name] for name in (*own, *_OTHERS) if name in environ}
