"""The tools beside the benchmark: what they count, and what the pages say of it."""

import hashlib
import json
import zipfile
from pathlib import Path

import growth
import kernel_compression as compression
import kernels_below
import load
import pytest
from bench_records import MIB, record, row, small, timing
from kernelbench.record import read

from torchwheel.inspect.wheel import read_wheel
from torchwheel_runtime.arch.releases import TorchFacts
from torchwheel_runtime.claims import Claims, Part
from wheelmaker import make_wheel

# Which cells of a record miss the target for their bandwidth, and whether a copy does too.


ROOT = Path(__file__).parents[3]


def test_large_cells_below_the_target_are_counted():
    def cell(ours, copy, **changes):
        return row(times={"ours": timing(ours), "copy": timing(copy)}, **changes)

    # 128 MiB in 33.55 us are 100 per cent.
    rows = [
        cell(34.0, 34.5, op="met"),
        cell(40.0, 34.0, op="below a copy"),
        cell(36.0, 36.0, op="as a copy"),
        cell(400.0, 34.0, op="smaller", bytes_moved=63 * MIB),
        small(),
        cell(35.2, 34.0, family="softmax"),
    ]
    lines = list(kernels_below.table(record(*rows)))
    assert "| norm, 97 % | 3 | 2 | 84 % | 1 |" in lines
    assert "| softmax, 95 % | 1 | 0 |  | 0 |" in lines


@pytest.fixture(scope="module")
def newest():
    return read(ROOT / "docs" / "records" / "kernels-h200-2026-11-30.json")


def test_the_documented_table_is_the_records(newest):
    documented = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    assert "\n".join(kernels_below.table(newest)) in documented


def test_the_documented_count_of_lost_cells_is_the_records(newest):
    lost, cells = len(newest.lost), len(newest.rows)
    words = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f" {lost} of {cells} cells are more than 2 % slower than a peer" in words
    figures = " ".join((ROOT / "docs" / "figures.md").read_text(encoding="utf-8").split())
    assert f"**{lost} of all {cells} cells are more than 2 % slower than a peer**" in figures


def test_the_documented_count_of_an_h100_is_the_records():
    found = read(ROOT / "docs" / "records" / "kernels-h100-2026-11-27.json")
    figures = " ".join((ROOT / "docs" / "figures.md").read_text(encoding="utf-8").split())
    lost, cells = len(found.lost), len(found.rows)
    assert f"**{lost} of {cells} cells are more than 2 % slower than a peer**" in figures


# A wheel with one kernel library packed anew, and the arguments of fatbinary.


TAG = "py3-none-manylinux_2_17_x86_64"


def library_part(kind, name, **facts):
    return Part(kind, name, f"demo/_lib/{kind}/{name}.so", "00", **facts)


PARTS = (
    library_part("kernels", "cu124", backend="cuda", toolkit_version="12.4"),
    library_part("kernels", "cu130", backend="cuda", toolkit_version="13.0"),
    library_part("front_end", "stable", torch_release="2.11"),
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


# What a universal wheel's parts cost, and what others need without one.


def test_peers_have_a_file_for_each_torch_python_and_toolkit():
    releases = {
        "2.6": TorchFacts({"cuda": ("11.8", "12.4", "12.6"), "rocm": ("6.2",)}, ("3.9", "3.10")),
        "2.11": TorchFacts({"cuda": ("12.6", "13.0"), "rocm": ("7.1", "7.2")}, ("3.10", "3.11")),
    }
    assert growth.peer_files(releases, ["2.6"]) == {"by_release": 2, "by_major": 1}
    assert growth.peer_files(releases, releases) == {"by_release": 10, "by_major": 7}


def part(kind: str, size: int, seconds: float | None = 1.0) -> dict[str, object]:
    return {"kind": kind, "bytes_in_wheel": size, "cpu_seconds": seconds}


def test_without_sharing_each_front_end_has_a_copy_of_all_kernels():
    rows = [part("kernels", 100, 10), part("kernels", 50), part("entry_points", 7)]
    rows += [part("front_end", 4), part("front_end", 5), part("front_end", 6)]
    assert growth.sharing(rows) == {
        "front_ends": 3,
        "shared": {"bytes_in_wheel": 172, "cpu_seconds": 15},
        "copied": {"bytes_in_wheel": 472, "cpu_seconds": 37},
    }
    sums = growth.sharing([*rows, part("front_end", 1, None)])
    assert sums["copied"] == {"bytes_in_wheel": 623, "cpu_seconds": None}


def test_the_page_says_what_the_record_says_of_sharing(monkeypatch, capsys):
    record = ROOT / "docs" / "records" / "growth-universal-2026-11-26.json"
    monkeypatch.setattr("sys.argv", ["growth.py", str(record)])
    growth.main()
    shared = "each kernel library once: 21.1 MiB, 1236 CPU s; "
    copied = "in each of 6 front ends: 118.9 MiB, 7117 CPU s"
    assert shared + copied in capsys.readouterr().out.splitlines()
    page = " ".join((ROOT / "docs" / "figures.md").read_text().split())
    assert "118.9 MiB and 7117 CPU seconds instead of 21.1 MiB and 1236" in page


def test_a_record_is_not_recorded_again(tmp_path, monkeypatch, capsys):
    record = tmp_path / "growth.json"
    record.write_text(json.dumps({"universal": [], "files_of_peers": {}}))
    arguments = ["growth.py", str(record), "--record", str(tmp_path / "new.json")]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit):
        growth.main()
    assert "is a record already; name the folder of a run" in capsys.readouterr().err
    assert not (tmp_path / "new.json").exists()


def test_the_table_has_a_row_for_each_part():
    row = {
        "part": "torch2.6-front-end",
        "kind": "front_end",
        "cpu_seconds": 4.25,
        "files_compiled": 12,
        "bytes_installed": 600 << 10,
        "bytes_in_wheel": 200 << 10,
    }
    text = growth.parts_text([row, {**row, "cpu_seconds": None}], {"by_release": 9, "by_major": 4})
    _, counted, uncounted, sums, files = text.splitlines()
    assert counted.split() == ["torch2.6-front-end", "4.2", "12", "600", "KiB", "200", "KiB"]
    assert uncounted.split()[1] == "-"
    assert sums == "each kernel library once: 400 KiB; in each of 2 front ends: 400 KiB"
    assert files.endswith("9, for each major release: 4")


# Installations that bench/load.py measures, and its table.


def test_a_folder_is_measured_as_it_is_with_the_library_that_is_forced(tmp_path):
    one = load.install(f"cu124={tmp_path}@cu124", tmp_path)
    assert (one.name, one.folder, one.library) == ("cu124", tmp_path, "cu124")
    assert one.environment()["TORCHWHEEL_LIBRARY"] == "cu124"
    assert one.environment()["PYTHONPATH"] == str(tmp_path)
    assert one.about() == {"library": "cu124"}


def test_a_wheel_is_installed_with_its_bundled_packages_and_named_in_the_record(tmp_path):
    wheel = make_wheel(tmp_path / "dist", requires=("torch>=2.6", "helper"))
    make_wheel(tmp_path / "dist" / "bundled", name="helper", requires=())
    one = load.install(f"mine={wheel}", tmp_path / "sites")
    assert {path.name for path in one.folder.glob("*.dist-info")} == {
        "demo-1.0.0.dist-info",
        "helper-1.0.0.dist-info",
    }
    about = one.about()
    assert (about["wheel"], about["size"]) == (wheel.name, wheel.stat().st_size)
    assert "TORCHWHEEL_LIBRARY" not in one.environment()


def test_the_table_has_medians():
    runs = [
        dict.fromkeys(("import_ms", "first_call_ms", "others_ms", "steady_us"), value)
        | {"library": "cu130.so"}
        for value in (3.0, 1.0, 2.0)
    ]
    head, row = load.table({"universal": runs}).splitlines()
    assert head.split()[:2] == ["import", "ms"]
    assert row.split() == ["universal", "2.0", "2.0", "2.0", "2.0", "cu130.so"]
