"""AMD's GPUs, out of a folder that is what the kernel shows below /."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.arch import drivers
from torchwheel.arch.devices import Gpu, VisibleGpus, visible_gpus
from torchwheel.arch.model import parse
from torchwheel.errors import TorchwheelError


class Sysfs:
    """A folder that is to ROCm's kernel driver what / is."""

    def __init__(self, root: Path):
        self.root = root
        self.nodes = root / "sys/class/kfd/kfd/topology/nodes"
        self.nodes.mkdir(parents=True)
        (root / "dev").mkdir()
        (root / "dev/kfd").touch()

    def node(self, number, version=0, cores=0, **facts):
        folder = self.nodes / str(number)
        folder.mkdir()
        facts = {"cpu_cores_count": 0, "simd_count": cores, "gfx_target_version": version, **facts}
        text = "".join(f"{name} {value}\n" for name, value in facts.items())
        (folder / "properties").write_text(text)

    def product(self, minor, name):
        folder = self.root / f"sys/class/drm/renderD{minor}/device"
        folder.mkdir(parents=True)
        (folder / "product_name").write_text(name)

    def seen(self, **environ):
        return visible_gpus("rocm", environ, root=self.root)

    def archs(self, **environ):
        return " ".join(str(gpu.arch) for gpu in self.seen(**environ).gpus)


@pytest.fixture
def sysfs(tmp_path):
    return Sysfs(tmp_path)


@pytest.fixture
def node_with_four(sysfs):
    """A processor and four GPUs, more than nine nodes apart."""
    sysfs.node(0, cpu_cores_count=64)
    sysfs.node(2, 90010, 440, unique_id=0x0A0B0C0D0E0F1011, drm_render_minor=128)
    sysfs.node(3, 90402, 1216, unique_id=0xABCD000000000001, drm_render_minor=129)
    sysfs.node(9, 100306, 4)
    sysfs.node(10, 110000, 192, unique_id=0xABCD000000000002, drm_render_minor=131)
    sysfs.product(129, "AMD Instinct MI300X OAM\n")
    return sysfs


def test_amds_gpus(node_with_four):
    assert node_with_four.seen().gpus == (
        Gpu(0, "gfx90a", parse("gfx90a")),
        Gpu(1, "AMD Instinct MI300X OAM", parse("gfx942")),
        Gpu(2, "gfx1036", parse("gfx1036")),
        Gpu(3, "gfx1100", parse("gfx1100")),
    )


@pytest.mark.parametrize(
    ("environ", "archs"),
    [
        ({"HIP_VISIBLE_DEVICES": "1"}, "gfx942"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "gfx942"),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, "gfx942"),
        ({"ROCR_VISIBLE_DEVICES": "3,1"}, "gfx1100 gfx942"),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "1"}, "gfx942"),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "CUDA_VISIBLE_DEVICES": "0"}, "gfx1100"),
        ({"ROCR_VISIBLE_DEVICES": "3", "HIP_VISIBLE_DEVICES": "1"}, ""),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0a0b0c0d0e0f1011"}, "gfx90a"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-ABCD000000000002,GPU-0A"}, "gfx1100 gfx90a"),
        ({"ROCR_VISIBLE_DEVICES": ""}, ""),
        ({"ROCR_VISIBLE_DEVICES": "-1"}, ""),
        ({"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, "gfx1030 gfx1030 gfx1030 gfx1030"),
        ({"HSA_OVERRIDE_GFX_VERSION_9": "10.3.0"}, "gfx90a gfx942 gfx1030 gfx1100"),
        ({"HSA_OVERRIDE_GFX_VERSION": "9.0.10", "HIP_VISIBLE_DEVICES": "2"}, "gfx90a"),
        ({"HSA_OVERRIDE_GFX_VERSION": "10.3"}, "gfx90a gfx942 gfx1036 gfx1100"),
    ],
)
def test_amds_variables(node_with_four, environ, archs):
    assert node_with_four.archs(**environ) == archs


def test_hidden_amd_gpus_name_the_variable(node_with_four):
    assert node_with_four.seen(HIP_VISIBLE_DEVICES="-1").why == (
        'HIP_VISIBLE_DEVICES="-1" hides every GPU; 4 could be used'
    )


def test_a_node_that_is_kept_from_this_container_is_not_there(node_with_four):
    """The kernel refuses to show it; a folder in the file's place refuses too."""
    properties = node_with_four.nodes / "3/properties"
    properties.unlink()
    properties.mkdir()
    assert node_with_four.archs() == "gfx90a gfx1036 gfx1100"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "simd_count 4",
        "simd_count 4\ngfx_target_version 90402\nunique_id x\n",
        "simd_count 4\ngfx_target_version x\n",
        "simd_count\n",
        "\0",
        "a b c\n",
    ],
)
def test_a_node_that_says_nothing_of_use_is_not_there(sysfs, text):
    sysfs.node(0, 90010, 440)
    sysfs.node(1, 90402, 1216)
    (sysfs.nodes / "0/properties").write_text(text)
    assert sysfs.archs() == "gfx942"


@given(st.binary(max_size=200))
def test_any_bytes_of_the_kernel_are_read_without_harm(tmp_path_factory, content):
    sysfs = Sysfs(tmp_path_factory.mktemp("sys"))
    sysfs.node(0)
    (sysfs.nodes / "0/properties").write_bytes(content)
    assert isinstance(sysfs.seen(), VisibleGpus)


def test_a_machine_of_processors_alone_has_no_gpu(sysfs):
    sysfs.node(0, cpu_cores_count=64)
    sysfs.node(1, version=90402)
    sysfs.node(2, cores=1216)  # a kernel before 5.16 does not tell the version
    (sysfs.nodes / "generation_id").touch()
    assert sysfs.seen() == VisibleGpus((), "the driver knows of no GPU")


def test_a_device_that_may_not_be_opened_says_what_to_do(node_with_four):
    (node_with_four.root / "dev/kfd").unlink()
    with pytest.raises(
        TorchwheelError, match=r"no access to .*kfd: add this user to the groups ren"
    ):
        drivers.amd_boards({}, node_with_four.root)
    assert node_with_four.seen().gpus == ()


def test_amds_driver(tmp_path):
    assert drivers.amd_driver(tmp_path) is None
    module = tmp_path / "sys/module/amdgpu"
    module.mkdir(parents=True)
    assert drivers.amd_driver(tmp_path) == os.uname().release
    (module / "version").write_text("6.10.5\n")
    assert drivers.amd_driver(tmp_path) == "6.10.5"
