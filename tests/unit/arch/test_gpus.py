"""GPUs as the kernel driver lists them, and those that variables hide."""

import os
import re
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel_runtime.arch import devices
from torchwheel_runtime.arch.devices import (
    Board,
    Gpu,
    VisibleGpus,
    cuda_order,
    select_boards,
    visible_gpus,
)
from torchwheel_runtime.arch.model import CudaArch, parse
from torchwheel_runtime.errors import TorchwheelError

# AMD's GPUs, out of a folder that is what the kernel shows below /.


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


@pytest.mark.parametrize(
    ("environ", "archs"),
    [
        ({"ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942"}, "gfx942"),
        ({"ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942, gfx942,gfx1100"}, "gfx942 gfx942 gfx1100"),
        (
            {"ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942,gfx1100", "HIP_VISIBLE_DEVICES": "1"},
            "gfx1100",
        ),
        (
            {"ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx950", "ROCM_BOOTSTRAP_DISABLE_DETECTION": "1"},
            "",
        ),
        ({"ROCM_BOOTSTRAP_DISABLE_DETECTION": "0"}, "gfx90a gfx942 gfx1036 gfx1100"),
    ],
)
def test_archs_that_amds_provider_is_told_to_find(node_with_four, environ, archs):
    assert node_with_four.archs(**environ) == archs


@pytest.mark.parametrize("name", ["MI300X", "9.0"])
def test_a_forced_arch_is_amds(sysfs, name):
    assert sysfs.seen(ROCM_BOOTSTRAP_FORCE_GFX_ARCH=name).why == (
        f'ROCM_BOOTSTRAP_FORCE_GFX_ARCH: expected archs such as gfx942, found "{name}"'
    )


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
        *("", "simd_count 4", "simd_count\n", "\0", "a b c\n"),
        "simd_count 4\ngfx_target_version 90402\nunique_id x\n",
        "simd_count 4\ngfx_target_version x\n",
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
        devices.amd_boards({}, node_with_four.root)
    assert node_with_four.seen().gpus == ()


def test_amds_driver(tmp_path):
    with pytest.raises(devices.DriverError, match="no AMD GPU driver"):
        devices.amd_driver(tmp_path)
    module = tmp_path / "sys/module/amdgpu"
    module.mkdir(parents=True)
    assert devices.amd_driver(tmp_path).version == os.uname().release
    (module / "version").write_text("6.10.5\n")
    assert devices.amd_driver(tmp_path).version == "6.10.5"


# Which GPUs a process may use, by what the drivers list and the variables choose.


A100 = Board("A100", CudaArch(8, 0), "GPU-aa11", speed=6912 * 1410)
H200 = Board("H200", CudaArch(9, 0), "GPU-ab22", speed=16896 * 1980)
T4 = Board("T4", CudaArch(7, 5), "GPU-cd33", speed=2560 * 1590)
SLICED = Board("H100", CudaArch(9, 0), "GPU-ef44", slices=("MIG-1a", "MIG-1b", "MIG-2c"))
BOARDS = [A100, H200, T4, SLICED]


def names(value, boards=BOARDS):
    return " ".join(board.name for board in select_boards(value, boards))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("0", "A100"),
        ("2,0", "T4 A100"),
        (" 1 , 2 ", "H200 T4"),
        ("1gpu2,2ampere", "H200 T4"),
        ("+1", "H200"),
        ("", ""),
        ("-1", ""),
        ("0,-1,2", "A100"),
        ("0,x,2", "A100"),
        ("0,9,2", "A100"),
        ("0,0", ""),
        ("0,9,0", "A100"),
        ("0,9,9", "A100"),
        ("NoDevFiles", ""),
        ("GPU-aa11,GPU-cd33", "A100 T4"),
        ("GPU-c,GPU-aa", "T4 A100"),
        ("GPU-a", ""),  # the beginning of two
        ("GPU-cd,GPU-zz,GPU-aa", "T4"),
        ("GPU-cd,0,GPU-aa", "T4"),
        ("GPU-cd,aa11", "T4"),
        ("GPU-cd,GPU-cd33", ""),
        ("GPU-cd,GPU-cd", ""),
        ("GPU-", ""),
        ("gpu-cd33", ""),
        ("GPU-CD33", "T4"),
        ("0,GPU-cd33", "A100"),
        ("MIG-1b", "H100"),
        ("MIG-1b,MIG-2c", "H100"),
        ("MIG-1", ""),
        ("MIG-zz", ""),
        ("GPU-ef", "H100"),
    ],
)
def test_what_a_value_chooses(value, found):
    assert names(value) == found


def test_no_digits_of_a_uuid_name_no_board_even_if_there_is_one():
    assert names("GPU-", [T4]) == ""


NUMBERS = st.lists(
    st.sampled_from(["0", "1", "2", "3", "7", "-1", "", "1x", " 2 ", "+3", "x", "GPU-aa"])
)
UUIDS = st.lists(st.sampled_from(["GPU-aa11", "GPU-a", "GPU-ab", "GPU-cd", "GPU-zz", "0", ""]))


def one_board_again(entries):
    """torch minds a board that is named twice after the list has ended; CUDA does not (seen)."""
    named = [re.sub(r"[^0-9a-zA-Z-]", "", entry).removesuffix("x") for entry in entries]
    return len(set(named)) < len(named)


@given((NUMBERS | UUIDS).filter(lambda entries: not one_board_again(entries)).map(",".join))
def test_it_chooses_as_torch_does(value):
    cuda = pytest.importorskip("torch.cuda", reason="torch is not installed")
    with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=value):
        listed = cuda._parse_visible_devices()
    if listed and isinstance(listed[0], str):
        listed = cuda._transform_uuid_to_ordinals(listed, [board.uuid for board in BOARDS])
    known = next((i for i, n in enumerate(listed) if n >= len(BOARDS)), len(listed))
    assert list(select_boards(value, BOARDS)) == [BOARDS[n] for n in listed[:known]]


@given(st.text(max_size=12) | (NUMBERS | UUIDS).map(",".join))
def test_any_value_chooses_boards_that_are_there_each_once(value):
    found = list(select_boards(value, BOARDS))
    assert all(board in BOARDS for board in found)
    assert len({board.uuid for board in found}) == len(found)


def test_cuda_counts_the_fastest_first():
    boards = [T4, A100, H200]
    assert cuda_order(boards, {}) == [H200, A100, T4]
    assert cuda_order(boards, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}) == [H200, A100, T4]
    assert cuda_order(boards, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == boards
    alike = [
        Board("X", CudaArch(9, 0), "GPU-1", speed=1),
        Board("X", CudaArch(9, 0), "GPU-2", speed=2),
    ]
    assert cuda_order(alike, {}) == alike


def of(boards, monkeypatch):
    monkeypatch.setattr(devices, "nvidia_boards", lambda library: boards)


def test_nvidias_gpus_are_numbered_as_torch_does(monkeypatch):
    of([T4, H200], monkeypatch)
    assert visible_gpus("cuda", {}).gpus == (
        Gpu(0, "H200", CudaArch(9, 0)),
        Gpu(1, "T4", CudaArch(7, 5)),
    )
    assert visible_gpus("cuda", {"CUDA_VISIBLE_DEVICES": "1"}).gpus == (
        Gpu(0, "T4", CudaArch(7, 5)),
    )
    pci = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_gpus("cuda", pci).gpus == (Gpu(0, "H200", CudaArch(9, 0)),)


@pytest.mark.parametrize("value", ["", "-1", "GPU-zz", "7"])
def test_hidden_gpus_are_told_from_none(value, monkeypatch):
    of([T4, H200], monkeypatch)
    found = visible_gpus("cuda", {"CUDA_VISIBLE_DEVICES": value})
    assert found == VisibleGpus(
        (),
        f'CUDA_VISIBLE_DEVICES="{value}" hides every GPU; 2 could be used',
        hidden_by="CUDA_VISIBLE_DEVICES",
    )
    of([], monkeypatch)
    assert visible_gpus("cuda", {"CUDA_VISIBLE_DEVICES": value}).why == "the driver knows of no GPU"


NO_NVIDIA = "no NVIDIA driver: libno-such-library.so.1: cannot open shared obj"


def test_without_a_driver_there_is_a_reason(tmp_path):
    for backend, options, begins, ends in (
        ("cuda", {"library": "libno-such-library.so.1"}, NO_NVIDIA, ""),
        ("rocm", {"root": tmp_path}, "no AMD GPU driver: ", "No such file or directory"),
    ):
        found = visible_gpus(backend, {}, **options)
        assert found.gpus == ()
        assert found.why is not None
        assert found.why.startswith(begins)
        assert found.why.endswith(ends)
