import dataclasses
import shutil
from pathlib import Path

import pytest

from torchwheel.errors import UsageError
from torchwheel.image.recipes import (
    BaseImage,
    Image,
    image_digest,
    image_of,
    image_reference,
    python_of,
)
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import resolve

ROOT = Path(__file__).parents[3]


@pytest.fixture
def matrix():
    return load(ROOT / "matrix.yaml")


def variant(matrix, name):
    return next(one for one in resolve(matrix) if one.id == name)


def image(**changes):
    made = Image(
        "a", "FROM x", {"ARG": "1"}, {"file": "text"}, {"BASE_IMAGE": BaseImage("bullseye")}
    )
    return dataclasses.replace(made, **changes)


def test_the_digest_changes_with_everything_that_decides_the_image():
    same = image_digest(image(), {"BASE_IMAGE": "id"})
    assert image_digest(image(), {"BASE_IMAGE": "id"}) == same
    others = [
        image_digest(image(recipe="FROM y"), {"BASE_IMAGE": "id"}),
        image_digest(image(args={"ARG": "2"}), {"BASE_IMAGE": "id"}),
        image_digest(image(files={"file": "other"}), {"BASE_IMAGE": "id"}),
        image_digest(image(files={"filet": "ext"}), {"BASE_IMAGE": "id"}),
        image_digest(image(), {"BASE_IMAGE": "another id"}),
    ]
    assert len({same, *others}) == 6
    assert image_reference(image(), same) == f"localhost/torchwheel/a:{same[:16]}"


def test_a_rocm_image_has_the_python_of_its_system_or_another():
    rocm = load(ROOT / "tests" / "unit" / "matrix" / "ordinary_rocm.yaml")
    other = image_of(rocm, variant(rocm, "rocm7.2-torch2.13-cp312"), ROOT, "x86_64")
    its = image_of(rocm, variant(rocm, "rocm7.2-torch2.13-cp314"), ROOT, "x86_64")
    assert (other.name, its.name) == ("rocm-7.2-cp312", "rocm-7.2-cp314")
    assert other.needs["BASE_IMAGE"] == its
    assert other.needs["PYTHON_IMAGE"].name == "python-3.12-sid"
    assert its.needs["BASE_IMAGE"] == other.needs["PYTHON_IMAGE"].needs["BASE_IMAGE"]
    # Python decides no object that a compiler cache could give.
    assert "PYTHON_IMAGE" in other.beside


def test_variants_of_one_toolkit_and_python_share_an_image(matrix):
    def built(name):
        return image_of(matrix, variant(matrix, name), ROOT, "x86_64")

    assert built("cu124-torch2.6-cp312") == built("cu124-torch2.10-cp312")
    assert built("cu124-torch2.6-cp312") != built("cu124-torch2.6-cp313")
    assert built("cu124-torch2.6-cp311") == built("cu124-stable")
    assert (
        built("cu130-stable").needs["PYTHON_IMAGE"] == built("cu124-stable").needs["PYTHON_IMAGE"]
    )


def test_compilers_are_the_same_whatever_the_python(matrix):
    made = image_of(matrix, variant(matrix, "cu124-torch2.6-cp312"), ROOT, "x86_64")
    needs = dict.fromkeys(made.needs, "same")
    compilers = image_digest(made, needs, made.beside)
    other = dataclasses.replace(made, files={**made.files, "requirements.txt": "another"})
    assert image_digest(other, {**needs, "PYTHON_IMAGE": "another"}, made.beside) == compilers
    assert image_digest(made, {**needs, "BASE_IMAGE": "another"}, made.beside) != compilers
    assert image_digest(made, {**needs, "PYTHON_IMAGE": "another"}) != image_digest(made, needs)


def test_the_toolkit_in_an_image_is_pinned_by_hash(matrix):
    made = image_of(matrix, variant(matrix, "cu130-stable"), ROOT, "x86_64")
    pins = made.files["toolkit/toolkit.txt"].splitlines()
    assert {pin.split("==")[0] for pin in pins} >= {"nvidia-cuda-nvcc", "nvidia-nvvm"}
    assert all("--hash=sha256:" in pin for pin in pins)
    assert "TOOLKIT_IMAGE" not in made.needs
    lifted = image_of(matrix, variant(matrix, "cu124-stable"), ROOT, "x86_64")
    assert lifted.needs["TOOLKIT_IMAGE"].name == "debian-trixie"
    assert "nvidia-cuda-toolkit" in lifted.args["PACKAGES"]


def test_the_python_of_a_variant(matrix):
    assert python_of(matrix, variant(matrix, "cu124-torch2.6-cp313")) == "3.13"
    assert python_of(matrix, variant(matrix, "cu130-stable")) == matrix.containers.python


def test_recipes_are_those_of_the_matrix_else_torchwheels_own(matrix, tmp_path):
    stable = variant(matrix, "cu130-stable")
    here = image_of(matrix, stable, tmp_path)
    ours = ROOT / "pkg" / "torchwheel" / "data" / "docker"
    assert here.recipe == (ours / "cuda.Dockerfile").read_text()
    shutil.copytree(ours, tmp_path / "recipes")
    (tmp_path / "recipes" / "cuda.Dockerfile").write_text("FROM scratch\n")
    own = matrix.containers.model_copy(update={"recipes": "recipes"})
    changed = image_of(matrix.model_copy(update={"containers": own}), stable, tmp_path)
    assert changed.recipe == "FROM scratch\n"
    (tmp_path / "recipes" / "requirements.txt").unlink()
    (tmp_path / "recipes" / "requirements.txt").symlink_to("/proc/self/environ")
    with pytest.raises(UsageError, match=r"requirements\.txt: expected a link that stays in "):
        image_of(matrix.model_copy(update={"containers": own}), stable, tmp_path)


def test_what_has_no_image_is_one_line(matrix, tmp_path):
    with pytest.raises(UsageError, match="pure: has no native code"):
        image_of(matrix, variant(matrix, "pure"), ROOT)
    stable = variant(matrix, "cu130-stable")
    with pytest.raises(UsageError, match=r'has no section "containers"; expected e\.g\.'):
        image_of(matrix.model_copy(update={"containers": None}), stable, ROOT)
    own = matrix.containers.model_copy(update={"recipes": "recipes"})
    with pytest.raises(UsageError, match=r"requirements\.txt: No such file .*containers\.recipes"):
        image_of(matrix.model_copy(update={"containers": own}), stable, tmp_path)
    system = stable.toolkit.model_copy(update={"source": "system"})
    with pytest.raises(UsageError, match='has the source "system", which is the host'):
        image_of(matrix, dataclasses.replace(stable, toolkit=system), ROOT)


def test_a_foreign_machine_is_cross_compiled_with_what_pypi_has_for_it(matrix):
    arm = dataclasses.replace(variant(matrix, "cu130-stable"), platform="linux_aarch64")
    cross = image_of(matrix, arm, ROOT, "x86_64")
    assert cross.name.endswith("-for-aarch64")
    assert cross.args["CROSS"] == "g++-aarch64-linux-gnu"
    host, target = (cross.files[f"toolkit/{name}.txt"] for name in ("toolkit", "toolkit-aarch64"))
    assert "nvidia-cuda-runtime" in target
    assert "nvidia-cuda-nvcc==" not in target
    assert "nvidia-cuda-nvcc==" in host
    native = image_of(matrix, arm, ROOT, "aarch64")
    assert native.args["CROSS"] == ""
    assert native.files["toolkit/toolkit.txt"] != host
    lifted = dataclasses.replace(variant(matrix, "cu124-stable"), platform="linux_aarch64")
    with pytest.raises(UsageError, match="build it on a machine of linux_aarch64"):
        image_of(matrix, lifted, ROOT, "x86_64")


def test_every_argument_an_image_gets_is_in_its_recipe(matrix):
    for one in resolve(matrix):
        if one.toolkit is None:
            continue
        made = image_of(matrix, one, ROOT, "x86_64")
        for image in (made, *made.needs.values()):
            for name in [*image.args, *image.needs, *image.mirrors]:
                assert f"ARG {name}" in image.recipe, (one.id, name)


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_recipe_scripts_are_well_formed(tmp_path):
    import subprocess

    for script in (ROOT / "pkg" / "torchwheel" / "data" / "docker").glob("*.sh"):
        subprocess.run(["bash", "-n", str(script)], check=True)
