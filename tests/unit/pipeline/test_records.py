import dataclasses
import io
import json
import re
import sys

import pytest

from torchwheel.matrix.variants import select
from torchwheel.pipeline import build_records, wheels
from torchwheel.pipeline.build_records import BuildRecord
from torchwheel.pipeline.sources import source_digest
from torchwheel_runtime.console import Escaping, Terminal
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256


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


def test_a_failed_variant_is_not_installed_of_an_earlier_source(
    tmp_path, record, run_of, monkeypatch
):
    def build(run, variant):
        if variant.id == "pure":
            raise TorchwheelError("no")
        return record, True

    monkeypatch.setattr(wheels, "build_variant", build)
    monkeypatch.setattr(wheels, "index_wheels", lambda *_: {})
    log = io.StringIO()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setattr(sys, "stderr", Escaping(log))
    run = run_of(dist=tmp_path, progress=Terminal())
    variants = select(run.matrix, ["pure", "cu130-stable"])
    said, status = wheels._build_all(run, variants, 1)
    assert status == 1
    assert "To install" not in said
    assert said.endswith(f"failed: pure: no\n{tmp_path}: {record.file} is of an earlier source")
    # In GitHub Actions the error is shown beside the log, once.
    assert re.findall("^::error::.*", log.getvalue(), re.M) == ["::error::torchwheel: pure: no"]


def test_the_seconds_of_the_last_run_are_there_or_not(tmp_path, record):
    build_records.save_record(tmp_path, dataclasses.replace(record, steps={"gates": 2.5}))
    assert build_records.last_seconds(tmp_path, record.variant) == {"gates": 2.5}
    path = tmp_path / build_records.FOLDER / f"{record.variant}.json"
    for text in ("{", "[]", '{"steps": {"gates": "x"}}'):
        path.write_text(text)
        assert build_records.last_seconds(tmp_path, record.variant) == {}
    assert build_records.last_seconds(tmp_path, "none") == {}


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
