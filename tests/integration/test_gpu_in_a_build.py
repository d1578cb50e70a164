"""The GPUs that torch finds in a build, asked of torch itself."""

import json
import os
import subprocess
import sys

import pytest

from torchwheel.compilers import pretended_gpu

pytestmark = pytest.mark.integration

ASK = """
import json
from torch.cuda import get_device_capability as first, is_available
import torch
count = torch.cuda.device_count()
each = [torch.cuda.get_device_capability(i) for i in range(count)]
print(json.dumps([is_available(), first() if count else None, each]))
"""


def test_torch_itself_calls_it_in_the_environment_of_a_build(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    pretended_gpu.install(tmp_path)

    def ask(**environ: str) -> list[object]:
        variables = {**os.environ, "TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX", **environ}
        command = [sys.executable, "-c", ASK]
        done = subprocess.run(command, env=variables, capture_output=True, check=True, text=True)
        return json.loads(done.stdout)

    none = ask(PYTHONPATH="")
    assert ask(PYTHONPATH=str(tmp_path)) == [True, [9, 0], [[9, 0], [8, 0]]]
    off = ask(PYTHONPATH=str(tmp_path), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert off == none != [True, [9, 0], [[9, 0], [8, 0]]]
