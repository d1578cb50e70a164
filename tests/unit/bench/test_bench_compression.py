"""A wheel with one kernel library packed anew, and the arguments of fatbinary."""

import hashlib
import zipfile
from pathlib import Path

import kernel_compression as compression

from torchwheel.claims import Claims, Part
from torchwheel.inspect.wheel import read_wheel
from wheelmaker import make_wheel

TAG = "py3-none-manylinux_2_17_x86_64"


def part(kind, name, **facts):
    return Part(kind, name, f"demo/_lib/{kind}/{name}.so", "00", **facts)


PARTS = (
    part("kernels", "cu124", backend="cuda", toolkit_version="12.4"),
    part("kernels", "cu130", backend="cuda", toolkit_version="13.0"),
    part("front_end", "stable", torch_release="2.11"),
)


def test_a_wheel_keeps_one_kernel_library_and_claims_its_new_bytes(tmp_path):
    wheel = make_wheel(
        tmp_path,
        tag=TAG,
        requires=("torch>=2.6",),
        claims=Claims("universal", "universal", "2.6", parts=PARTS),
        files={one.file: b"old" for one in PARTS},
    )
    library = tmp_path / "cu130.so"
    library.write_bytes(b"new")
    made = compression.wheel_with(wheel, "cu130", library, tmp_path / "out")
    read = read_wheel(made)
    assert read.claims
    assert [one.name for one in read.claims.parts] == ["cu130", "stable"]
    assert read.claims.parts[0].sha256 == hashlib.sha256(b"new").hexdigest()
    with zipfile.ZipFile(made) as archive:
        assert archive.read("demo/_lib/kernels/cu130.so") == b"new"
        assert "demo/_lib/kernels/cu124.so" not in archive.namelist()


def test_an_image_is_named_by_its_arch():
    files = [Path("/t/norm.cu.sm_90.cubin"), Path("/t/norm.cu.sm_120.ptx")]
    assert compression.image_arguments(files) == [
        "--image3=kind=elf,sm=90,file=/t/norm.cu.sm_90.cubin",
        "--image3=kind=ptx,sm=120,file=/t/norm.cu.sm_120.ptx",
    ]


def test_the_table_has_both_sizes():
    _, row = compression.text("cu130", [compression.Packed("size", 3 << 20, 1 << 20)]).splitlines()
    assert row.split() == ["size", "3.0", "MiB", "1.0", "MiB"]
