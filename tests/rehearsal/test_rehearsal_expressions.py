"""Expressions mean here what they mean on the forge; what is not known is an error."""

import pytest

from rehearsal.expressions import ExpressionError, condition, evaluate, fill

CONTEXT = {
    "github": {"event_name": "push", "ref": "refs/tags/v1.0.0", "run_attempt": 2},
    "inputs": {"selection": None, "sign": True},
    "needs": {"build": {"outputs": {"artifact": "a-1"}}},
    "status": {"success": True, "failure": False},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("github.event_name", "push"),
        ("github.event_name == 'PUSH'", True),
        ("github.event_name != 'push'", False),
        ("inputs.selection || github.event_name == 'pull_request' && 'few' || 'all'", "all"),
        ("needs.build.outputs.artifact", "a-1"),
        ("needs.other.outputs.artifact", None),
        ("needs['build'].outputs['artifact']", "a-1"),
        ("!inputs.sign", False),
        ("startsWith(github.ref, 'refs/tags/')", True),
        ("contains(fromJSON('[1, 2]'), 2)", True),
        ("format('{0}-{1}', 'a', github.run_attempt)", "a-2"),
        ("(1 == 2 || 'it''s')", "it's"),
        ("success() && inputs.sign", True),
        ("failure()", False),
        ("null == inputs.selection", True),
    ],
)
def test_an_expression_has_its_value(text, value):
    assert evaluate(text, CONTEXT) == value


def test_a_text_keeps_what_is_no_expression():
    assert fill("x-${{ github.run_attempt }}-${{ inputs.selection }}.", CONTEXT) == "x-2-."
    assert fill({"sign": "${{ inputs.sign }}", "n": 3}, CONTEXT) == {"sign": True, "n": 3}


def test_a_condition_needs_no_braces():
    assert condition("github.event_name == 'push'", CONTEXT)
    assert not condition("${{ inputs.selection }}", CONTEXT)


def test_files_that_match_have_a_hash(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    context = {"github": {"workspace": str(tmp_path)}}
    assert condition("hashFiles('*.json')", context)
    assert not condition("hashFiles('*.xml')", context)


@pytest.mark.parametrize(
    "text",
    ["", "a b", "github.", "github[", "unknown", "hashFiles('x')", "'x", "(1", "1 <> 2", "&&"],
)
def test_what_is_not_known_is_an_error(text):
    with pytest.raises(ExpressionError):
        evaluate(text, CONTEXT)
