"""The list of torch's C symbols, and the command that makes it."""

from pathlib import Path

import pytest

from torchwheel.check import torch_symbols
from torchwheel.errors import UsageError


def test_the_committed_list() -> None:
    table = torch_symbols.symbols_by_release()["2.11"]
    assert "aoti_torch_get_current_cuda_stream" in table["libtorch_cuda.so"]
    assert "aoti_torch_get_current_cuda_stream" not in table["libtorch_cpu.so"]
    assert {"torch_call_dispatcher", "torch_library_impl"} <= table["libtorch_cpu.so"]
    names = [name for library in table.values() for name in library]
    assert all(name.startswith(("torch_", "aoti_torch_")) for name in names)


def test_another_wheel_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a wheel of torch expected, got numpy"):
        torch_symbols.read_torch_wheel(Path("numpy-2.0.0-py3-none-any.whl"))


def test_a_wheel_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert torch_symbols.main(["torch-2.11.0-py3-none-any.whl"]) == 1
    assert "no such file" in capsys.readouterr().err
    assert torch_symbols.main([]) == 2
