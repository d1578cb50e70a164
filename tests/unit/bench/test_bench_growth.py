"""Files that an extension needs without a universal wheel, and the table of its parts."""

import growth

from torchwheel.matrix.torch_releases import TorchFacts


def test_peers_have_a_file_for_each_torch_python_and_toolkit():
    releases = {
        "2.6": TorchFacts({"cuda": ("11.8", "12.4", "12.6"), "rocm": ("6.2",)}, ("3.9", "3.10")),
        "2.11": TorchFacts({"cuda": ("12.6", "13.0"), "rocm": ("7.1", "7.2")}, ("3.10", "3.11")),
    }
    assert growth.peer_files(releases, ["2.6"]) == {"by_release": 2, "by_major": 1}
    assert growth.peer_files(releases, releases) == {"by_release": 10, "by_major": 7}


def test_the_table_has_a_row_for_each_part():
    row = {
        "part": "torch2.6-front-end",
        "cpu_seconds": 4.25,
        "files_compiled": 12,
        "bytes_installed": 600 << 10,
        "bytes_in_wheel": 200 << 10,
    }
    text = growth.parts_text([row, {**row, "cpu_seconds": None}], {"by_release": 9, "by_major": 4})
    _, counted, uncounted, files = text.splitlines()
    assert counted.split() == ["torch2.6-front-end", "4.2", "12", "600", "KiB", "200", "KiB"]
    assert uncounted.split()[1] == "-"
    assert files.endswith("9, for each major release: 4")
