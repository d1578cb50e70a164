"""The forms in which a matrix is printed."""

import json
import re
from pathlib import Path

import pytest

from torchwheel.cli import main
from torchwheel.matrix.kernel_builds import compiled_variants, select_kernels
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.render import gitlab_text, matrix_text
from torchwheel.matrix.sections import schema_text
from torchwheel.matrix.variants import resolve, select
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.shards import parse_shard

ROOT = Path(__file__).parents[3]
MATRICES = {"ours": ROOT / "matrix.yaml", "full": Path(__file__).parent / "full.yaml"}
SUFFIXES = {
    "table": "txt",
    "json": "json",
    "github": "github.json",
    "kernels": "kernels.json",
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("form", SUFFIXES)
def test_golden(golden, name, form):
    matrix = load(MATRICES[name])
    text = matrix_text(matrix, resolve(matrix), form)
    assert text == matrix_text(load(MATRICES[name]), resolve(matrix), form)
    golden(f"{name}.{SUFFIXES[form]}", text)


@pytest.mark.parametrize("name", MATRICES)
def test_the_table_fits_a_terminal_and_is_plain(name, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    matrix = load(MATRICES[name])
    text = matrix_text(matrix, resolve(matrix), "table")
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "…" not in text
    for variant in resolve(matrix):
        assert f"\n{variant.id} " in text


def test_the_table_tells_what_is_left_out():
    matrix = load(MATRICES["full"])
    text = matrix_text(matrix, select(matrix, ["default"]), "table")
    assert f"\n2 of {len(resolve(matrix))} variants\n" in text
    assert "left out: cu130-torch2.9-cp310 (nobody asked for it)" in text


def jobs(matrix):
    return json.loads(matrix_text(matrix, resolve(matrix), "github"))["include"]


def test_github_is_one_line_of_texts_and_labels():
    matrix = load(MATRICES["full"])
    text = matrix_text(matrix, resolve(matrix), "github")
    assert text.count("\n") == 1
    for job in jobs(matrix):
        labels = {key: job.pop(key) for key in ("build_runner", "gpu_runner", "smoke_runner")}
        assert all(isinstance(value, str) for value in job.values())
        assert all(isinstance(label, str) for row in labels.values() for label in row)
        assert labels["build_runner"]
        assert labels["smoke_runner"]


@pytest.mark.parametrize(
    ("variant", "gpu", "smoke"),
    [
        ("cu130-stable", ["self-hosted", "linux", "x64", "cuda"], None),
        ("rocm7.2-stable", ["self-hosted", "linux", "x64", "rocm"], None),
        ("cu130-stable-linux_aarch64", [], ["ubuntu-24.04-arm"]),
        ("pure", [], ["ubuntu-24.04"]),
    ],
)
def test_a_wheel_is_tried_on_its_gpu_where_there_is_one(variant, gpu, smoke):
    job = {job["variant"]: job for job in jobs(load(MATRICES["full"]))}[variant]
    assert job["build_runner"] == ["ubuntu-24.04"]
    assert job["gpu_runner"] == gpu
    assert job["smoke_runner"] == (smoke or gpu)


def kernel_jobs(matrix, names, shards=1):
    text = matrix_text(matrix, select(matrix, names), "kernels", shards)
    assert text.count("\n") == 1
    return json.loads(text)["include"]


def test_the_kernels_of_a_toolkit_are_one_job_whatever_links_them():
    matrix = load(MATRICES["ours"])
    assert kernel_jobs(matrix, ["cu124-*"]) == [
        {
            "kernels": "cu124",
            "toolkit": "cu124",
            "platform": "linux_x86_64",
            "shard": "1/1",
            "artifact": "kernels-cu124",
            "runner": ["ubuntu-24.04"],
        }
    ]
    of_universal = [job["kernels"] for job in kernel_jobs(matrix, ["universal*"])]
    assert of_universal == ["cu124", "cu130", "rocm6.4", "rocm7.2", "cu130-linux_aarch64"]
    (nothing,) = kernel_jobs(matrix, ["pure"])
    assert nothing["kernels"] == "", "a strategy without jobs is refused"


@pytest.mark.parametrize("shards", [1, 3])
def test_a_job_downloads_exactly_the_kernels_that_its_variant_links(shards):
    matrix = load(MATRICES["ours"])
    text = matrix_text(matrix, resolve(matrix), "github", shards)
    for job in json.loads(text)["include"]:
        made = [one for one in kernel_jobs(matrix, [job["variant"]], shards) if one["kernels"]]
        pattern = job["kernels"].strip("{}")
        assert pattern.split(",") == [one["artifact"] for one in made] or not (made or pattern)
    names = [job["artifact"] for job in kernel_jobs(matrix, ["all"], shards)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/2/3", "a/b", "-1/2", "1/0", "", "1/1000"])
def test_what_is_no_shard(text):
    with pytest.raises(
        UsageError, match=r'^--shard: expected e.g. "2/3", the second of three, fou'
    ):
        parse_shard(text, "--shard")
    assert str(parse_shard("2/3", "--shard")) == "2/3"


def test_an_unknown_toolkit_names_the_nearest():
    with pytest.raises(UsageError, match=r'no toolkit "cu13" has kernels here; did you mean "cu13'):
        select_kernels(load(MATRICES["ours"]), ["cu13"])


def test_kernels_are_compiled_with_one_variant_for_each_torch_abi():
    matrix = load(MATRICES["ours"])
    (build,) = select_kernels(matrix, ["cu124"])
    assert [variant.id for variant in compiled_variants(matrix, build)] == [
        *("cu124-stable", "cu124-torch2.6-cp311", "cu124-torch2.8-cp311", "cu124-torch2.10-cp311"),
        "cu124-kernels",
    ]


def test_the_python_of_a_job_is_the_wheels_own():
    pythons = {job["variant"]: job["python"] for job in jobs(load(MATRICES["full"]))}
    assert pythons["cu130-torch2.11-cp310"] == "3.10"
    assert pythons["cu130-stable"] == ""


def test_no_runners_and_too_many_jobs_are_one_line():
    matrix = load(MATRICES["full"])
    variants = resolve(matrix)
    with pytest.raises(UsageError, match=r'no machine for cu124-stable: .* no section "runners"'):
        matrix_text(matrix.model_copy(update={"runners": {}}), variants, "github")
    with pytest.raises(UsageError, match="257 variants are more than GitHub's 256 jobs"):
        matrix_text(matrix, (variants[0],) * 257, "github")


def test_a_steps_output_is_appended(tmp_path, capsys):
    out = tmp_path / "output"
    out.write_text("other=1\n")
    call = ["matrix", "--matrix", str(MATRICES["full"]), "default", "--output"]
    assert main([*call, str(out), "--github"]) == 0
    printed = capsys.readouterr().out
    kernels = matrix_text(
        load(MATRICES["full"]), select(load(MATRICES["full"]), ["default"]), "kernels"
    )
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


MATRIX = Path(__file__).parents[3] / "matrix.yaml"
ORDINARY = Path(__file__).parent / "ordinary.yaml"
WORDS = {"stages", "default"}


def pipeline(selection=("release",), shards=1):
    matrix = load(MATRIX)
    return json.loads(gitlab_text(matrix, select(matrix, selection), selection, shards))


def gitlab_jobs(made):
    return {name: job for name, job in made.items() if name not in WORDS}


def test_the_pipeline_of_a_release(golden):
    matrix = load(MATRIX)
    golden("gitlab.json", gitlab_text(matrix, select(matrix, ["release"]), ["release"]))


@pytest.mark.parametrize("shards", [1, 3])
def test_a_job_needs_only_jobs_of_earlier_stages(shards):
    made = pipeline(shards=shards)
    stages = made["stages"]
    for job in gitlab_jobs(made).values():
        for name in job.get("needs", ()):
            assert stages.index(made[name]["stage"]) < stages.index(job["stage"])


def test_each_variant_is_built_from_its_kernels_and_tried():
    made = pipeline(shards=2)
    matrix = load(MATRIX)
    for variant in select(matrix, ["release"]):
        build, smoke = made[f"wheel-{variant.id}"], made[f"smoke-{variant.id}"]
        assert smoke["needs"] == [f"wheel-{variant.id}"]
        assert ("--kernels-only" in build["script"][0]) == bool(build["needs"])
        assert bool(build["needs"]) == variant.native
        assert all(name.endswith(("-1of2", "-2of2")) for name in build["needs"])


def ordinary(shards):
    """A project with a build of its own, whose variants are compiled by so many jobs."""
    more = "runners: {linux_x86_64: {build: [ubuntu-24.04]}}\n"
    text = ORDINARY.read_text().replace("  archs_by", f"  shards: {shards}\n  archs_by")
    return parse(text + more, "matrix.yaml")


def ordinary_text(shards):
    matrix = ordinary(shards)
    return gitlab_text(matrix, select(matrix, ["*-cp312"]), ["*-cp312"])


def test_the_pipeline_of_a_project_in_shards(golden):
    golden("gitlab-shards.json", ordinary_text(3))


def test_jobs_compile_the_shards_of_each_variant_and_one_links_them():
    made = gitlab_jobs(json.loads(ordinary_text(3)))
    for variant in ("cu124-torch2.6-cp312", "cu130-torch2.13-cp312"):
        shards = [f"kernels-{variant}-{number}of3" for number in (1, 2, 3)]
        assert made[f"wheel-{variant}"]["needs"] == shards
        assert "--kernels-only" in made[f"wheel-{variant}"]["script"][0]
        assert [made[name]["variables"] for name in shards] == [
            {"SHARD": f"{number}/3", "KERNELS": variant} for number in (1, 2, 3)
        ]
    assert len(made) == 2 * (3 + 1 + 1) + 1
    assert not [name for name in gitlab_jobs(json.loads(ordinary_text(1))) if "kernels" in name]


def test_more_jobs_than_one_may_need_are_one_line():
    assert ordinary_text(50)
    with pytest.raises(UsageError, match=r"^cu124-torch2.6-cp312: is linked from 51 jobs; expec"):
        ordinary_text(51)


def test_a_script_is_a_nox_session_and_takes_data_by_variables_alone():
    made = pipeline()
    for job in gitlab_jobs(made).values():
        (script,) = job["script"]
        assert re.match(r"nox -s (kernels|wheels|smoke|assemble) -- ", script)
        used = set(re.findall(r"\$([A-Z_0-9]+)", script))
        assert used == set(job["variables"])


def test_the_records_of_a_build_and_of_a_smoke_job_do_not_meet():
    made = pipeline()
    paths = [path for job in gitlab_jobs(made).values() for path in job["artifacts"]["paths"]]
    assert "tried/$VARIANT/smoke/$VARIANT.json" in paths
    assert "dist/smoke/$VARIANT.json" in paths


def test_the_command_prints_it(capsys):
    assert main(["matrix", "--matrix", str(MATRIX), "--gitlab", "cu130-stable"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert set(gitlab_jobs(made)) == {
        "kernels-cu130",
        "wheel-cu130-stable",
        "smoke-cu130-stable",
        "assemble",
    }
    assert main(["matrix", "--matrix", str(MATRIX), "--gitlab", "--output", "x"]) == 2
    assert "--output goes with --github" in capsys.readouterr().err
