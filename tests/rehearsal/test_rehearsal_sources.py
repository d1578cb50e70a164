"""The sources that a rehearsal releases."""

import pytest

from rehearsal.sources import Form, set_version, write_sources
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select

TORCHES = ("cu130-torch2.11-cp311", "cu130-torch2.13-cp311")
FORMS = {
    "adopted": Form(TORCHES, origin="adopt"),
    "new": Form(("universal", "pure"), origin="new"),
    "ours": Form(("pure", "cu130-stable"), smoke=("test_load.py",)),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_matrix_has_the_variants_of_the_form(tmp_path, name):
    form, seed = FORMS[name], tmp_path / "seed"
    write_sources(seed, form)
    matrix = load(seed / "matrix.yaml")
    for selection, expected in (("release", form.variants), ("pull-request", form.variants[:1])):
        found = select(matrix, [selection])
        assert {variant.id for variant in found} == set(expected)
        assert all(list(map(str, v.toolkit.archs)) == [*form.archs] for v in found if v.toolkit)
    set_version(seed, "1.2.3rc4")
    file = seed / ("setup.py" if form.origin == "adopt" else "pyproject.toml")
    assert file.read_text().count('"1.2.3rc4"') == 1
