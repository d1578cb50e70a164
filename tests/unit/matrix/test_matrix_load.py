"""A matrix is read: its facts and bundled packages; bad input is one line each."""

from pathlib import Path

import pytest
import yaml

from torchwheel.matrix.document import MatrixError
from torchwheel.matrix.forms import _requirement
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import resolve, select
from torchwheel_runtime.arch import model as arch
from torchwheel_runtime.arch.releases import archs_by_release, torch_releases
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.versions import is_specifier, version_numbers

HERE = Path(__file__).parent
GOOD = (HERE / "good.yaml").read_text()
CASES = yaml.safe_load((HERE / "bad_input.yaml").read_text())


def lines_of(text):
    with pytest.raises(MatrixError) as caught:
        parse(text, "matrix.yaml")
    assert caught.value.status == 2
    return str(caught.value).splitlines()


def test_the_base_is_good():
    assert isinstance(parse(GOOD, "matrix.yaml"), Matrix)


@pytest.mark.parametrize("case", CASES)
def test_line(case):
    base = CASES[case].get("base", "good.yaml")
    text = (HERE / base).read_text()
    old, new = CASES[case]["old"], CASES[case]["new"]
    assert text.count(old) == 1, f"{case}: {old!r} must be in {base} once"
    expected = [f"matrix.yaml:{line}" for line in CASES[case]["lines"]]
    assert lines_of(text.replace(old, new)) == expected


EMPTY = 'the file is empty; expected "schema: 1" and the rest'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, EMPTY) for text in ("", "# nothing here\n", "---\n")),
        ("- 1\n", "is a list; expected a mapping"),
        ("text\n", '"text" is text; expected a mapping'),
    ],
)
def test_no_mapping_at_all(text, says):
    assert lines_of(text) == [f"matrix.yaml:1: {says}"]


@pytest.mark.parametrize("number", ["d800", "dc80", "0000", "001b", "007f", "0085"])
def test_a_character_that_no_file_and_no_message_can_have_is_refused(number):
    says = f"has the character U+{number.upper()}; remove it"
    (line,) = lines_of(GOOD.replace("tests: tests/smoke", f'tests: "a\\u{number}"'))
    assert line.endswith(says)
    (line, *_) = lines_of(f'"\\u{number}": 1\n{GOOD}')
    assert line.startswith("matrix.yaml:1: ")
    assert line.endswith(says)


def test_lines_stand_in_the_order_of_the_file():
    gates = "gates: {max_size_mib: 8}\n"
    text = gates.replace("8", "0") + GOOD.replace(gates, "").replace('- "9.0"', '- "9.x"')
    places = [line.split(": ")[0] for line in lines_of(text)]
    assert places == ["matrix.yaml:1", "matrix.yaml:21"]


def test_a_bomb_of_aliases_is_refused_at_once():
    bomb = 'a: &a ["x", "x"]\n' + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(24)
    )
    assert lines_of(bomb) == [
        "matrix.yaml:1: anchors and aliases are not supported; write the value out"
    ]


def test_deep_nesting_is_refused():
    text = GOOD.replace("exclude: []", f"exclude: {'[' * 5000}")
    assert lines_of(text) == ["matrix.yaml:30: nested more than 16 deep"]


def test_long_values_are_cut_and_stay_on_one_line():
    (line,) = lines_of(GOOD.replace('- "9.0"', f'- "{"9" * 500}\\n\\u2028"'))
    assert len(line) < 200
    (line,) = lines_of(GOOD.replace('- "9.0"', f"- {'9' * 5000}"))
    assert len(line) < 250


def test_a_range_or_requirement_with_a_long_number():
    """Python converts no number of 5000 digits, and fails only where versions are compared."""
    assert not is_specifier(f">={'9' * 5000}")
    with pytest.raises(ValueError, match="is not a requirement"):
        _requirement(f"numpy>={'9' * 5000}")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, ": no such file; run where the matrix is, or name it with --matrix"),
        (b"schema: 1\nproject: {name: caf\xe9}\n", ":2: not UTF-8: byte 0xe9; save it as UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, content, says):
    path = tmp_path / "matrix.yaml"
    if content:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert str(caught.value) == f"{path}{says}"


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    path = tmp_path / "matrix.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(path) == parse(GOOD, "matrix.yaml")


# Bundled packages of a matrix: folders of the repository, each with a distribution.


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


def test_every_arch_in_the_data_is_one():
    for backend in ("cuda", "rocm"):
        for names in archs_by_release(backend).values():
            assert all(arch.backend_of(arch.parse(name)) == backend for name in names)
            assert list(names) == [str(a) for a in sorted(map(arch.parse, names))]


def test_releases_stand_in_order():
    for releases in (
        archs_by_release("cuda"),
        archs_by_release("rocm"),
        torch_releases(),
    ):
        assert list(releases) == sorted(releases, key=version_numbers)


def test_what_cuda_13_dropped_and_gained():
    assert "7.0" in archs_by_release("cuda")["12.9"]
    assert "7.0" not in archs_by_release("cuda")["13.0"]
    assert {"10.3f", "12.1a", "8.8", "11.0"} <= set(archs_by_release("cuda")["13.0"])
    assert "12.0" not in archs_by_release("cuda")["12.6"]


def test_cuda_majors_of_torch():
    majors = {minor: known.majors("cuda") for minor, known in torch_releases().items()}
    assert majors["2.6"] == (11, 12)
    assert majors["2.8"] == (12,)
    assert majors["2.9"] == (12, 13)
    assert majors["2.15"] == (13,)


SMALL = load(HERE / "small.yaml")
FULL = load(HERE / "full.yaml")


def by_id(matrix):
    return {variant.id: variant for variant in resolve(matrix)}


def test_aten_ends_where_the_matrix_says():
    text = (HERE / "full.yaml").read_text()
    through = parse(text.replace("aten: {}", 'aten: {through: "2.10"}'), "matrix.yaml")
    minors = {v.torch_release for v in resolve(through) if v.abi == "aten"}
    assert minors == {"2.6", "2.7", "2.8", "2.9", "2.10"}
    assert "cu130-stable" in by_id(through)


def test_variants_and_the_model_cannot_be_changed():
    variant = by_id(FULL)["cu130-stable"]
    assert hash(variant) == hash(by_id(FULL)["cu130-stable"])
    with pytest.raises(AttributeError):
        variant.id = "other"
    with pytest.raises(ValueError, match="frozen"):
        variant.toolkit.version = "13.1"
    assert variant.toolkit.host_compiler.gcc == ">=6,<16"


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["default"], ["cu130-stable", "pure"]),
        (["release"], ["cu130-stable", "cu132-stable", "pure"]),
        (["pure", "cu130-stable", "default"], ["cu130-stable", "pure"]),
        (["cu13?-*"], ["cu130-stable", "cu132-stable"]),
        (["all"], ["cu130-stable", "cu132-stable", "pure"]),
    ],
)
def test_select(names, ids):
    assert [variant.id for variant in select(SMALL, names)] == ids


@pytest.mark.parametrize(
    ("matrix", "names", "line"),
    [
        (SMALL, ["cu130-stabel"],
         'no variant or selection "cu130-stabel"; did you mean "cu130-stable" or "cu132-stable"?'),
        (SMALL, ["default", "defualt"],
         'no variant or selection "defualt"; did you mean "default"?'),
        (SMALL, ["cu9*"],
         'no variant or selection "cu9*"; expected one of: default, release, all, cu130-stable, '
         'cu132-stable, pure'),
        (SMALL, [],
         "nothing is selected; expected a selection (default, release, all) or variant ids"),
        (FULL, ["cu130-torch2.9-cp310"],
         'variant "cu130-torch2.9-cp310" is excluded from the matrix: nobody asked for it'),
    ],
)  # fmt: skip
def test_a_selection_that_means_nothing(matrix, names, line):
    with pytest.raises(UsageError) as caught:
        select(matrix, names)
    assert str(caught.value) == line
    assert caught.value.status == 2
