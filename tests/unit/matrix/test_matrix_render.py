import json
from pathlib import Path

import pytest

from torchwheel.matrix.load import load
from torchwheel.matrix.render import matrix_text
from torchwheel.matrix.resolve import resolve
from torchwheel.matrix.schema import schema_text
from torchwheel.matrix.select import select

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


def test_github_is_one_line_of_texts():
    matrix = load(MATRICES["full"])
    text = matrix_text(matrix, resolve(matrix), "github")
    assert text.count("\n") == 1
    include = json.loads(text)["include"]
    assert all(isinstance(value, str) for job in include for value in job.values())
    runners = {job["platform"]: job["runner"] for job in include}
    assert runners == {
        "linux_x86_64": "ubuntu-24.04",
        "linux_aarch64": "ubuntu-24.04-arm",
        "any": "ubuntu-24.04",
    }


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
