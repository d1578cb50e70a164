from torchwheel.arch import model as arch
from torchwheel.arch.toolkit_releases import archs_by_release
from torchwheel.matrix import torch_releases
from torchwheel.versions import version_numbers


def test_every_arch_in_the_data_is_one():
    for backend in ("cuda", "rocm"):
        for names in archs_by_release(backend).values():
            assert all(arch.backend_of(arch.parse(name)) == backend for name in names)
            assert list(names) == [str(a) for a in sorted(map(arch.parse, names))]


def test_releases_stand_in_order():
    for releases in (
        archs_by_release("cuda"),
        archs_by_release("rocm"),
        torch_releases.torch_releases(),
    ):
        assert list(releases) == sorted(releases, key=version_numbers)


def test_what_cuda_13_dropped_and_gained():
    assert "7.0" in archs_by_release("cuda")["12.9"]
    assert "7.0" not in archs_by_release("cuda")["13.0"]
    assert {"10.3f", "12.1a", "8.8", "11.0"} <= set(archs_by_release("cuda")["13.0"])
    assert "12.0" not in archs_by_release("cuda")["12.6"]


def test_cuda_majors_of_torch():
    majors = {
        minor: known.majors("cuda") for minor, known in torch_releases.torch_releases().items()
    }
    assert majors["2.6"] == (11, 12)
    assert majors["2.8"] == (12,)
    assert majors["2.9"] == (12, 13)
    assert majors["2.15"] == (13,)
