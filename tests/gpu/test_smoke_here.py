"""The built wheel on the GPU of this machine, as a release would try it: nox -s wheels makes it."""

from pathlib import Path

import pytest

from torchwheel.smoke.requirements import bundled_with
from torchwheel.smoke.testing import Trial, smoke
from torchwheel_runtime.console import Quiet

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.gpu
def test_the_built_wheel_on_this_gpu(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    backend = "rocm" if torch.version.hip else "cu"
    wheels = sorted((ROOT / "dist").glob(f"fusedops-*+{backend}*-py3-none-*.whl"))
    if not wheels:
        pytest.skip(f"no {backend} wheel in dist/: run `nox -s wheels` first")
    record = smoke(
        wheels[-1],
        Trial(ROOT / "tests" / "smoke", requires=()),
        bundled=bundled_with(wheels[-1]),
        here=True,
        record=tmp_path / "record.json",
        cache=tmp_path,
        progress=Quiet(),
    )
    assert record.verdict == "passed", record.why
