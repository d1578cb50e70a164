import pytest

from torchwheel.arch.devices import Gpu, VisibleGpus
from torchwheel.arch.lists import NamedArchs, choose_archs
from torchwheel.arch.model import parse
from torchwheel.arch.toolkit_releases import ToolkitRelease
from torchwheel.errors import UsageError

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


def test_without_anything_it_says_why_and_what_to_do():
    with pytest.raises(
        UsageError,
        match=r"^no arch to compile for: no driver; set TORCH_CUDA_ARCH_LIST, e\.g\. \w+=9\.0$",
    ):
        read(CUDA, {}, for_this_machine=True)
    with pytest.raises(
        UsageError,
        match=r"nothing names one; set PYTORCH_ROCM_ARCH, e\.g\. PYTORCH_ROCM_ARCH=gfx942$",
    ):
        read(ROCM, {})


def test_what_is_left_out_is_told():
    found = choose_archs(CUDA, {}, argument=NamedArchs("6.0 8.0", "--archs"))
    assert " ".join(map(str, found.archs)) == "8.0"
    assert [str(left.arch) for left in found.left_out] == ["6.0"]
    seen = choose_archs(CUDA, {}, for_this_machine=True, look=Look("6.1", "9.0"))
    assert [str(left.arch) for left in seen.left_out] == ["6.1"]


def test_nothing_left_is_an_error_that_says_all():
    with pytest.raises(
        UsageError,
        match=r"^--archs: nothing to compile for: 6\.0: CUDA 13\.0 cannot .*; 6\.1: CUDA 13\.0 can",
    ):
        choose_archs(CUDA, {}, argument=NamedArchs("6.0 6.1", "--archs"))
    with pytest.raises(UsageError, match=r"^visible GPUs: nothing to compile for: 6\.1: CUDA 13"):
        choose_archs(CUDA, {}, for_this_machine=True, look=Look("6.1"))


def test_a_wrong_list_names_its_source():
    with pytest.raises(UsageError, match=r'^TORCH_CUDA_ARCH_LIST: "9\.x" is not an arch'):
        read(CUDA, {"TORCH_CUDA_ARCH_LIST": "9.x"})
    with pytest.raises(UsageError, match=r"^--archs: an arch list expected"):
        read(CUDA, {}, argument=NamedArchs("", "--archs"))
