"""docs/adopt.md, followed to the letter on a foreign tree with the torchwheel that it carries.

And the tag that `torchwheel adopt` reads of a project is the one that setuptools gives its wheel;
where code decides it, a person is asked.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from checkout import python_path
from foreign_project import CODE, TAG_FORMS, write_foreign_project, write_tagged_project
from torchwheel.scaffold.foreign import read_project
from torchwheel_runtime.files import sha256

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
# The documented commands are run as they stand; torchwheel is the one of this tree.
SCRIPT = """\
#!/bin/sh
PYTHONPATH={pkg} exec {python} -m torchwheel "$@"
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The variables of somebody who has torchwheel, and a pip of their own."""
    folder = tmp_path_factory.mktemp("author")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    binaries = folder / "venv" / "bin"
    script = binaries / "torchwheel"
    script.write_text(SCRIPT.format(pkg=python_path(), python=sys.executable))
    script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}


def commands(heading: str) -> list[str]:
    """The commands of the first block below a heading of docs/adopt.md."""
    text = (ROOT / "docs" / "adopt.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2]
    block = re.search(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert block is not None
    return block[1].splitlines()


def run(command: str, folder: Path, environment: dict[str, str], status: int = 0) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def next_commands(said: str) -> list[str]:
    """What adopt prints as the next steps, without `cd`."""
    lines = [line.strip() for line in said.partition("Next:\n")[2].splitlines()]
    return [line for line in lines if not line.startswith("cd ")]


def test_an_adopted_tree_shows_its_matrix_at_once(tmp_path, environment):
    foreign = write_foreign_project(tmp_path / "foreign")
    adopt, matrix = commands("Adopt")
    # What is printed as the next step is what is documented.
    assert next_commands(run(adopt, foreign, environment))[0] == matrix
    assert re.search(r"^cu130-torch\S+-cp312 ", run(matrix, foreign, environment), re.MULTILINE)


@pytest.mark.nightly
def test_a_tree_that_carries_torchwheel_installs_it_by_its_hash(tmp_path, environment):
    foreign = write_foreign_project(tmp_path / "foreign")
    adopt, *others = commands("Carry torchwheel")
    assert next_commands(run(adopt, foreign, environment)) == others
    # The hashed line leaves the user's environment as it is.
    before = run("pip freeze --all", foreign, environment)
    for command in others:
        said = run(command, foreign, environment)
    assert run("pip freeze --all", foreign, environment) == before
    assert re.search(r"^cu130-torch\S+-cp312 ", said, re.MULTILINE)
    # What the session runs is the torchwheel in the tree: a file, by its hash.
    (carried,) = (foreign / ".torchwheel").glob("torchwheel-*.whl")
    (origin,) = (foreign / ".nox" / "matrix").rglob("torchwheel-*.dist-info/direct_url.json")
    installed = json.loads(origin.read_text())
    assert installed["url"] == carried.as_uri()
    assert installed["archive_info"]["hashes"] == {"sha256": sha256(carried)}
    # Another wheel of that name is refused.
    carried.write_bytes(carried.read_bytes() + b"\0")
    lock = foreign / ".torchwheel" / "requirements.txt"
    lock.write_text(lock.read_text() + "\n")
    refused = run(others[-1], foreign, environment, status=1)
    assert "DO NOT MATCH THE HASHES" in refused


@pytest.mark.nightly
def test_a_called_workflow_runs_the_torchwheel_of_its_commit(tmp_path, environment):
    """The steps of the action `nox`, for a project that has a noxfile.py of its own."""
    foreign = write_foreign_project(tmp_path / "foreign")
    (foreign / "noxfile.py").write_text("raise SystemExit('the project runs in no job')\n")
    run("torchwheel adopt .", foreign, environment)
    commit, paths = tmp_path / "commit", tmp_path / "paths"
    for name in (".github/actions/nox", "pkg/torchwheel", "pkg/torchwheel_runtime"):
        ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT / name, commit / name, ignore=ignored)
    shutil.copy(ROOT / "noxfile.py", commit)
    action = commit / ".github" / "actions" / "nox"
    own = {
        **{"GITHUB_ACTION_PATH": str(action), "GITHUB_PATH": str(paths)},
        **{"RUNNER_TEMP": str(tmp_path), "GITHUB_REPOSITORY": "me/foreign"},
    }
    run("python -m venv nox", tmp_path, environment)
    path = f"{tmp_path}/nox/bin:{environment['PATH']}"
    job = {**environment, **own, "PATH": path}
    steps = yaml.safe_load((action / "action.yml").read_text())["runs"]["steps"]
    for step in steps[1:]:
        run(step["run"], foreign, job)
    job["PATH"] = f"{paths.read_text().strip()}:{path}"
    said = run("nox -s matrix -- --github pull-request", foreign, job)
    assert [one["abi"] for one in json.loads(said)["include"]] == ["aten"]
    (tmp_path / "bundle").write_text("signed")
    run(f"nox -s evidence -- {tmp_path}/bundle dist/evidence/a.sigstore.json", foreign, job)
    assert (foreign / "dist" / "evidence" / "a.sigstore.json").read_text() == "signed"
    for package in ("torchwheel", "torchwheel_runtime"):
        (origin,) = (tmp_path / "torchwheel").rglob(f"{package}-*.dist-info/direct_url.json")
        assert json.loads(origin.read_text())["url"] == (commit / "pkg" / package).as_uri()


@pytest.mark.nightly
def test_a_new_project_is_installed_with_the_torchwheel_that_it_carries(tmp_path, environment):
    run("torchwheel new my-kernels", tmp_path, environment)
    folder = tmp_path / "my-kernels"
    # Without its requirements, torch among them: what is built with is the point here.
    run("pip install --no-deps --target site .", folder, environment)
    assert (folder / "site" / "my_kernels" / "extension.py").is_file()
    carried = list((folder / ".torchwheel").glob("*.whl"))
    backend = (folder / ".torchwheel" / "build_backend.py").read_text()
    # It builds with the run-time one alone.
    assert [one.name.split("-")[0] for one in carried if sha256(one) in backend] == [
        "torchwheel_runtime"
    ]


@pytest.mark.nightly
def test_the_readme_of_a_new_project_starts_with_commands_that_run(tmp_path, environment):
    """All but the build itself, which test_scaffold.py runs: the default session is `wheels`."""
    run("torchwheel new my-kernels", tmp_path, environment)
    folder = tmp_path / "my-kernels"
    block = re.search(r"^```bash\n(.*?)^```$", (folder / "README.md").read_text(), re.M | re.S)
    assert block is not None
    install, build = (line.partition("#")[0].strip() for line in block[1].splitlines())
    run(install, folder, environment)
    # Not the nox that runs these tests.
    assert run("command -v nox", folder, environment).startswith(environment["PATH"].split(":")[0])
    listed = run(f"{build} -l", folder, environment)
    assert re.search(r"^\* wheels ", listed, re.MULTILINE)
    assert re.search(
        r"^\S*universal ", run(f"{build} -s matrix", folder, environment), re.MULTILINE
    )


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
