"""The quick starts of README.md, run as they stand in a copy of the tree."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import python_path
from foreign_project import write_foreign_project
from mutate import copy_tree

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
TORCHWHEEL = """\
#!/bin/sh
PYTHONPATH={pkg} exec {python} -m torchwheel "$@"
"""


def blocks(heading: str) -> list[str]:
    """The blocks below a heading: commands, and what they print."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```\w*\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The variables of somebody with a new virtual environment and an editor."""
    folder = tmp_path_factory.mktemp("reader")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    binaries = folder / "venv" / "bin"
    editor = binaries / "editor"
    editor.write_text('#!/bin/sh\necho "// edited" >>"$1"\n')
    editor.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "EDITOR": str(editor)}


def run(script: str, folder: Path, environment: dict[str, str]) -> str:
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def test_install(tmp_path, environment):
    copy_tree(tmp_path)
    script, printed = blocks("Install")
    assert len(script.splitlines()) == 5
    said = run(script, tmp_path, environment)
    assert printed in said
    assert " fusedops 1.0.0: " in said


def test_ship(tmp_path, environment):
    """All but the build, which needs an image: tests/containers has it."""
    (script,) = blocks("Ship your extension")
    lines = script.replace("/path/to/this/checkout", str(ROOT)).splitlines()
    assert len(lines) == 5
    foreign = write_foreign_project(tmp_path / "foreign")
    run("\n".join(lines[:2]), foreign, environment)
    variant = lines[3].split()[-1].strip("'")
    assert f"\n{variant} " in run(lines[2], foreign, environment)
    assert variant in run(f"{lines[3]} --show", foreign, environment)


def test_write(tmp_path, environment):
    (script,) = blocks("Write a kernel")
    *lines, index = script.splitlines()
    assert (len(lines), index.split("#")[0].strip()) == (4, "nox -s index")
    torchwheel = Path(environment["EDITOR"]).with_name("torchwheel")
    if not torchwheel.exists():
        torchwheel.write_text(TORCHWHEEL.format(pkg=python_path(), python=sys.executable))
        torchwheel.chmod(0o755)
    said = run("\n".join(lines), tmp_path, environment)
    assert said.count("\nuniversal ") == 2
    made = [path.name for path in (tmp_path / "my-kernels" / "dist").glob("*.whl")]
    assert [name for name in made if "-py3-none-manylinux" in name]
