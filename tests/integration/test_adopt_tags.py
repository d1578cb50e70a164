"""The tag that `torchwheel adopt` reads of a project is the one that setuptools gives its wheel.

Where code decides the tag, it asks a person.
"""

import subprocess
import sys

import pytest

from foreign_project import CODE, TAG_FORMS, write_tagged_project
from torchwheel.scaffold.foreign import read_project

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("form", TAG_FORMS)
def test_the_wheel_has_the_tag(tmp_path, form):
    expected = write_tagged_project(tmp_path, form)
    command = [sys.executable, "setup.py", "--quiet", "bdist_wheel"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").iterdir()
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    tags = {"": f"{own}-{own}", "py3": "py3-none"}
    assert "-".join(wheel.name.split("-")[2:4]) == tags.get(expected, f"{expected}-abi3")
    project = read_project(tmp_path)
    if form in CODE:
        assert any("code decides the tag of a wheel" in one for one in project.todo)
        return
    oldest = project.declared.tag.oldest.replace(".", "")
    read = {"each": "", "abi3": f"cp{oldest}", "any": "py3"}[project.declared.tag.python]
    assert read == expected
