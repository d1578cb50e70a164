import pytest

from torchwheel.console import Quiet
from torchwheel.errors import UsageError
from torchwheel.smoke.compat import CompatRow, compat, compat_text
from wheelmaker import make_wheel


def test_a_wheel_that_goes_with_none_is_a_wrong_call(tmp_path):
    wheel = make_wheel(tmp_path, requires=["torch==2.6.*"])
    with pytest.raises(UsageError, match=r"goes with none of torch 2\.11\.0, 2\.12\.0"):
        compat(
            wheel,
            ["2.11.0", "2.12.0"],
            tests=tmp_path,
            requires=(),
            record=tmp_path / "record.json",
            progress=Quiet(),
        )
    assert not (tmp_path / "record.json").exists()


def test_a_torch_that_cannot_be_had_is_a_row():
    row = CompatRow("2.99.0", error="cannot install torch==2.99.0")
    assert not row.ok
    assert "2.99.0" in compat_text([row]).splitlines()[1]
