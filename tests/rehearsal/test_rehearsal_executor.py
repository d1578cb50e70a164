"""The executor does what the forge does, also where that breaks a release."""

import time

import pytest

from rehearsal.forge import RequestFault
from rehearsal.runs import Event, Lost
from rehearsal.toy import ATTEST, DEPLOY, DOWNLOAD, PACK, UPLOAD, toy
from rehearsal.workflow import WorkflowError

PATH = ".github/workflows/w.yml"


def steps(*lines):
    """Steps of a job, each one line of YAML."""
    return "".join(f"      - {line}\n" for line in lines)


def workflow(jobs, on="push", top="permissions: {}"):
    text = "".join(f"  {name}:\n    runs-on: x\n{body}" for name, body in jobs.items())
    return {PATH: f"on: {on}\n{top}\njobs:\n{text}"}


def upload(name="a", extra=""):
    return f"{{uses: '{UPLOAD}', with: {{name: '{name}', path: f{extra}}}}}"


def test_outputs_and_matrices_reach_the_jobs_that_need_them(tmp_path):
    plan = "    outputs: {rows: '${{ steps.s.outputs.rows }}'}\n    steps:\n" + steps(
        '{id: s, env: {ROWS: \'{"include":[{"v":"x"},{"v":"y"}]}\'}, '
        'run: \'echo "rows=$ROWS" >> "$GITHUB_OUTPUT"\'}'
    )
    build = (
        "    needs: plan\n    strategy: {matrix: '${{ fromJSON(needs.plan.outputs.rows) }}'}\n"
        "    steps:\n" + steps("{env: {V: '${{ matrix.v }}'}, run: 'test \"$V\" = x'}")
    )
    after = "    needs: build\n    steps:\n" + steps("{run: 'true'}")
    with toy(tmp_path, workflow({"plan": plan, "build": build, "after": after})) as (run, event):
        done = run.start(PATH, event)
    assert {key: result.conclusion for key, result in done.results.items()} == {
        "plan": "success",
        "build[x]": "success",
        "build[y]": "failure",
        "after": "skipped",
    }


def test_each_job_begins_with_nothing_of_another(tmp_path):
    one = "    steps:\n" + steps("{run: 'echo x > f; echo y > \"$HOME/g\"'}")
    two = "    needs: one\n    steps:\n" + steps("{run: 'test ! -e f && test ! -e \"$HOME/g\"'}")
    with toy(tmp_path, workflow({"one": one, "two": two})) as (run, event):
        assert run.start(PATH, event).ok


@pytest.mark.parametrize(
    ("permissions", "ok"),
    [
        ("{}", False),
        ("{id-token: write}", False),
        ("{attestations: write}", False),
        ("{id-token: write, attestations: write}", True),
    ],
)
def test_a_step_needs_the_permission_of_its_job(tmp_path, permissions, ok):
    pytest.importorskip("cryptography")
    job = f"    permissions: {permissions}\n    steps:\n" + steps(
        "{run: 'echo x > f'}", f"{{uses: '{ATTEST}', with: {{subject-path: f}}}}"
    )
    with toy(tmp_path, workflow({"job": job})) as (run, event):
        assert run.start(PATH, event).ok == ok


def test_a_pull_request_signs_nothing_and_has_no_inputs(tmp_path):
    pytest.importorskip("cryptography")
    job = "    permissions: {id-token: write, attestations: write}\n    steps:\n" + steps(
        "{run: 'echo x > f'}",
        "{env: {X: '${{ inputs.x }}'}, run: 'test -z \"$X\"'}",
        f"{{id: a, uses: '{ATTEST}', with: {{subject-path: f}}}}",
    )
    on = "{pull_request: , workflow_dispatch: {inputs: {x: {default: x}}}}"
    said = []
    with toy(tmp_path, workflow({"job": job}, on)) as (run, event):
        run.say = said.append
        assert not run.start(PATH, Event("pull_request", "refs/pull/1/merge", event.sha)).ok
    assert "403: Resource not accessible by integration: id-token: write" in "".join(said)
    assert [entry.conclusion for entry in run.log] == ["success", "success", "failure"]


def test_a_called_workflow_has_no_more_permissions_than_its_caller(tmp_path):
    files = workflow(
        {"job": "    permissions: {id-token: write}\n    steps: []\n"}, "workflow_call"
    )
    files[".github/workflows/called.yml"] = files.pop(PATH)
    caller = "on: push\npermissions: {contents: read}\njobs:\n  call:\n    uses: $/"
    files[PATH] = f"{caller}.github/workflows/called.yml\n"
    with (
        toy(tmp_path, files) as (run, event),
        pytest.raises(WorkflowError, match="requests id-token: write"),
    ):
        run.start(PATH, event)


def test_a_dry_run_skips_what_only_a_tag_does_and_what_needs_it(tmp_path):
    jobs = {
        "a": "    steps: []\n",
        "b": "    needs: a\n    if: github.event_name == 'push'\n    steps: []\n",
        "c": "    needs: b\n    steps: []\n",
    }
    with toy(tmp_path, workflow(jobs, "[push, workflow_dispatch]")) as (run, event):
        done = run.start(PATH, Event("workflow_dispatch", "refs/heads/main", event.sha))
    assert [result.conclusion for result in done.results.values()] == [
        *("success", "skipped", "skipped")
    ]


def failing_once(tmp_path, *before):
    """Steps of which the last fails at the first attempt alone."""
    once = f"{{run: 'test -e {tmp_path}/again || {{ touch {tmp_path}/again; false; }}'}}"
    return steps("{run: 'echo x > f'}", *before, once.replace("'", '"'))


@pytest.mark.parametrize(("extra", "ok"), [("", False), (", overwrite: true", True)])
def test_an_upload_without_overwrite_fails_when_its_job_runs_again(tmp_path, extra, ok):
    job = "    steps:\n" + failing_once(tmp_path, upload(extra=extra))
    with toy(tmp_path / "r", workflow({"job": job})) as (run, event):
        done = run.start(PATH, event)
        assert not done.ok
        run.again(done)
    assert done.ok == ok


PAGES = "    permissions: {pages: write, id-token: write}\n"


@pytest.mark.parametrize("by_attempt", [False, True])
def test_a_pack_beside_its_deployment_fails_when_the_job_runs_again(tmp_path, by_attempt):
    name = "p-${{ github.run_attempt }}" if by_attempt else "github-pages"
    job = f"{PAGES}    steps:\n" + steps(
        "{run: 'mkdir f; echo x > f/index.html'}",
        f"{{uses: '{PACK}', with: {{path: f, name: '{name}'}}}}",
        f"{{uses: '{DEPLOY}', with: {{artifact_name: '{name}'}}}}",
    )
    said = []
    with toy(tmp_path, workflow({"job": job})) as (run, event):
        run.say = said.append
        run.forge.same_name = "both"
        run.forge.faults.append(RequestFault("500", "POST /pages", 3))
        done = run.start(PATH, event)
        assert not done.ok
        run.again(done)
    assert done.ok == by_attempt
    assert ("Multiple artifacts" in "".join(said)) != by_attempt


@pytest.mark.parametrize("ref", ["refs/tags/v1.0.0", "refs/heads/main"])
def test_the_environment_of_pages_admits_the_default_branch_alone(tmp_path, ref):
    job = "    environment: {name: github-pages}\n    steps: []\n"
    with toy(tmp_path, workflow({"job": job})) as (run, event):
        done = run.start(PATH, Event("push", ref, event.sha))
    assert done.ok == ref.startswith("refs/heads/")


@pytest.mark.parametrize(
    "lost",
    [
        Lost("job", "work"),
        Lost("job", "work", seconds=0.2),
        Lost("job", "keep", request="POST /artifacts"),
    ],
)
def test_a_job_whose_runner_is_lost_runs_again_and_only_that_job(tmp_path, lost):
    first = "    steps:\n" + steps("{run: 'true'}")
    job = "    needs: first\n    steps:\n" + steps(
        "{name: work, run: 'sleep 0.5; echo x > f'}",
        f"{{name: keep, uses: '{UPLOAD}', with: {{name: a, path: f, overwrite: true}}}}",
    )
    after = "    needs: job\n    steps:\n" + steps(
        f"{{uses: '{DOWNLOAD}', with: {{name: a, path: got}}}}", "{run: 'test -s got/f'}"
    )
    with toy(tmp_path, workflow({"first": first, "job": job, "after": after})) as (run, event):
        run.lost.append(lost)
        done = run.start(PATH, event)
        assert [r.conclusion for r in done.results.values()] == ["success", "failure", "skipped"]
        run.again(done)
    assert done.ok
    assert len([entry for entry in run.log if entry.job == "first"]) == 1


@pytest.mark.parametrize("kind", ["500", "cut", "lost"])
def test_an_action_repeats_a_request_that_the_server_failed(tmp_path, kind):
    job = "    steps:\n" + steps("{run: 'echo x > f'}", upload(extra=", overwrite: true"))
    with toy(tmp_path, workflow({"job": job})) as (run, event):
        run.forge.faults.append(RequestFault(kind, "POST /artifacts"))
        assert run.start(PATH, event).ok
        assert len(run.forge.artifacts) == 1


def test_an_artifact_with_a_changed_byte_is_refused(tmp_path):
    job = "    steps:\n" + steps(
        "{run: 'echo x > f'}", upload(), f"{{uses: '{DOWNLOAD}', with: {{name: a, path: got}}}}"
    )
    with toy(tmp_path, workflow({"job": job})) as (run, event):
        run.forge.faults.append(RequestFault("flip", r"GET /artifacts/\d"))
        assert not run.start(PATH, event).ok


NUMBER = "artifact-ids: '${{ needs.first.outputs.n }}'"


@pytest.mark.parametrize(
    ("by", "content", "ok"),
    [(NUMBER, "mine", True), ("name: a", "mine", True), ("name: a", "evil", True)]
    + [(NUMBER, "evil", False)],
)
def test_another_artifact_of_a_name_has_another_number(tmp_path, by, content, ok):
    """Any job of a run may put its own in the place of another's, whose name it then has."""
    keep = upload(extra=", overwrite: true")
    first = "    outputs: {n: '${{ steps.k.outputs.artifact-id }}'}\n    steps:\n" + steps(
        "{run: 'echo mine > f'}", keep.replace("{uses", "{id: k, uses")
    )
    replaced = ["{run: 'echo evil > f'}", keep] if content == "evil" else ["{run: 'true'}"]
    other = "    needs: first\n    steps:\n" + steps(*replaced)
    last = "    needs: [first, other]\n    steps:\n" + steps(
        f"{{uses: '{DOWNLOAD}', with: {{{by}, path: got}}}}", f"{{run: 'grep {content} got/f'}}"
    )
    with toy(tmp_path, workflow({"first": first, "other": other, "last": last})) as (run, event):
        assert run.start(PATH, event).failed == ([] if ok else ["last"])


@pytest.mark.parametrize("ahead", [3600, -3600])
def test_a_runner_may_have_another_clock_than_this_machine(tmp_path, ahead):
    steps_ = "    steps:\n" + steps(
        "{run: 'python3 -c \"import time; print(time.time())\" > ../now; date +%s >> ../now'}"
    )
    with toy(tmp_path, workflow({"job": steps_})) as (run, event):
        run.clocks["job"] = ahead
        assert run.start(PATH, event).ok
    (file,) = tmp_path.glob("runner-1/work/toy/now")
    for seconds in map(float, file.read_text().split()):
        assert seconds == pytest.approx(time.time() + ahead, abs=60)


def test_a_job_that_succeeded_runs_again_if_it_is_asked_for(tmp_path):
    job = "    steps:\n" + steps("{run: 'true'}")
    with toy(tmp_path, workflow({"one": job, "two": job})) as (run, event):
        done = run.start(PATH, event)
        run.again(done, ["two"])
    assert [entry.job for entry in run.log] == ["one", "two", "two"]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("out", "in/a.txt"),
        ("out/*", "in/a.txt"),
        ("out/in/a.txt", "a.txt"),
        ("|\n            out/*.json\n            out/in/*.txt\n", "in/a.txt"),
    ],
)
def test_an_artifact_has_names_below_what_was_asked_for(tmp_path, path, names):
    first = "    steps:\n" + steps("{run: 'mkdir -p out/in && echo x > out/in/a.txt'}")
    first += f"      - uses: {UPLOAD}\n        with:\n          name: a\n          path: {path}\n"
    after = "    needs: first\n    steps:\n" + steps(
        f"{{uses: '{DOWNLOAD}', with: {{name: a, path: got}}}}", f"{{run: 'test -s got/{names}'}}"
    )
    with toy(tmp_path, workflow({"first": first, "after": after})) as (run, event):
        assert run.start(PATH, event).ok
