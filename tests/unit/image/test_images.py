"""Images of builds: what is built, from which snapshot."""

import dataclasses
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from loopback import answering
from programmaker import program
from torchwheel.image.debian import require_snapshot, service_of
from torchwheel.image.recipes import (
    BaseImage,
    Image,
    Recipes,
    debian,
    image_digest,
    image_of,
    image_reference,
    python_of,
)
from torchwheel.matrix.load import load
from torchwheel.matrix.load import parse as parse_matrix
from torchwheel.matrix.variants import resolve
from torchwheel_runtime.arch.releases import torch_releases
from torchwheel_runtime.errors import TorchwheelError, UsageError

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"


@pytest.fixture(scope="module")
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
    other = image_of(rocm, variant(rocm, "rocm7.2-torch2.13-cp312"), ROOT)
    its = image_of(rocm, variant(rocm, "rocm7.2-torch2.13-cp314"), ROOT)
    assert (other.name, its.name) == ("rocm-7.2-cp312", "rocm-7.2-cp314")
    assert other.needs["BASE_IMAGE"] == its
    assert other.needs["PYTHON_IMAGE"].name == "python-3.12-sid"
    assert its.needs["BASE_IMAGE"] == other.needs["PYTHON_IMAGE"].needs["BASE_IMAGE"]
    # Python decides no object that a compiler cache could give.
    assert "PYTHON_IMAGE" in other.beside


def test_variants_of_one_toolkit_and_python_share_an_image(matrix):
    def built(name):
        return image_of(matrix, variant(matrix, name), ROOT)

    assert built("cu124-torch2.6-cp312") == built("cu124-torch2.10-cp312")
    assert built("cu124-torch2.6-cp312") != built("cu124-torch2.6-cp313")
    assert built("cu124-torch2.6-cp311") == built("cu124-stable")
    assert (
        built("cu130-stable").needs["PYTHON_IMAGE"] == built("cu124-stable").needs["PYTHON_IMAGE"]
    )


def test_compilers_are_the_same_whatever_the_python(matrix):
    made = image_of(matrix, variant(matrix, "cu124-torch2.6-cp312"), ROOT)
    needs = dict.fromkeys(made.needs, "same")
    compilers = image_digest(made, needs, made.beside)
    other = dataclasses.replace(made, files={**made.files, "requirements.txt": "another"})
    assert image_digest(other, {**needs, "PYTHON_IMAGE": "another"}, made.beside) == compilers
    assert image_digest(made, {**needs, "BASE_IMAGE": "another"}, made.beside) != compilers
    assert image_digest(made, {**needs, "PYTHON_IMAGE": "another"}) != image_digest(made, needs)


ORDINARY = (ROOT / "tests" / "unit" / "matrix" / "ordinary.yaml").read_text()
CXX20 = [minor for minor, facts in torch_releases().items() if facts.cxx == 20]


def of_torch(minor, **containers):
    """The image that CUDA 13.0 gets for a torch."""
    made = parse_matrix(ORDINARY.replace('"2.13"', f'"{minor}"'), "matrix.yaml")
    changed = made.containers.model_copy(update=containers)
    one = variant(made, f"cu130-torch{minor}-cp312")
    return image_of(made.model_copy(update={"containers": changed}), one, ROOT)


@pytest.mark.parametrize("minor", torch_releases())
def test_an_image_has_a_compiler_for_the_headers_of_its_torch(minor):
    if 13 not in torch_releases()[minor].majors("cuda"):
        return
    made = of_torch(minor)
    newer = made.needs.get("COMPILER_IMAGE")
    # gcc 10 of bullseye has no C++20.
    assert (newer == BaseImage("bookworm"), newer is None) == (minor in CXX20, minor not in CXX20)
    assert made.name == "cuda-13.0-cp312" + ("-cxx20" if newer else "")
    # It decides objects that a compiler cache could give.
    assert "COMPILER_IMAGE" not in made.beside
    assert made.args["GLIBC"] == "2.28"
    assert "COMPILER_IMAGE" not in of_torch(minor, base="trixie", glibc="2.41").needs


def test_a_toolkit_that_takes_no_compiler_with_the_standard_of_torch_is_one_line():
    old = ORDINARY.replace("    source: pypi", '    source: pypi\n    host_compiler: {gcc: "<11"}')
    made = parse_matrix(old.replace('"2.13"', '"2.14"'), "matrix.yaml")
    with pytest.raises(UsageError) as raised:
        image_of(made, variant(made, "cu130-torch2.14-cp312"), ROOT)
    assert str(raised.value).startswith(
        "toolkit cu130: expected a g++ with C++20 for torch's headers (gcc >=11) that it takes "
        "(gcc <11), found 10.2 of bullseye, 12.2 of bookworm, 14.2 of trixie; leave this torch out"
    )
    made = parse_matrix(ORDINARY.replace('"2.13"', '"2.14"'), "matrix.yaml")
    cross = dataclasses.replace(variant(made, "cu130-torch2.14-cp312"), platform="linux_aarch64")
    with pytest.raises(UsageError, match=r"cu130: no cross compiler of bullseye has C\+\+20"):
        image_of(made, cross, ROOT)


@pytest.mark.parametrize(
    ("base", "glibc", "possible"),
    [
        ("bullseye", "2.28", True),
        ("bullseye", "2.17", True),
        ("bullseye", "2.16", False),
        ("bookworm", "2.28", False),  # stat, which glibc 2.33 has in another form
        ("bookworm", "2.34", True),
        ("trixie", "2.34", False),  # strtol
        ("trixie", None, True),
        ("forky", "2.28", True),  # not known: it has what its owner gives it
    ],
)
def test_the_base_and_the_limit_of_the_c_library_agree(base, glibc, possible):
    if possible:
        assert of_torch("2.13", base=base, glibc=glibc).args["GLIBC"] == (glibc or "")
        return
    with pytest.raises(UsageError, match=rf"containers.glibc: expected .* on {base} .*{glibc};"):
        of_torch("2.13", base=base, glibc=glibc)


def test_the_toolkit_in_an_image_is_pinned_by_hash(matrix):
    made = image_of(matrix, variant(matrix, "cu130-stable"), ROOT)
    pins = made.files["toolkit/toolkit.txt"].splitlines()
    assert {pin.split("==")[0] for pin in pins} >= {"nvidia-cuda-nvcc", "nvidia-nvvm"}
    assert all("--hash=sha256:" in pin for pin in pins)
    assert "TOOLKIT_IMAGE" not in made.needs
    lifted = image_of(matrix, variant(matrix, "cu124-stable"), ROOT)
    assert lifted.needs["TOOLKIT_IMAGE"].name == "debian-trixie"
    assert "nvidia-cuda-toolkit" in lifted.args["PACKAGES"]


def test_the_python_of_a_variant(matrix):
    assert python_of(matrix, variant(matrix, "cu124-torch2.6-cp313")) == "3.13"
    assert python_of(matrix, variant(matrix, "cu130-stable")) == matrix.containers.python


def test_recipes_are_those_of_the_matrix_else_torchwheels_own(matrix, tmp_path):
    stable = variant(matrix, "cu130-stable")
    here = image_of(matrix, stable, tmp_path)
    assert here.recipe == (DOCKER / "cuda.Dockerfile").read_text()
    shutil.copytree(DOCKER, tmp_path / "recipes")
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


def test_a_foreign_machine_is_cross_compiled_with_what_pypi_has_for_it(matrix, monkeypatch):
    arm = dataclasses.replace(variant(matrix, "cu130-stable"), platform="linux_aarch64")
    cross = image_of(matrix, arm, ROOT)
    assert cross.name.endswith("-for-aarch64")
    assert cross.args["CROSS"] == "g++-aarch64-linux-gnu"
    host, target = (cross.files[f"toolkit/{name}.txt"] for name in ("toolkit", "toolkit-aarch64"))
    assert "nvidia-cuda-runtime" in target
    assert "nvidia-cuda-nvcc==" not in target
    assert "nvidia-cuda-nvcc==" in host
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    native = image_of(matrix, arm, ROOT)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert native.args["CROSS"] == ""
    assert native.files["toolkit/toolkit.txt"] != host
    lifted = dataclasses.replace(variant(matrix, "cu124-stable"), platform="linux_aarch64")
    with pytest.raises(UsageError, match="build it on a machine of linux_aarch64"):
        image_of(matrix, lifted, ROOT)


def test_every_argument_an_image_gets_is_in_its_recipe(matrix):
    for one in resolve(matrix):
        if one.toolkit is None:
            continue
        made = image_of(matrix, one, ROOT)
        for image in (made, *made.needs.values()):
            for name in [*image.args, *image.needs, *image.mirrors]:
                assert f"ARG {name}" in image.recipe, (one.id, name)


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_recipe_scripts_are_well_formed(tmp_path):
    for script in DOCKER.glob("*.sh"):
        subprocess.run(["bash", "-n", str(script)], check=True)


DAY = "20261030T120000Z"


@pytest.fixture
def service():
    """Has Debian's bullseye of one day."""

    there = f"/debian/{DAY}/dists/bullseye/InRelease"
    with answering(lambda path: (200 if path == there else 404, {}, b"")) as address:
        yield address


def test_a_service_without_the_day_is_one_line_with_the_ways_out(service):
    require_snapshot(service, DAY, "bullseye")
    with pytest.raises(TorchwheelError) as raised:
        require_snapshot(service, "20200101T000000Z", "bullseye")
    for part in ("/dists/bullseye/InRelease: expected", "404", "TORCHWHEEL_SNAPSHOTS=none"):
        assert part in str(raised.value)
    with pytest.raises(TorchwheelError, match=r"found: .*refused; pull the image by its digest"):
        require_snapshot("http://127.0.0.1:9", DAY, "bullseye")


def test_todays_packages_are_taken_only_if_they_are_asked_for(matrix, monkeypatch):
    containers = matrix.containers
    assert service_of(containers, {}) == containers.snapshot_service
    assert service_of(containers, {"TORCHWHEEL_SNAPSHOTS": "http://m.test/a"}) == "http://m.test/a"
    assert service_of(containers, {"TORCHWHEEL_SNAPSHOTS": "none"}) is None
    with pytest.raises(UsageError, match=r"TORCHWHEEL_SNAPSHOTS: .* is not an address"):
        service_of(containers, {"TORCHWHEEL_SNAPSHOTS": "ftp://m.test"})
    without = containers.model_copy(update={"snapshot_service": None})
    with pytest.raises(UsageError, match=r"expected containers.snapshot_service beside it"):
        service_of(without, {})
    undated = containers.model_copy(update={"snapshot": None})
    assert service_of(undated, {}) is None
    monkeypatch.setenv("TORCHWHEEL_SNAPSHOTS", "http://m.test/a")
    mirrored = debian(Recipes(containers, DOCKER), "sid")
    assert (mirrored.args, mirrored.mirrors) == (
        {"SNAPSHOT": containers.snapshot},
        {"SNAPSHOTS": "http://m.test/a"},
    )
    monkeypatch.setenv("TORCHWHEEL_SNAPSHOTS", "none")
    assert debian(Recipes(containers, DOCKER), "sid") == BaseImage("sid")


def test_every_stage_of_an_image_is_of_its_day(matrix, monkeypatch):
    monkeypatch.delenv("TORCHWHEEL_SNAPSHOTS", raising=False)
    older = "20250101T000000Z"
    rocm = matrix.toolkits["rocm7.2"]
    packages = rocm.packages.model_copy(update={"snapshot": older})
    toolkits = {**matrix.toolkits, "rocm7.2": rocm.model_copy(update={"packages": packages})}
    moved = matrix.model_copy(update={"toolkits": toolkits})
    needs = image_of(moved, variant(moved, "rocm7.2-stable"), ROOT).needs
    assert needs["BASE_IMAGE"].args == {"SNAPSHOT": older}
    assert needs["BUILD_BASE"].args == {"SNAPSHOT": matrix.containers.snapshot}
    assert needs["BASE_IMAGE"].needs["BASE_IMAGE"] == BaseImage("sid", None, older)
    assert needs["BASE_IMAGE"].needs["BASE_IMAGE"].local.endswith(f"/base:sid-{older}")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("'' hipcc=7.2.* libcub-dev", None),
        ("'' hipcc=7.2.4+dfsg-1", None),
        ("experimental hipcc=7.2.*", None),
        (
            "'' hipcc=6.4.*",
            "packages: expected hipcc 6.4.*, found 7.2.4+dfsg-1 in this Debian; pull the image by "
            "its digest, or move its snapshot or version in matrix.yaml",
        ),
        ("'' gone", "packages: expected gone , found none in this Debian; pull"),
        ("'' libcub-dev gone=1.*", "packages: expected gone 1.*, found none in this Debian; pull"),
        ("'' virtual", "packages: expected virtual , found none in this Debian; pull"),
    ],
)
def test_a_package_of_another_version_is_one_line(tmp_path, call, says):
    program(
        tmp_path / "apt-cache",
        'for name; do :; done\n[ "$2 $3" != "-t experimental" ] && [ $# = 4 ] && exit 9',
        "case $name in hipcc) found=7.2.4+dfsg-1 ;; libcub-dev) found=2.3 ;;",
        '  virtual) found="(none)" ;; *) exit 0 ;; esac',
        'printf "%s:\\n  Installed: (none)\\n  Candidate: %s\\n" "$name" "$found"',
    )
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"set -f; bash {ROOT}/docker/expect-versions.sh {call}",
        ],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (says is not None), done.stderr
    assert done.stderr.startswith(says or "")
    assert done.stderr.count("\n") == (says is not None)
