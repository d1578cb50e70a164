"""Installations that bench/load.py measures, and its table."""

import load

from wheelmaker import make_wheel


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
