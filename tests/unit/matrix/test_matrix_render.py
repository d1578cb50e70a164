import json
from pathlib import Path

import pytest

from torchwheel.cli import main
from torchwheel.errors import UsageError
from torchwheel.matrix.load import load
from torchwheel.matrix.render import matrix_text
from torchwheel.matrix.sections import schema_text
from torchwheel.matrix.variants import resolve, select

ROOT = Path(__file__).parents[3]
MATRICES = {"ours": ROOT / "matrix.yaml", "full": Path(__file__).parent / "full.yaml"}
SUFFIXES = {"table": "txt", "json": "json", "github": "github.json"}


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
    assert out.read_text() == f"other=1\nmatrix={capsys.readouterr().out}"
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
