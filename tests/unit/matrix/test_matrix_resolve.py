from pathlib import Path

import pytest

from torchwheel.errors import UsageError
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import resolve, select

HERE = Path(__file__).parent
SMALL = load(HERE / "small.yaml")
FULL = load(HERE / "full.yaml")


def by_id(matrix):
    return {variant.id: variant for variant in resolve(matrix)}


def test_a_stable_variant():
    variant = by_id(FULL)["cu130-stable"]
    assert (variant.abi, variant.torch_range, variant.torch_release) == ("stable", ">=2.11", "2.11")
    assert (variant.python_tag, variant.platform, variant.local) == ("py3", "linux_x86_64", "cu130")
    assert (variant.toolkit.name, variant.toolkit.version) == ("cu130", "13.0")
    assert variant.toolkit.host_compiler.gcc == ">=6,<16"


def test_an_aten_variant():
    variant = by_id(FULL)["cu124-torch2.6-cp312"]
    assert (variant.abi, variant.torch_range, variant.torch_release) == ("aten", "==2.6.*", "2.6")
    assert (variant.python_tag, variant.local) == ("cp312", "cu124torch2.6")


def test_the_pure_variant():
    variant = by_id(FULL)["pure"]
    assert (variant.toolkit, variant.torch_range, variant.torch_release) == (None, ">=2.6", "2.6")
    assert (variant.python_tag, variant.platform, variant.local) == ("py3", "any", None)


def test_only_platforms_after_the_first_have_a_suffix():
    assert by_id(FULL)["cu130-stable-linux_aarch64"].platform == "linux_aarch64"
    assert not any(name.endswith("x86_64") for name in by_id(FULL))


def test_aten_ends_where_the_matrix_says():
    text = (HERE / "full.yaml").read_text()
    through = parse(text.replace("aten: {}", 'aten: {through: "2.10"}'), "matrix.yaml")
    minors = {v.torch_release for v in resolve(through) if v.abi == "aten"}
    assert minors == {"2.6", "2.7", "2.8", "2.9", "2.10"}
    assert "cu130-stable" in by_id(through)


def test_exclusions_are_taken_out():
    names = by_id(FULL)
    assert "cu130-torch2.9-cp312" in names
    assert "cu130-torch2.9-cp310" not in names
    assert not any(name.startswith("rocm") and name.endswith("aarch64") for name in names)


def test_variants_and_the_model_cannot_be_changed():
    variant = by_id(FULL)["cu130-stable"]
    assert hash(variant) == hash(by_id(FULL)["cu130-stable"])
    with pytest.raises(AttributeError):
        variant.id = "other"
    with pytest.raises(ValueError, match="frozen"):
        variant.toolkit.version = "13.1"


def test_a_duplicate_variant_is_refused():
    twice = Matrix.model_validate(
        {**SMALL.model_dump(by_alias=True), "platforms": ("linux_x86_64", "linux_x86_64")}
    )
    with pytest.raises(UsageError, match=r"^duplicate variant cu130-stable: "):
        resolve(twice)


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
