from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.errors import UsageError
from torchwheel.matrix.document import MatrixError
from torchwheel.matrix.forms import _requirement
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.sections import Matrix
from torchwheel.versions import is_specifier

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
    old, new = CASES[case]["old"], CASES[case]["new"]
    assert GOOD.count(old) == 1, f"{case}: {old!r} must be in good.yaml once"
    expected = [f"matrix.yaml:{line}" for line in CASES[case]["lines"]]
    assert lines_of(GOOD.replace(old, new)) == expected


@pytest.mark.parametrize("text", ["", "# nothing here\n", "---\n"])
def test_empty(text):
    (line,) = lines_of(text)
    assert line.startswith("matrix.yaml:1: ")


@pytest.mark.parametrize(("text", "what"), [("- 1\n", "is a list"), ("text\n", '"text" is text')])
def test_not_a_mapping(text, what):
    assert lines_of(text) == [f"matrix.yaml:1: {what}; expected a mapping"]


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


def test_missing_file(tmp_path):
    path = tmp_path / "matrix.yaml"
    with pytest.raises(UsageError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}: no such file; run where the matrix is, or name it with --matrix"
    )


def test_a_folder(tmp_path):
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert str(caught.value) == f"{tmp_path}: expected a file, found something that is no file"


def test_not_utf8(tmp_path):
    path = tmp_path / "matrix.yaml"
    path.write_bytes(b"schema: 1\nproject: {name: caf\xe9}\n")
    with pytest.raises(UsageError) as caught:
        load(path)
    assert str(caught.value) == f"{path}:2: not UTF-8: byte 0xe9; save it as UTF-8"


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    path = tmp_path / "matrix.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(path) == parse(GOOD, "matrix.yaml")


SIGNS = [*"[]{}\"'~|%=\\\n", "  ", "- ", ": ", "? ", ">-", "<<", "\x85", "\u2028", "\U0001f600"]
WORDS = ["schema: 1\n", "2.11", "0x1f", "1:30", ".inf", "2001-01-01", "archs", "torch:\n"]
PIECES = st.sampled_from(SIGNS + WORDS)


@given(st.lists(PIECES | st.text(max_size=3), max_size=30).map("".join))
def test_any_text_is_a_matrix_or_lines_with_a_place(text):
    for line in lines_of(text):
        assert line.startswith("matrix.yaml:")
        assert line.isprintable()


@given(st.integers(0, len(GOOD)), st.integers(0, 12), st.text(max_size=4) | PIECES)
def test_a_good_matrix_with_a_hole_is_a_matrix_or_lines_with_a_place(start, cut, put):
    text = GOOD[:start] + put + GOOD[start + cut :]
    try:
        matrix = parse(text, "matrix.yaml")
    except MatrixError as error:
        lines = str(error).splitlines()
        assert all(line.startswith("matrix.yaml:") for line in lines)
        assert all(line.isprintable() for line in lines)
    else:
        assert isinstance(matrix, Matrix)


def test_the_message_of_every_error_names_this_file_as_it_was_given():
    with pytest.raises(MatrixError, match=r"^some/where\.yaml:1: "):
        parse("", "some/where.yaml")
