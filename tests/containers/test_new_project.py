"""What `torchwheel new` writes, compiled as the jobs of its release do."""

import sys

import pytest

pytestmark = pytest.mark.containers


@pytest.fixture(scope="module")
def command():
    return [sys.executable, "-m", "torchwheel"]


@pytest.mark.nightly
def test_the_kernels_of_a_new_project_are_compiled_twice(base, torchwheel, tmp_path):
    assert base
    torchwheel("new", "my-kernels", cwd=tmp_path)
    folder = tmp_path / "my-kernels"
    matrix = folder / "matrix.yaml"
    text = matrix.read_text()
    matrix.write_text(text.replace('"8.0", "8.6", "8.9", "9.0", "10.0", ', ""))
    done = torchwheel("kernels", "--container", "--twice", "cu130", cwd=folder)
    assert done.stdout.startswith("compiled ")
