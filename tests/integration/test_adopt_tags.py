"""The tag that `torchwheel adopt` reads of a project is the one that setuptools gives its wheel."""

import subprocess
import sys

import pytest

from foreign_project import TAG_FORMS, write_tagged_project
from torchwheel.scaffold.foreign import read_project

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("form", TAG_FORMS)
def test_the_wheel_has_the_tag(tmp_path, form):
    write_tagged_project(tmp_path, form)
    command = [sys.executable, "setup.py", "--quiet", "bdist_wheel"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").iterdir()
    tag = read_project(tmp_path).tag
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    oldest = tag.oldest.replace(".", "")
    expected = {"each": f"{own}-{own}", "abi3": f"cp{oldest}-abi3", "any": "py3-none"}
    assert "-".join(wheel.name.split("-")[2:4]) == expected[tag.python]
