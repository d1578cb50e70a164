"""Calls of hipify that fail before torch has anything to do."""

import shutil
import sys
from pathlib import Path

import pytest

from torchwheel.builder.hipify import hipify
from torchwheel.errors import TorchwheelError, UsageError

PYTHON = Path(sys.executable)


@pytest.fixture
def project(tmp_path):
    return Path(shutil.copytree(Path(__file__).parent / "cuda_project", tmp_path / "project"))


@pytest.mark.parametrize(("file", "says"), [("csrc/no.cu", "not found"), ("../x.cu", "leaves")])
def test_a_source_that_is_not_there_is_one_line(project, tmp_path, file, says):
    (tmp_path / "x.cu").touch()
    with pytest.raises(TorchwheelError, match=says):
        hipify(project, [file], tmp_path / "out", python=PYTHON)
    assert not (tmp_path / "out").exists()


def test_a_python_without_torch_is_one_line(project, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {PYTHON} -S -I "$@"\n')
    python.chmod(0o755)
    with pytest.raises(TorchwheelError, match="No module named 'torch'"):
        hipify(project, ["csrc/scale.cu"], tmp_path / "out", python=python)
    with pytest.raises(TorchwheelError, match="does not start"):
        hipify(project, ["csrc/scale.cu"], tmp_path / "out", python=tmp_path / "nonesuch")


def test_no_source_outside_is_a_wrong_call(project, tmp_path):
    with pytest.raises(UsageError, match="a source to translate expected"):
        hipify(project, ["csrc"], tmp_path / "out", python=PYTHON)
