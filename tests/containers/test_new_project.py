"""What `torchwheel new` writes, compiled as the jobs of its release do."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.containers


def test_the_kernels_of_a_new_project_are_compiled_twice(base, environ, tmp_path):
    assert base

    def torchwheel(folder, *arguments):
        command = [sys.executable, "-m", "torchwheel.cli", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    torchwheel(tmp_path, "new", "my-kernels")
    folder = tmp_path / "my-kernels"
    matrix = folder / "matrix.yaml"
    text = matrix.read_text()
    matrix.write_text(text.replace('"8.0", "8.6", "8.9", "9.0", "10.0", ', ""))
    assert torchwheel(folder, "kernels", "--container", "--twice", "cu130").startswith("compiled ")
