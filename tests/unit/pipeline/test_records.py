import dataclasses
import json
import os
import subprocess
import sys

import pytest

from torchwheel.pipeline import build_records
from torchwheel.pipeline.build_records import BuildRecord
from torchwheel.pipeline.sources import source_digest
from torchwheel_runtime.files import (
    make_folder_atomically,
    remove_leftovers,
    sha256,
    write_atomically,
    write_text,
)


@pytest.fixture
def record(tmp_path):
    wheel = tmp_path / "ext-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    made = BuildRecord("pure", "key", wheel.name, sha256(wheel), 5, (), "any", 7, "passed", 1.0, {})
    build_records.save_record(tmp_path, made)
    return made


def test_a_finished_variant_is_found_again(tmp_path, record):
    assert build_records.load_finished(tmp_path, "pure", "key") == record
    assert build_records.all_records(tmp_path) == [record]


def test_other_inputs_a_changed_wheel_and_a_torn_record_are_not_finished(tmp_path, record):
    assert build_records.load_finished(tmp_path, "pure", "other") is None
    file = tmp_path / build_records.FOLDER / "pure.json"
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    assert build_records.load_finished(tmp_path, "pure", "key") is None
    file.write_text(whole)
    (tmp_path / record.file).write_bytes(b"whee")
    assert build_records.load_finished(tmp_path, "pure", "key") is None
    assert build_records.all_records(tmp_path) == []


def test_forgetting_takes_the_old_wheel_along_and_nothing_outside(tmp_path, record):
    build_records.forget_record(tmp_path, "pure")
    assert not (tmp_path / record.file).exists()
    outside = tmp_path.parent / "outside.whl"
    outside.write_bytes(b"")
    build_records.save_record(tmp_path, dataclasses.replace(record, file="../outside.whl"))
    build_records.forget_record(tmp_path, "pure")
    assert outside.exists()


@pytest.mark.parametrize(
    "name", [5, "..", ".torchwheel", "index", "report.json", "", "a\0.whl", None]
)
def test_a_record_that_names_no_wheel_takes_nothing_along(tmp_path, record, name):
    (tmp_path / "index").mkdir()
    (tmp_path / "report.json").touch()
    before = set(tmp_path.iterdir())
    file = tmp_path / build_records.FOLDER / "pure.json"
    file.write_text(json.dumps({"file": name}))
    build_records.forget_record(tmp_path, "pure")
    assert build_records.load_finished(tmp_path, "pure", "key") is None
    assert set(tmp_path.iterdir()) == before


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    target = tmp_path / "file"
    write_text(target, "old")
    with pytest.raises(RuntimeError), write_atomically(target) as aside:  # noqa: PT012
        aside.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208


def test_a_failed_folder_leaves_the_old_one_and_no_other(tmp_path):
    target = tmp_path / "folder"
    with make_folder_atomically(target) as aside:
        (aside / "a").write_text("old")
    with pytest.raises(RuntimeError), make_folder_atomically(target) as aside:  # noqa: PT012
        (aside / "a").write_text("half")
        raise RuntimeError
    assert (target / "a").read_text() == "old"
    with make_folder_atomically(target) as aside:
        (aside / "b").write_text("new")
    assert os.listdir(target) == ["b"]  # noqa: PTH208
    assert os.listdir(tmp_path) == ["folder"]  # noqa: PTH208


def test_what_killed_writers_left_is_swept_and_nothing_else(tmp_path):
    code = (
        "import os, sys; from pathlib import Path\n"
        "from torchwheel_runtime.files import make_folder_atomically, write_atomically\n"
        "one = write_atomically(Path(sys.argv[1], 'file')); one.__enter__()\n"
        "two = make_folder_atomically(Path(sys.argv[1], 'folder'))\n"
        "(two.__enter__() / 'x').touch()\n"
        "os._exit(9)\n"
    )
    (tmp_path / "kept").touch()
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert len(os.listdir(tmp_path)) == 3  # noqa: PTH208
    remove_leftovers(tmp_path, "folder")
    assert len(os.listdir(tmp_path)) == 2  # noqa: PTH208
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["kept"]  # noqa: PTH208


def test_the_source_digest_sees_names_contents_and_modes_but_no_output(tmp_path):
    (tmp_path / "a").write_text("1")
    first = source_digest(tmp_path)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "x").write_text("1")
    assert source_digest(tmp_path) == first
    (tmp_path / "deep" / "build").mkdir(parents=True)
    (tmp_path / "deep" / "build" / "source").touch()
    assert source_digest(tmp_path) != first
    (tmp_path / "deep" / "build" / "source").unlink()
    (tmp_path / "a").chmod(0o755)
    second = source_digest(tmp_path)
    (tmp_path / "a").write_text("2")
    third = source_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({first, second, third, source_digest(tmp_path)}) == 4
