"""Two builds of a variant must give the same bytes; the error names the first difference."""

import pytest

from torchwheel.pipeline.variant import check_same_bytes
from torchwheel_runtime.errors import TorchwheelError
from wheelmaker import make_wheel

SOURCE = {"demo/__init__.py": b"answer = 42\n"}


@pytest.fixture
def first(tmp_path):
    return make_wheel(tmp_path / "first", files=SOURCE)


def test_the_same_bytes_pass(first, tmp_path):
    check_same_bytes(first, make_wheel(tmp_path / "second", files=SOURCE))


@pytest.mark.parametrize(
    ("files", "version", "error"),
    [
        ({"demo/__init__.py": b"answer = 43\n"}, "1.0.0", "demo/__init__.py differs between two"),
        ({**SOURCE, "demo/more.py": b""}, "1.0.0", "demo/more.py is in one of two builds of"),
        (SOURCE, "1.0.1", "the second build is named demo-1.0.1"),
    ],
)
def test_the_first_difference_is_named(first, tmp_path, files, version, error):
    second = make_wheel(tmp_path / "second", version=version, files=files)
    with pytest.raises(TorchwheelError, match=f"not reproducible: {error}"):
        check_same_bytes(first, second)


def test_the_same_files_packed_otherwise_are_not_the_same(first, tmp_path):
    second = tmp_path / first.name
    second.write_bytes(first.read_bytes() + b"\0")
    with pytest.raises(TorchwheelError, match="pack the same files differently"):
        check_same_bytes(first, second)
