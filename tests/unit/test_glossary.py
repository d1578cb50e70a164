"""docs/glossary.md and the pages agree: every term is used, and no word that it replaces."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
# A term, its meaning, and the words that it replaces.
ROWS = [
    row
    for row in re.findall(r"^\| ([^|]+) \| ([^|]+) \|([^|]*)\|$", GLOSSARY.read_text(), re.M)
    if row[0] != "term"
]
TERMS = [term for term, _, _ in ROWS]
REPLACED = [word.strip() for _, _, words in ROWS for word in words.split(",") if word.strip()]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "matrix.yaml")),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path != GLOSSARY),
]


def used(word: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(word)}(s|es|ed|d)?\b", text, re.I) is not None


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_used_on_a_page(term):
    assert any(used(term, page.read_text()) for page in PAGES), f"no page uses {term!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_no_replaced_word(page):
    found = [word for word in REPLACED if used(word, page.read_text())]
    assert not found, f"{page.name} uses {', '.join(found)}: docs/glossary.md has the word to use"


def test_the_glossary_was_read():
    assert len(TERMS) > 25
    assert "companion" in REPLACED
