"""Content negotiation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.index.serve import HTML, JSON, PLAIN, negotiate


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/html,application/xhtml+xml,*/*;q=0.8", PLAIN),
        (f"{JSON}, {HTML}; q=0.1, text/html; q=0.01", JSON),
        (f"{JSON};q=0.1, {HTML};q=0.2", HTML),
        (f"{JSON}; q=0, text/html;q=0.5", PLAIN),
        (f"{JSON};q=x", PLAIN),
        ("application/vnd.pypi.simple.latest+json", JSON),
        ("APPLICATION/VND.PYPI.SIMPLE.V1+JSON", JSON),
    ],
)
def test_negotiate(accept: str, kind: str) -> None:
    assert negotiate(accept) == kind


@given(st.text())
def test_any_header_has_an_answer(accept: str) -> None:
    assert negotiate(accept) in (HTML, JSON, PLAIN)
