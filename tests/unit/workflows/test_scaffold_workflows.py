"""What `torchwheel new` and `adopt` write for CI holds the same rules as our own workflows."""

import re

import check_order
import check_references
import check_runs
import check_uses
import pytest
from workflow_files import ROOT, Files, jobs, steps

from torchwheel.scaffold.templates import render_templates

RELEASE = ".github/workflows/release.yml"
CHECKS = {
    check.__name__: check
    for check in (
        check_runs.every_variable_is_set,
        check_runs.no_failure_is_ignored,
        check_runs.pull_requests_reach_hosted_machines,
        check_uses.every_use_is_pinned,
        check_uses.one_pin_for_each_action,
        check_references.references_exist,
        check_references.no_secrets,
        check_order.artifacts_come_first,
        check_order.release_is_handed_over,
        check_order.jobs_can_run_again,
        check_order.records_are_dated,
        check_order.pages_are_deployed_from_the_branch,
    )
}
# What is the same in every project, byte for byte.
COPIES = (
    ".github/workflows/wheels.yml",
    ".github/workflows/smoke.yml",
    ".github/workflows/index.yml",
    ".github/actions/nox/action.yml",
    ".github/actions/nox/requirements.txt",
)


@pytest.fixture(scope="module")
def project():
    values = {"project": "my-kernels", "package": "my_kernels", "first_session": "matrix"}
    return render_templates("shared", values)


@pytest.fixture(scope="module")
def files(project):
    return Files({path: text for path, text in project.items() if path.endswith(".yml")})


@pytest.mark.parametrize("check", CHECKS)
def test_the_workflows_of_a_project_hold(files, check):
    assert list(CHECKS[check](files)) == []


@pytest.mark.parametrize("path", COPIES)
def test_reusable_workflows_and_the_action_are_ours(project, path):
    assert project[path] == (ROOT / path).read_text(), f"copy {path} anew"


def without(text, job):
    """A workflow without one of its jobs."""
    return re.sub(rf"(?ms)^  {job}:\n.*?(?=^  \w+:\n|\Z)", "", text)


def test_the_release_is_ours_without_our_tests_and_pypi(project):
    ours = without(without((ROOT / RELEASE).read_text(), "ci"), "pypi")
    ours = ours.replace("needs: [ci, wheels, smoke]", "needs: [wheels, smoke]")
    # Where nothing is uploaded to PyPI, nothing is looked for there.
    ours = ours.replace("attest, pypi]", "attest, index]").replace(" --pypi", "")
    assert project[RELEASE] == ours, f"copy {RELEASE} anew"


def test_each_run_is_a_session_of_the_project(files, project):
    runs = {
        step["run"]
        for document in files.workflows.values()
        for step in steps(document)
        if "run" in step
    }
    runs = {run for run in runs if not run.startswith("python -m pip install --require-hashes")}
    sessions = {re.match(r"nox -s (\S+)", run)[1] for run in runs}
    assert len(sessions) > 9
    assert sessions <= set(re.findall(r"^def (\w+)\(session", project["noxfile.py"], re.MULTILINE))


def test_what_is_published_was_assembled_and_only_a_tag_publishes(files):
    every = jobs(files.workflows[RELEASE])
    assert {"wheels", "smoke", "assemble", "attest", "assets", "index", "published"} == set(every)
    assert [name for name, job in every.items() if "if" in job] == ["attest"]
    for name in ("assets", "index", "published"):
        assert "attest" in check_order._all_needs(every, name)


def test_sessions_that_are_not_of_torchwheel_are_ours(project):
    ours = (ROOT / "noxfile.py").read_text()
    for name in ("earlier", "evidence"):
        body = ours.partition(f"def {name}(")[2].partition("\n\n\n")[0]
        assert body in project["noxfile.py"], f"copy the session {name} anew"
