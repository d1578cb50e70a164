"""The forms in which a matrix is printed."""

import json
import re
from pathlib import Path

import pytest

from torchwheel.cli import main
from torchwheel.matrix.kernel_builds import compiled_variants, select_kernels
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.render import MatrixPlan, matrix_text
from torchwheel.matrix.sections import schema_text
from torchwheel.matrix.variants import resolve, select
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.shards import parse_shard

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
MATRICES = {"ours": ROOT / "matrix.yaml", "full": HERE / "full.yaml"}
OURS, FULL = map(load, MATRICES.values())
SUFFIXES = {"table": "txt", "json": "json", "github": "github.json", "kernels": "kernels.json"}


def text_of(form, names=("all",), shards=1, matrix=OURS):
    return matrix_text(MatrixPlan(matrix, select(matrix, names), shards, names), form)


def jobs_of(form, names=("all",), shards=1, matrix=OURS):
    made = json.loads(text_of(form, names, shards, matrix))
    if form == "gitlab":
        return {name: job for name, job in made.items() if name not in {"stages", "default"}}
    return made["include"]


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("form", SUFFIXES)
def test_golden(golden, monkeypatch, name, form):
    # The table is the same on every terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    text = text_of(form, matrix=load(MATRICES[name]))
    assert text == text_of(form, matrix=load(MATRICES[name]))
    golden(f"{name}.{SUFFIXES[form]}", text)


def test_a_plan_without_kernels_has_a_job_all_the_same():
    (nothing,) = jobs_of("kernels", ["pure"])
    assert nothing["kernels"] == "", "a strategy without jobs is refused"


@pytest.mark.parametrize("shards", [1, 3])
def test_a_job_downloads_exactly_the_kernels_that_its_variant_links(shards):
    for job in jobs_of("github", shards=shards):
        made = [one for one in jobs_of("kernels", [job["variant"]], shards) if one["kernels"]]
        pattern = job["kernels"].strip("{}")
        assert pattern.split(",") == [one["artifact"] for one in made] or not (made or pattern)
    names = [job["artifact"] for job in jobs_of("kernels", shards=shards)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/2/3", "a/b", "-1/2", "1/0", "", "1/1000"])
def test_what_is_no_shard(text):
    with pytest.raises(
        UsageError, match=r'^--shard: expected e.g. "2/3", the second of three, fou'
    ):
        parse_shard(text, "--shard")
    assert str(parse_shard("2/3", "--shard")) == "2/3"


def test_kernels_are_compiled_with_one_variant_for_each_torch_abi():
    with pytest.raises(UsageError, match=r'no toolkit "cu13" has kernels here; did you mean "cu13'):
        select_kernels(OURS, ["cu13"])
    (build,) = select_kernels(OURS, ["cu124"])
    assert [variant.id for variant in compiled_variants(OURS, build)] == [
        *("cu124-stable", "cu124-torch2.6-cp311", "cu124-torch2.8-cp311", "cu124-torch2.10-cp311"),
        "cu124-kernels",
    ]


def test_no_runners_and_too_many_jobs_are_one_line():
    variants = resolve(FULL)
    with pytest.raises(UsageError, match=r'no machine for cu124-stable: .* no section "runners"'):
        text_of("github", matrix=FULL.model_copy(update={"runners": {}}))
    with pytest.raises(UsageError, match="257 variants are more than GitHub's 256 jobs"):
        matrix_text(MatrixPlan(FULL, (variants[0],) * 257), "github")


def test_a_steps_output_is_appended(tmp_path, capsys):
    out = tmp_path / "output"
    out.write_text("other=1\n")
    call = ["matrix", "--matrix", str(MATRICES["full"]), "default", "--output"]
    assert main([*call, str(out), "--github"]) == 0
    printed = capsys.readouterr().out
    kernels = text_of("kernels", ["default"], matrix=FULL)
    assert out.read_text() == f"other=1\nmatrix={printed}kernels={kernels}"
    assert main([*call, str(tmp_path / "no" / "folder"), "--github"]) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err
    assert main([*call, str(out)]) == 2
    assert "--output goes with --github" in capsys.readouterr().err


def test_the_committed_schema_is_fresh(golden):
    golden(ROOT / "docs" / "matrix.schema.json", schema_text())


@pytest.mark.parametrize("name", MATRICES)
def test_the_schema_takes_what_the_model_takes(name):
    jsonschema = pytest.importorskip("jsonschema")
    yaml = pytest.importorskip("yaml")
    data = yaml.safe_load(MATRICES[name].read_text())
    validator = jsonschema.Draft202012Validator(json.loads(schema_text()))
    validator.validate(data)
    data["toolkits"]["cu130"]["archs"] = ["9.x"]
    assert not validator.is_valid(data)


# The child pipeline of GitLab's; `nox -s workflows` holds the golden file to GitLab's schema.


def in_shards(shards):
    """A project with a build of its own, whose variants are compiled by so many jobs."""
    more = "runners: {linux_x86_64: {build: [ubuntu-24.04]}}\n"
    text = (HERE / "ordinary.yaml").read_text()
    matrix = parse(text.replace("  archs_by", f"  shards: {shards}\n  archs_by") + more, "m")
    return text_of("gitlab", ["*-cp312"], matrix=matrix)


def test_the_pipelines_of_a_release_and_of_a_project_in_shards(golden):
    golden("gitlab.json", text_of("gitlab", ["release"]))
    golden("gitlab-shards.json", in_shards(3))
    assert '"kernels-' not in in_shards(1)
    assert in_shards(50)
    with pytest.raises(UsageError, match=r"^cu124-torch2.6-cp312: is linked from 51 jobs; expec"):
        in_shards(51)


def test_each_variant_is_built_from_its_kernels_and_tried():
    made = jobs_of("gitlab", ["release"], shards=2)
    for variant in select(OURS, ["release"]):
        build, smoke = made[f"wheel-{variant.id}"], made[f"smoke-{variant.id}"]
        assert smoke["needs"] == [f"wheel-{variant.id}"]
        assert ("--kernels-only" in build["script"][0]) == bool(build["needs"])
        assert bool(build["needs"]) == variant.native
        assert all(made[name]["stage"] == "kernels" for name in build["needs"])
        assert all(name.endswith(("-1of2", "-2of2")) for name in build["needs"])


def test_a_script_is_a_nox_session_and_takes_data_by_variables_alone():
    for job in jobs_of("gitlab", ["release"]).values():
        (script,) = job["script"]
        assert re.match(r"nox -s (kernels|wheels|smoke|assemble) -- ", script)
        used = set(re.findall(r"\$([A-Z_0-9]+)", script))
        assert used == set(job["variables"])
