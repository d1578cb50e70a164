"""Which distributions are installed, and which libraries are theirs."""

import pytest
from dist_infos import put

from torchwheel.doctor import dist_info
from torchwheel.inspect.wheel_files import ELF_MAGIC


@pytest.fixture
def folders(tmp_path):
    put(tmp_path / "a", name="torch_scatter", version="2.1.2", torchwheel__json=None)
    put(tmp_path / "b", name="demo")
    put(tmp_path / "b", name="Fused.Ops", version="1.0", RECORD=b"fusedops/__init__.py,,\n")
    (tmp_path / "b" / "no.dist-info").write_text("a file")
    return dist_info.dist_infos([str(tmp_path / "b"), str(tmp_path / "none"), str(tmp_path / "a")])


def test_folders_come_in_the_order_of_the_path(folders):
    assert [dist_info.name_key(folder) for folder in folders] == [
        "fused-ops",
        "demo",
        "torch-scatter",
    ]


@pytest.mark.parametrize("name", ["torch-scatter", "Torch_Scatter", "torch_scatter"])
def test_a_distribution_is_found_by_any_spelling(folders, name):
    (found,) = dist_info.find_distribution(name, folders)
    assert found.name == "torch_scatter-2.1.2.dist-info"


def test_a_distribution_is_found_by_what_is_imported_from_it(folders):
    (found,) = dist_info.find_distribution("fusedops", folders)
    assert found.name == "Fused.Ops-1.0.dist-info"
    assert dist_info.find_distribution("fused", folders) == []


def test_those_with_claims_and_those_with_a_name_like_it(folders):
    assert dist_info.distributions_with_claims(folders) == ["demo", "fused-ops"]
    assert dist_info.similar_names("torch_scater", folders) == ["torch-scatter"]
    assert dist_info.similar_names("pandas", folders) == []
    assert dist_info.similar_names("x" * 10_000, folders) == []


def test_libraries_are_those_listed_and_those_in_the_packages_folder(tmp_path):
    info = dist_info.read_dist_info(put(tmp_path))
    elsewhere = tmp_path / "src" / "demo"
    (elsewhere / "lib").mkdir(parents=True)
    (elsewhere / "lib" / "libx.so.1").write_bytes(ELF_MAGIC)
    (elsewhere / "notes.so").write_text("no library")
    (tmp_path / "demo.libs").mkdir()
    (tmp_path / "demo.libs" / "libgomp.so.1").write_bytes(ELF_MAGIC)
    found = dist_info.native_libraries(tmp_path, info, [elsewhere, tmp_path / "demo.libs"])
    assert [path.relative_to(tmp_path) for path in found] == [
        (tmp_path / "demo" / "_C.so").relative_to(tmp_path),
        (elsewhere / "lib" / "libx.so.1").relative_to(tmp_path),
    ]
