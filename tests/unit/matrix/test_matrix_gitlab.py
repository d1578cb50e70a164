"""The child pipeline of GitLab's; `nox -s workflows` holds the golden file to GitLab's schema."""

import json
import re
from pathlib import Path

import pytest

from torchwheel.cli import main
from torchwheel.errors import UsageError
from torchwheel.matrix.gitlab import gitlab_text
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.variants import select

MATRIX = Path(__file__).parents[3] / "matrix.yaml"
ORDINARY = Path(__file__).parent / "ordinary.yaml"
WORDS = {"stages", "default"}


def pipeline(selection=("release",), shards=1):
    matrix = load(MATRIX)
    return json.loads(gitlab_text(matrix, select(matrix, selection), selection, shards))


def jobs(made):
    return {name: job for name, job in made.items() if name not in WORDS}


def test_the_pipeline_of_a_release(golden):
    matrix = load(MATRIX)
    golden("gitlab.json", gitlab_text(matrix, select(matrix, ["release"]), ["release"]))


@pytest.mark.parametrize("shards", [1, 3])
def test_a_job_needs_only_jobs_of_earlier_stages(shards):
    made = pipeline(shards=shards)
    stages = made["stages"]
    for job in jobs(made).values():
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
    made = jobs(json.loads(ordinary_text(3)))
    for variant in ("cu124-torch2.6-cp312", "cu130-torch2.13-cp312"):
        shards = [f"kernels-{variant}-{number}of3" for number in (1, 2, 3)]
        assert made[f"wheel-{variant}"]["needs"] == shards
        assert "--kernels-only" in made[f"wheel-{variant}"]["script"][0]
        assert [made[name]["variables"] for name in shards] == [
            {"SHARD": f"{number}/3", "KERNELS": variant} for number in (1, 2, 3)
        ]
    assert len(made) == 2 * (3 + 1 + 1) + 1
    assert not [name for name in jobs(json.loads(ordinary_text(1))) if "kernels" in name]


def test_more_jobs_than_one_may_need_are_one_line():
    assert ordinary_text(50)
    with pytest.raises(UsageError, match=r"^cu124-torch2.6-cp312: is linked from 51 jobs; expec"):
        ordinary_text(51)


def test_a_script_is_a_nox_session_and_takes_data_by_variables_alone():
    made = pipeline()
    for job in jobs(made).values():
        (script,) = job["script"]
        assert re.match(r"nox -s (kernels|wheels|smoke|assemble) -- ", script)
        used = set(re.findall(r"\$([A-Z_0-9]+)", script))
        assert used == set(job["variables"])


def test_the_records_of_a_build_and_of_a_smoke_job_do_not_meet():
    made = pipeline()
    paths = [path for job in jobs(made).values() for path in job["artifacts"]["paths"]]
    assert "tried/$VARIANT/smoke/$VARIANT.json" in paths
    assert "dist/smoke/$VARIANT.json" in paths


def test_the_command_prints_it(capsys):
    assert main(["matrix", "--matrix", str(MATRIX), "--gitlab", "cu130-stable"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert set(jobs(made)) == {
        "kernels-cu130",
        "wheel-cu130-stable",
        "smoke-cu130-stable",
        "assemble",
    }
    assert main(["matrix", "--matrix", str(MATRIX), "--gitlab", "--output", "x"]) == 2
    assert "--output goes with --github" in capsys.readouterr().err
