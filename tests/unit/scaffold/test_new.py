"""A new extension as text: what it is called, and what its files say."""

import ast
import re

import pytest

from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.scaffold.new import new_project, package_name, render_project
from torchwheel_runtime.arch.releases import torch_releases
from torchwheel_runtime.builder.extension import STABLE_SINCE
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.versions import version_numbers


@pytest.fixture(scope="module")
def files(wheel):
    every = render_project("my-kernels", "my_kernels", [wheel])
    return {path: data.decode() for path, data in every.items() if not path.endswith(".whl")}


@pytest.mark.parametrize(
    ("name", "package"), [("scale", "scale"), ("my-kernels", "my_kernels"), ("a1-b2", "a1_b2")]
)
def test_a_name_is_a_package(name, package):
    assert package_name(name) == package


@pytest.mark.parametrize(
    "name",
    ["", "My", "1st", "a b", "../x", "a/b", "-a", "a-", "class", "json", "torch", "tests", "ü"],
)
def test_a_name_that_cannot_be_one_is_one_line(name, tmp_path, wheel):
    with pytest.raises(UsageError) as caught:
        new_project(name, tmp_path, [wheel])
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(tmp_path, wheel):
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        new_project("mine", tmp_path, [wheel])
    assert not list((tmp_path / "mine").iterdir())


def test_the_matrix_resolves_and_its_default_wheel_serves_every_torch(tmp_path, wheel):
    folder = new_project("my-kernels", tmp_path, [wheel])
    matrix = load(folder / "matrix.yaml")
    assert [variant.id for variant in select(matrix, ["release"])] == [
        *("cu130-stable", "universal", "pure")
    ]
    assert (folder / matrix.smoke.tests).is_dir()
    universal, pure = select(matrix, ["default"])
    assert (universal.id, pure.id) == ("universal", "pure")
    front_ends = {part.torch_release for part in universal.parts if part.part == "front_end"}
    stable = version_numbers(STABLE_SINCE)
    older = {minor for minor in torch_releases() if version_numbers(minor) < stable}
    assert front_ends == {*older, STABLE_SINCE}
    assert universal.torch_range == f">={matrix.abis.pure.torch}"


def test_labels_are_a_comment_that_can_be_taken_away(tmp_path, wheel):
    file = new_project("my-kernels", tmp_path, [wheel]) / "matrix.yaml"
    file.write_text(file.read_text().replace("# labels:", "labels:"))
    ids = [variant.id for variant in select(load(file), ["release"])]
    assert ids[-2:] == ["universal-cu13", "pure-null"]


def test_every_python_file_parses_and_nothing_is_left_to_fill_in(files):
    for path, text in files.items():
        assert not re.search(r"\[\[ | \]\]|\[%|(?<!OWNER/)NAME", text), path
        assert "dot_" not in path
        if path.endswith(".py"):
            ast.parse(text)
    assert {"my_kernels/__init__.py", ".gitignore", ".github/workflows/release.yml"} <= set(files)


def test_the_torchwheel_of_a_project_is_pinned_by_its_hash(files, wheel):
    digest = sha256(wheel)
    lock = files[".torchwheel/requirements.txt"]
    assert f"./.torchwheel/{wheel.name} \\\n    --hash=sha256:{digest}\n" in lock
    assert digest in files[".torchwheel/build_backend.py"]
    # Whatever else is installed is named with its hashes, and never torchwheel.
    named = re.findall(r"^([A-Za-z][\w.-]*)\S*==.*\\\n    --hash=sha256:", lock, re.MULTILINE)
    every = re.findall(r"^([A-Za-z][\w.-]*)", lock, re.MULTILINE)
    assert set(named) == set(every)
    assert len(set(named)) > 30
    assert "torchwheel" not in named


def test_the_matrix_offers_it_in_the_index(tmp_path, wheel):
    folder = new_project("my-kernels", tmp_path, [wheel])
    matrix = load(folder / "matrix.yaml")
    assert matrix.project.bundled == (f".torchwheel/{wheel.name}",)
    assert (folder / matrix.project.bundled[0]).read_bytes() == wheel.read_bytes()
    (folder / matrix.project.bundled[0]).unlink()
    with pytest.raises(UsageError, match="is no file; expected the wheel of a distribution"):
        load(folder / "matrix.yaml")
