"""The smoke tests, on the GPU of this machine, where the installed package has kernels.

They live in tests/smoke because a release runs them on finished wheels; here they run as part of
the suite, in a process of their own, so that they see the installed package and not this tree.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SMOKE = Path(__file__).resolve().parents[1] / "smoke"


@pytest.mark.gpu
def test_smoke_on_this_gpu(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(SMOKE)]
    options = ["-c", str(tmp_path / "pytest.ini"), "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, *options], cwd=tmp_path, check=False)
    assert done.returncode == 0
