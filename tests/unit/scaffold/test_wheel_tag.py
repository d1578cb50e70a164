"""What a project says of the tag of its wheels, in each form, and the matrix that it gives.

tests/integration/test_adopt_projects.py holds the forms to what setuptools makes of them.
"""

import pytest

from foreign_project import CODE, TAG_FORMS, write_tagged_project
from torchwheel.matrix.load import parse
from torchwheel.matrix.variants import select
from torchwheel.scaffold.adopt import matrix_text
from torchwheel.scaffold.foreign import read_project
from torchwheel_runtime.errors import UsageError

WHEEL = "torchwheel-1-py3-none-any.whl"
_ASKED = ": code decides the tag of a wheel; fill in abis.ordinary.python"


@pytest.fixture
def matrix_of(tmp_path):
    """The matrix of a project with these files beside its setup.py."""

    def matrix(setup, **files):
        (tmp_path / "setup.py").write_text(setup)
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text)
        return parse(matrix_text(read_project(tmp_path), ".", WHEEL), "matrix.yaml")

    return matrix


@pytest.mark.parametrize("form", TAG_FORMS)
def test_each_form_is_read(tmp_path, form):
    python = write_tagged_project(tmp_path, form)
    project = read_project(tmp_path)
    asked = [one for one in project.todo if one.endswith(_ASKED)]
    assert bool(asked) == (form in CODE)
    if form in CODE and not form.endswith("setup.cfg"):
        python = ""
    if form.endswith("goes before setup.cfg"):
        python = "cp310"  # what is declared, beside the line that asks a person
    serves = {"": "each", "py3": "any"}.get(python, "abi3")
    assert project.declared.tag.python == serves
    assert project.declared.tag.oldest == (f"3.{python[3:]}" if serves == "abi3" else "")
    matrix = parse(matrix_text(project, ".", WHEEL), "matrix.yaml")
    assert matrix.abis.ordinary.python == serves
    # One wheel for each torch, in the oldest Python that torch is for.
    pythons = {minor: one.pythons for minor, one in matrix.torch.items()}
    if serves == "each":
        assert all(len(one) > 1 for one in pythons.values())
    else:
        assert pythons == {"2.14": ("3.10",), "2.15": ("3.11",)}
        assert len(select(matrix, ["release"])) == 2
    assert select(matrix, ["default"])


@pytest.mark.parametrize(
    ("tag", "python", "pythons"),
    [
        ("cp312", "", ["3.12", "3.12"]),
        ("cp39", "python_requires='>=3.12',", ["3.12", "3.12"]),
        ("cp312", "python_requires='>=3.11',", ["3.12", "3.12"]),
        ("cp39", "python_requires='>=3.8',", ["3.10", "3.11"]),
    ],
)
def test_the_oldest_python_of_the_tag_and_of_the_project_builds_it(matrix_of, tag, python, pythons):
    matrix = matrix_of(
        f"setup(name='a', {python} options={{'bdist_wheel': {{'py_limited_api': '{tag}'}}}})\n"
    )
    assert [list(one.pythons) for one in matrix.torch.values()] == [[one] for one in pythons]


def test_a_tag_that_no_torch_serves_is_one_line(matrix_of):
    with pytest.raises(UsageError, match=r"found torch with Python from 3\.99 on; widen"):
        matrix_of("setup(name='a', options={'bdist_wheel': {'py_limited_api': 'cp399'}})\n")


@pytest.mark.parametrize(
    ("api", "serves"), [("cp312", "abi3"), ("py3", "any"), ("py2.py3", "any"), ("", "each")]
)
def test_scikit_build_core_says_it_in_pyproject(matrix_of, api, serves):
    text = f"[project]\nname = 'a'\n[tool.scikit-build]\nwheel.py-api = '{api}'\n"
    assert matrix_of("", pyproject_toml=text).abis.ordinary.python == serves


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ("options={'bdist_wheel': {'py_limited_api': f()}}", "setup.py:1: code decides the tag of"),
        ("options={'bdist_wheel': {'py_limited_api': '3.9'}}", "py_limited_api of setup.py: expec"),
        ("ext_modules=[Extension('a', ['a.c'], py_limited_api=True)]", "setup.py:1: an extension"),
    ],
)
def test_what_says_no_tag_is_a_todo(tmp_path, setup, says):
    (tmp_path / "setup.py").write_text(f"setup(name='a', {setup})\n")
    project = read_project(tmp_path)
    assert project.declared.tag.python == "each"
    assert [one for one in project.todo if one.startswith(says)]
