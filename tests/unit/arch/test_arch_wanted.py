"""Which archs a build wants, and the table of GPUs."""

import pytest

from torchwheel_runtime import data
from torchwheel_runtime.arch import releases
from torchwheel_runtime.arch.devices import Gpu, VisibleGpus
from torchwheel_runtime.arch.lists import NamedArchs, choose_archs
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.arch.releases import ToolkitRelease, arch_names, releases_able
from torchwheel_runtime.errors import UsageError

CUDA = ToolkitRelease("cuda", "13.0")
ROCM = ToolkitRelease("rocm", "6.4")
ARGUMENT = NamedArchs("8.0", "--archs")
DEFAULT = NamedArchs("7.5;12.0+PTX", "matrix.yaml")


class Look:
    """Gives GPUs, and remembers for whom it was asked."""

    def __init__(self, *archs, why=None):
        self.seen = VisibleGpus(tuple(Gpu(i, "a GPU", parse(a)) for i, a in enumerate(archs)), why)
        self.asked = []

    def __call__(self, backend, environ):
        self.asked.append((backend, dict(environ)))
        return self.seen


def read(compiler, environ, look=None, **given):
    found = choose_archs(compiler, environ, look=look or Look(why="no driver"), **given)
    return " ".join(map(str, found.archs)), found.source


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        (("argument", "machine", "default"), "8.6 9.0", ("8.0", "--archs")),
        (("machine", "default"), "8.6 9.0", ("8.6 9.0", "TORCH_CUDA_ARCH_LIST")),
        (("machine", "default"), "", ("9.0", "visible GPUs")),
        (("machine", "default"), None, ("9.0", "visible GPUs")),
        (("machine",), None, ("9.0", "visible GPUs")),
        (("default",), None, ("7.5 12.0+PTX", "matrix.yaml")),
        (("argument",), None, ("8.0", "--archs")),
    ],
)
def test_the_first_that_says_something_counts(given, environ, expected):
    found = read(
        CUDA,
        {} if environ is None else {"TORCH_CUDA_ARCH_LIST": environ, "PYTORCH_ROCM_ARCH": "gfx942"},
        Look("9.0"),
        argument=ARGUMENT if "argument" in given else None,
        for_this_machine="machine" in given,
        default=DEFAULT if "default" in given else None,
    )
    assert found == expected


def test_rocm_has_its_own_variable():
    environ = {"TORCH_CUDA_ARCH_LIST": "9.0", "PYTORCH_ROCM_ARCH": "gfx942"}
    assert read(ROCM, environ) == ("gfx942", "PYTORCH_ROCM_ARCH")


def test_the_gpus_are_asked_for_only_when_they_matter():
    look = Look("9.0")
    read(CUDA, {"TORCH_CUDA_ARCH_LIST": "8.0"}, look, for_this_machine=True)
    read(CUDA, {}, look, default=DEFAULT)
    assert look.asked == []
    environ = {"TORCH_CUDA_ARCH_LIST": "native", "CUDA_VISIBLE_DEVICES": "0"}
    assert read(CUDA, environ, look) == ("9.0", "TORCH_CUDA_ARCH_LIST")
    assert look.asked == [("cuda", environ)]


def test_without_a_gpu_the_default_counts():
    assert read(CUDA, {}, for_this_machine=True, default=DEFAULT) == ("7.5 12.0+PTX", "matrix.yaml")


def test_what_is_left_out_is_told():
    found = choose_archs(CUDA, {}, argument=NamedArchs("6.0 8.0", "--archs"))
    assert " ".join(map(str, found.archs)) == "8.0"
    assert [text.split(":")[0] for text in found.left_out] == ["6.0"]
    seen = choose_archs(CUDA, {}, for_this_machine=True, look=Look("6.1", "9.0"))
    assert [text.split(":")[0] for text in seen.left_out] == ["6.1"]


HERE = {"for_this_machine": True}
REFUSED = {
    "no GPU": (
        *(CUDA, {}, HERE),
        r"no arch to compile for: no driver; set TORCH_CUDA_ARCH_LIST, e\.g\. \w+=9\.0$",
    ),
    "nothing named": (
        *(ROCM, {}, {}),
        r".*nothing names one; set PYTORCH_ROCM_ARCH, e\.g\. PYTORCH_ROCM_ARCH=gfx942$",
    ),
    "nothing left": (
        *(CUDA, {}, {"argument": NamedArchs("6.0 6.1", "--archs")}),
        r"--archs: nothing to compile for: 6\.0: CUDA 13\.0 cannot .*; 6\.1: CUDA 13\.0 can",
    ),
    "nothing left of the GPUs": (
        *(CUDA, {}, {**HERE, "look": Look("6.1")}),
        r"visible GPUs: nothing to compile for: 6\.1: CUDA 13",
    ),
    "a wrong variable": (
        *(CUDA, {"TORCH_CUDA_ARCH_LIST": "9.x"}, {}),
        r'TORCH_CUDA_ARCH_LIST: "9\.x" is not an arch',
    ),
    "an empty argument": (
        *(CUDA, {}, {"argument": NamedArchs("", "--archs")}),
        r"--archs: an arch list expected",
    ),
}


@pytest.mark.parametrize(("compiler", "environ", "given", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_names_its_source(compiler, environ, given, says):
    with pytest.raises(UsageError, match=f"^{says}"):
        read(compiler, environ, **given)


def test_every_minor_release_of_the_range_is_there():
    cuda = ["11.8", *(f"12.{minor}" for minor in range(10) if minor != 7)]
    assert list(releases.archs_by_release("cuda")) == [
        *cuda,
        *(f"13.{minor}" for minor in range(6)),
    ]
    rocm = ["5.7", "6.0", "6.1", "6.2", "6.3", "6.4", "7.0", "7.1", "7.2"]
    assert list(releases.archs_by_release("rocm")) == rocm


def test_pascal_to_blackwell():
    assert arch_names("cuda")[:3] == ("3.5", "3.7", "5.0")
    assert {"6.0", "6.1", "10.7f", "12.1a"} <= set(arch_names("cuda"))
    assert {"gfx900", "gfx9-generic", "gfx1251"} <= set(arch_names("rocm"))


def test_an_arch_that_goes_never_comes_back():
    """A hole in a column would be a mistake of the table."""
    for backend in ("cuda", "rocm"):
        for name in arch_names(backend):
            has = [name in listed for listed in releases.archs_by_release(backend).values()]
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
    assert found == list(releases.archs_by_release("cuda")[as_release])


NO_RELEASE = ("", "13", "x", "13.0-0f2d", "13.\u0660", "99999.1", "1.2\n")


@pytest.mark.parametrize(
    ("release", "says"),
    [
        *((release, r'is no release of CUDA; expected e\.g\. "13\.0"') for release in NO_RELEASE),
        ("11.4", r"^CUDA 11\.4 is too old: 11\.8 or later expected"),
    ],
)
def test_no_release(release, says):
    with pytest.raises(UsageError, match=f"{says}$"):
        _ = ToolkitRelease("cuda", release).archs


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
