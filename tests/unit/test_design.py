"""docs/design.md's journeys name files and definitions that exist, ten lines each."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOURNEYS = re.search(
    r"^## Three journeys\n(.*?)^## ", (ROOT / "docs" / "design.md").read_text(), re.M | re.S
)[1]
PLACES = re.findall(r"`((?:pkg|csrc)/[\w/.]+):(\w+)`", JOURNEYS)


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_a_place_exists(path, name):
    text = (ROOT / path).read_text(encoding="utf-8")
    definition = rf"(def|class|struct|template|Status|void|{name})\b.*\b{name}\b|\b{name}\("
    assert re.search(definition, text), f"{path} defines no {name}"


def test_each_journey_has_ten_lines():
    journeys = re.split(r"^\*\*", JOURNEYS, flags=re.M)[1:]
    assert [len(re.findall(r"^\d+\. ", journey, re.M)) for journey in journeys] == [10, 10, 10]
    assert len(PLACES) > 25
