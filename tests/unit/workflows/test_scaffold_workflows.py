"""What `torchwheel new` writes for CI holds the same rules as our own workflows."""

import re

import check_order
import check_references
import check_runs
import check_uses
import pytest
from workflow_files import ROOT, Files, jobs, steps

from torchwheel.scaffold.new import render_project

WHEELS, INDEX = (f".github/workflows/{name}.yml" for name in ("wheels", "index"))
CHECKS = {
    check.__name__: check
    for check in (
        check_runs.every_variable_is_set,
        check_runs.no_failure_is_ignored,
        check_uses.every_use_is_pinned,
        check_uses.one_pin_for_each_action,
        check_references.references_exist,
        check_references.no_secrets,
        check_order.artifacts_come_first,
        check_order.jobs_can_run_again,
        check_order.pages_are_deployed_from_the_branch,
    )
}
INSTALL = "python -m pip install --require-hashes --requirement .github/requirements.txt"


@pytest.fixture(scope="module")
def project():
    return render_project("my-kernels", "my_kernels")


@pytest.fixture(scope="module")
def files(project):
    return Files({path: text for path, text in project.items() if path.endswith(".yml")})


@pytest.mark.parametrize("check", CHECKS)
def test_the_workflows_of_a_new_project_hold(files, check):
    assert list(CHECKS[check](files)) == []


def test_both_workflows_are_read(files):
    assert set(files.texts) == {WHEELS, INDEX}


def test_each_run_is_a_session_of_the_project_or_installs_nox_by_hash(files, project):
    runs = {
        step["run"]
        for document in files.workflows.values()
        for step in steps(document)
        if "run" in step
    }
    assert INSTALL in runs
    sessions = {re.match(r"nox -s (\S+)", run)[1] for run in runs - {INSTALL}}
    assert sessions <= set(re.findall(r"^def (\w+)\(session", project["noxfile.py"], re.MULTILINE))


def test_wheels_are_built_in_containers_and_released_by_a_tag_alone(files):
    every = jobs(files.workflows[WHEELS])
    assert any("--container" in step.get("run", "") for step in every["wheels"]["steps"])
    assert [name for name, job in every.items() if "if" in job] == ["attest"]
    for name in ("assets", "index"):
        assert "attest" in check_order._all_needs(every, name)
    assert set(files.workflows[WHEELS]["on"]) == {"push", "pull_request", "workflow_dispatch"}


def test_the_lock_of_nox_is_ours(project):
    ours = (ROOT / ".github" / "actions" / "nox" / "requirements.txt").read_text()
    assert project[".github/requirements.txt"] == ours


def test_sessions_that_are_not_of_torchwheel_are_ours(project):
    ours = (ROOT / "noxfile.py").read_text()
    for name in ("earlier", "evidence"):
        body = ours.partition(f"def {name}(")[2].partition("\n\n\n")[0]
        assert body in project["noxfile.py"], f"copy the session {name} anew"
