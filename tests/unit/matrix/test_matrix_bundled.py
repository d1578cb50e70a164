"""Bundled packages of a matrix: folders of the repository, each with a distribution."""

from pathlib import Path

import pytest

from torchwheel.matrix.document import MatrixError
from torchwheel.matrix.load import load, parse

GOOD = (Path(__file__).parent / "good.yaml").read_text()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a bundled package; beside the project, folders that are not its own."""
    for name in ("repo/pkg/helper", "outside"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "pyproject.toml").touch()
    (tmp_path / "repo" / "empty").mkdir()
    (tmp_path / "repo" / "link").symlink_to(tmp_path / "outside")
    return tmp_path / "repo"


def write(root: Path, bundled: str) -> Path:
    path = root / "matrix.yaml"
    project = "project: {name: fusedops, source: .}"
    assert GOOD.count(project) == 1
    path.write_text(GOOD.replace(project, project.replace("}", f", bundled: {bundled}}}")))
    return path


def test_a_bundled_package_that_is_there(root: Path) -> None:
    assert load(write(root, "[pkg/helper]")).project.bundled == ("pkg/helper",)
    assert parse(GOOD, "matrix.yaml").project.bundled == ()


@pytest.mark.parametrize(
    ("bundled", "says"),
    [
        ("pkg/helper", ': "pkg/helper" is text; expected a list'),
        ("[3]", '[0]: 3 is a number; expected text, write "3" in quotes'),
        ("[../outside]", '[0]: "../outside" is not a path inside the project; expected e.g. "." '),
        ("[/outside]", '[0]: "/outside" is not a path inside the project; expected e.g. "." or '),
        ("[gone]", '[0]: "gone" is no folder; expected that of a distribution, with its pyproject'),
        ("[matrix.yaml]", '[0]: "matrix.yaml" is no folder; expected that of a distribution, with'),
        ("[empty]", '[0]: "empty" has no pyproject.toml; expected the folder of a distribution'),
        ("[link]", '[0]: "link" leads out of the project, to '),
        ("[pkg/helper, ./pkg/helper]", '[1]: "./pkg/helper" is the project itself or listed twice'),
    ],
)
def test_one_that_is_none(root: Path, bundled: str, says: str) -> None:
    path = write(root, bundled)
    with pytest.raises(MatrixError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:2: project.bundled{says}")
    assert "\n" not in str(caught.value)


def test_the_project_is_no_bundled_package_of_itself(root: Path) -> None:
    (root / "pyproject.toml").touch()
    with pytest.raises(MatrixError, match=r'\[0\]: "\." is the project itself or listed twice'):
        load(write(root, '["."]'))
