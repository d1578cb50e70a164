import json

import pytest

from torchwheel import data
from torchwheel.arch import toolkit_releases
from torchwheel.arch.model import parse
from torchwheel.arch.toolkit_releases import ToolkitRelease, arch_names, releases_able
from torchwheel.errors import UsageError
from torchwheel.versions import version_numbers


def test_every_minor_release_of_the_range_is_there():
    cuda = ["11.8", *(f"12.{minor}" for minor in range(10) if minor != 7)]
    assert list(toolkit_releases.archs_by_release("cuda")) == [
        *cuda,
        *(f"13.{minor}" for minor in range(6)),
    ]
    rocm = ["5.7", "6.0", "6.1", "6.2", "6.3", "6.4", "7.0", "7.1", "7.2"]
    assert list(toolkit_releases.archs_by_release("rocm")) == rocm


def test_pascal_to_blackwell():
    assert arch_names("cuda")[:3] == ("3.5", "3.7", "5.0")
    assert {"6.0", "6.1", "10.7f", "12.1a"} <= set(arch_names("cuda"))
    assert {"gfx900", "gfx9-generic", "gfx1251"} <= set(arch_names("rocm"))


def test_an_arch_that_goes_never_comes_back():
    """A hole in a column would be a mistake of the table."""
    for backend in ("cuda", "rocm"):
        for name in arch_names(backend):
            has = [name in listed for listed in toolkit_releases.archs_by_release(backend).values()]
            first, last = has.index(True), len(has) - has[::-1].index(True)
            assert all(has[first:last]), (backend, name)


def test_each_processor_of_a_generic_target_is_one_that_a_compiler_knows():
    runs = data.read("arch_runs.json")
    for generic, processors in runs["rocm"]["generic"].items():
        assert {generic, *processors} <= set(arch_names("rocm"))
    for number in (*runs["cuda"]["integrated"], *sum(runs["cuda"]["renamed"].items(), ())):
        assert number in arch_names("cuda")


def test_names_of_generations_are_known_archs():
    for text in data.read("arch_names.json")["names"].values():
        assert {parse(arch).name for arch in text.split(";")} <= set(arch_names("cuda"))


@pytest.mark.parametrize(
    ("release", "as_release"),
    [("13.0", "13.0"), ("13.0.88", "13.0"), ("12.7", "12.6"), ("14.2", "13.5"), ("12.10", "12.9")],
)
def test_a_release_that_is_not_listed_can_what_the_one_before_could(release, as_release):
    found = [str(arch) for arch in ToolkitRelease("cuda", release).archs]
    assert found == list(toolkit_releases.archs_by_release("cuda")[as_release])


def test_rocm_6_4_cannot_what_only_7_2_can():
    assert "gfx1250" in map(str, ToolkitRelease("rocm", "7.2").archs)
    assert "gfx1250" not in map(str, ToolkitRelease("rocm", "6.4").archs)


@pytest.mark.parametrize("release", ["", "13", "x", "13.0-0f2d", "13.\u0660", "99999.1", "1.2\n"])
def test_no_release(release):
    with pytest.raises(UsageError, match=r'is no release of CUDA; expected e\.g\. "13\.0"$'):
        _ = ToolkitRelease("cuda", release).archs


def test_too_old_a_release():
    with pytest.raises(UsageError, match=r"^CUDA 11\.4 is too old: 11\.8 or later expected$"):
        _ = ToolkitRelease("cuda", "11.4").archs


@pytest.mark.parametrize(
    ("arch", "who"),
    [
        ("6.1", "CUDA 11.8 to 12.9"),
        ("8.0", "CUDA 11.8 and later"),
        ("12.0f+PTX", "CUDA 12.9 and later"),
        ("3.5", "CUDA 11.8"),
        ("10.1", "CUDA 12.8 to 12.9"),
        ("14.0", "none that is known"),
        ("gfx941", "ROCm 5.7 to 6.3"),
        ("gfx1250", "ROCm 7.2 and later"),
        ("gfx942:xnack-", "ROCm 5.7 and later"),
    ],
)
def test_who_can(arch, who):
    backend = "rocm" if arch.startswith("gfx") else "cuda"
    assert releases_able(parse(arch), backend) == who


def test_the_file_is_in_the_order_of_releases():
    text = (data.FOLDER / "archs.json").read_text()
    for backend in ("cuda", "rocm"):
        releases = list(json.loads(text)[backend])
        assert releases == sorted(releases, key=version_numbers)
