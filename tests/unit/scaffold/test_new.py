"""A new extension as text: what it is called, and what its files say."""

import ast
import re
import runpy
from pathlib import Path

import pytest
import yaml

from torchwheel.builder.extension import STABLE_SINCE
from torchwheel.errors import UsageError
from torchwheel.matrix.load import load
from torchwheel.matrix.torch_releases import torch_releases
from torchwheel.matrix.variants import select
from torchwheel.scaffold.new import new_project, package_name, render_project
from torchwheel.versions import version_numbers

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "package"), [("scale", "scale"), ("my-kernels", "my_kernels"), ("a1-b2", "a1_b2")]
)
def test_a_name_is_a_package(name, package):
    assert package_name(name) == package


@pytest.mark.parametrize(
    "name",
    ["", "My", "1st", "a b", "../x", "a/b", "-a", "a-", "class", "json", "torch", "tests", "ü"],
)
def test_a_name_that_cannot_be_one_is_one_line(name, tmp_path):
    with pytest.raises(UsageError) as caught:
        new_project(name, tmp_path)
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        new_project("mine", tmp_path)
    assert not list((tmp_path / "mine").iterdir())


def test_the_matrix_resolves(tmp_path):
    folder = new_project("my-kernels", tmp_path)
    matrix = load(folder / "matrix.yaml")
    assert [variant.id for variant in select(matrix, ["default"])] == ["universal", "pure"]
    assert [variant.id for variant in select(matrix, ["release"])] == [
        *("cu130-stable", "universal", "pure")
    ]
    assert (folder / matrix.smoke.tests).is_dir()


def test_the_default_wheel_serves_every_torch(tmp_path):
    matrix = load(new_project("my-kernels", tmp_path) / "matrix.yaml")
    (universal,) = select(matrix, ["universal"])
    front_ends = {part.torch_release for part in universal.parts if part.part == "front_end"}
    older = {
        minor
        for minor in torch_releases()
        if version_numbers(minor) < version_numbers(STABLE_SINCE)
    }
    assert front_ends == {*older, STABLE_SINCE}
    assert universal.torch_range == f">={matrix.abis.pure.torch}"


def test_the_description_names_files_that_are_there(tmp_path):
    folder = new_project("my-kernels", tmp_path)
    extension = runpy.run_path(str(folder / "my_kernels" / "extension.py"))["EXTENSION"]
    (operator,) = extension.operators
    assert set(operator.bindings) == {"stable", "aten"}
    files = (*operator.device, *extension.split.interface, *operator.bindings["stable"])
    assert all((folder / extension.sources / file).is_file() for file in files)


def test_every_python_file_parses_and_nothing_is_left_to_fill_in():
    files = render_project("my-kernels", "my_kernels")
    for path, text in files.items():
        assert not re.search(r"\[\[ | \]\]|\[%|NAME", text), path
        assert "dot_" not in path
        if path.endswith(".py"):
            ast.parse(text)
    assert {"my_kernels/__init__.py", ".gitignore", ".github/workflows/wheels.yml"} <= set(files)


def test_the_workflows_use_the_pins_of_ours():
    files = render_project("my-kernels", "my_kernels")
    ours = "".join(path.read_text() for path in (ROOT / ".github").rglob("*.yml"))
    for name in ("wheels", "index"):
        workflow = files[f".github/workflows/{name}.yml"]
        uses = re.findall(r"uses: (.*)", workflow)
        assert uses
        assert all(f"uses: {one}\n" in ours for one in uses)
        assert yaml.safe_load(workflow)["permissions"] == {}
