"""docs/ci.md from fork to first release, as far as no forge is needed; the rest is rehearsed."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from torchwheel.matrix.load import load

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


@pytest.fixture
def fork(tmp_path):
    """The files of this repository that the page has one edit."""
    for name in ("matrix.yaml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (".github", "pkg"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("build"))
    return tmp_path


def steps(heading: str) -> list[str]:
    """The numbered steps below a heading of the page."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]


def entries(folder: Path) -> list[dict[str, object]]:
    """The release's jobs, as the workflow asks for them."""
    command = [sys.executable, "-m", "torchwheel.cli", "matrix", "--github", "release"]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT / "pkg"), "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)["include"]


def test_a_gpu_that_nobody_has_is_one_line_less(fork):
    assert "Remove the line of a GPU that you do not have" in steps("Set up a fork")[0]
    assert any("rocm" in entry["smoke_runner"] for entry in entries(fork))
    matrix = fork / "matrix.yaml"
    lines = matrix.read_text(encoding="utf-8").splitlines(keepends=True)
    removed = [line for line in lines if re.match(r" +(cuda|rocm): +\[self-hosted", line)]
    assert len(removed) == 2
    matrix.write_text("".join(line for line in lines if line not in removed), encoding="utf-8")
    after = entries(fork)
    # No job waits for a runner that is not there, and no variant is lost.
    assert {label for entry in after for label in entry["smoke_runner"]} <= {
        *("ubuntu-24.04", "ubuntu-24.04-arm"),
    }
    assert [entry["variant"] for entry in after] == [e["variant"] for e in entries(ROOT)]
    load(matrix)


def test_the_pages_and_environments_of_the_steps_are_those_of_the_workflows(fork):
    _, pages, pypi, who, branch = steps("Set up a fork")
    workflows = {
        path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (fork / ".github" / "workflows").glob("*.yml")
    }
    jobs = [job for workflow in workflows.values() for job in workflow["jobs"].values()]
    environments = {
        one["name"] if isinstance(one, dict) else one
        for job in jobs
        if (one := job.get("environment"))
    }
    # The publisher and the reviewers are of these environments, and of no other.
    assert environments == set(re.findall(r"`([a-z-]+)`", who)) - {"v*"}
    assert "environment `pypi`" in " ".join(pypi.split())
    assert workflows["release.yml"]["jobs"]["pypi"]["environment"]
    assert "GitHub Actions" in pages
    assert any(
        "deploy-pages" in step.get("uses", "") for job in jobs for step in job.get("steps", ())
    )
    # Another name of the branch changes ci.yml alone.
    (named,) = re.findall(r"change `(\w+\.yml)`", branch)
    text = {name: str(workflow.get(True, "")) for name, workflow in workflows.items()}
    assert [name for name, triggers in text.items() if "'branches'" in triggers] == [named]


def test_the_version_of_the_tag_is_in_one_place(fork):
    assert "Set the version in `pyproject.toml`" in steps("Release")[0]
    pyproject = fork / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    assert len(re.findall(r"^version = ", text, flags=re.MULTILINE)) == 1
    version = re.search(r'^version = "(.+)"', text, flags=re.MULTILINE)[1]
    others = subprocess.run(
        ["git", "grep", "-l", "-F", f'"{version}"', "--", "*.py", "*.yaml", "*.yml"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert not [name for name in others if not name.startswith(("tests/", "pkg/torchwheel/"))]
