"""What a universal wheel's parts cost, and what others need without one."""

import json
from pathlib import Path

import growth
import pytest

from torchwheel.arch.torch_releases import TorchFacts


def test_peers_have_a_file_for_each_torch_python_and_toolkit():
    releases = {
        "2.6": TorchFacts({"cuda": ("11.8", "12.4", "12.6"), "rocm": ("6.2",)}, ("3.9", "3.10")),
        "2.11": TorchFacts({"cuda": ("12.6", "13.0"), "rocm": ("7.1", "7.2")}, ("3.10", "3.11")),
    }
    assert growth.peer_files(releases, ["2.6"]) == {"by_release": 2, "by_major": 1}
    assert growth.peer_files(releases, releases) == {"by_release": 10, "by_major": 7}


ROOT = Path(__file__).parents[3]


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
