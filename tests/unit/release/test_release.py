"""A release is complete and proven, or it is not written and each fault has a line."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest
from packaging.version import Version
from release_artifacts import NATIVE, TAG, Artifacts, refused, run

import wheelmaker
from torchwheel.check.gates import OF_CLAIMS
from torchwheel.cli import main
from torchwheel.evidence.policy import version_of_file
from torchwheel.index.catalogue import read_catalogue
from torchwheel.release import folder as release_folder
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import sha256
from wheelmaker import make_wheel, stable

CUDA = "demo-1.0.0+cu130-py3-none-manylinux_2_28_x86_64.whl"
PURE = "demo-1.0.0-py3-none-any.whl"
SDIST = "demo-1.0.0.tar.gz"

green = pytest.mark.usefixtures("green_gates")


@green
def test_a_complete_release(artifacts, out):
    text = run(artifacts, out, version="v1.0.0")
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[2:] == [
        "cu130-stable     2 KiB   9 ok  NVIDIA H200",
        "pure             2 KiB   9 ok  not run on a GPU",
        "unsigned: no signature was asked for (--commit)",
    ]
    assets = {
        *(CUDA, f"{CUDA}.metadata", PURE, f"{PURE}.metadata", SDIST, "catalogue.json"),
        *("cu130-stable.build.json", "cu130-stable.smoke-1.json", "cu130-stable.smoke-2.json"),
        *("pure.build.json", "pure.smoke-1.json", "pure.smoke-2.json"),
    }
    assert {path.name for path in out.iterdir()} == {
        *assets,
        *("SHA256SUMS", "pypi", "smoke", ".torchwheel"),
    }
    # PyPI takes no local version.
    assert sorted(path.name for path in (out / "pypi").iterdir()) == [PURE, SDIST]
    sums = [line.split("  ") for line in (out / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in sums} == assets
    for digest, name in sums:
        assert sha256(out / name) == digest


@green
def test_the_catalogue_names_hashes_gates_and_machines(artifacts, out):
    run(artifacts, out, version="v1.0.0")
    catalogue = read_catalogue(out / "catalogue.json")
    assert (catalogue.project, catalogue.tag) == ("demo", "v1.0.0")
    native, pure = catalogue.wheels
    assert (native.file, native.project, native.version) == (CUDA, "demo", "1.0.0+cu130")
    assert native.sha256 == sha256(out / CUDA)
    assert native.metadata_sha256 == sha256(out / f"{CUDA}.metadata")
    assert native.size == (out / CUDA).stat().st_size
    assert native.claims == stable()
    assert native.tags == (TAG,)
    assert native.requires_python == ">=3.10"
    assert list(native.gates) == list(OF_CLAIMS)
    assert sorted((run.verdict, run.on_gpu) for run in native.smoke) == [
        ("passed", True),
        ("passed, not run on a GPU", False),
    ]
    assert not any(run.on_gpu for run in pure.smoke)
    (on_gpu,) = (run for run in native.smoke if run.on_gpu)
    assert (on_gpu.gpu, on_gpu.arch, on_gpu.passed, on_gpu.skipped) == ("NVIDIA H200", "9.0", 1, 1)
    record = json.loads((out / on_gpu.record).read_text())
    assert (record["wheel"], record["verdict"]) == (CUDA, "passed")
    assert json.loads((out / native.record).read_text())["sha256"] == native.sha256
    (sdist,) = catalogue.sdists
    assert (sdist.file, sdist.version, sdist.size) == (SDIST, "1.0.0", 7)


@green
def test_what_a_record_says_was_chosen_decides_nothing(artifacts, out, tmp_path):
    """Nor is it missed: records of an earlier torchwheel have no such fields."""
    text = run(artifacts, out)
    says = {
        "variables": {"TORCHWHEEL_LIBRARY": "cu124", "TORCHWHEEL_CACHE": None},
        "choices": {"demo": ["GPU 0 (H200, 9.0): plain PyTorch"]},
    }
    files = sorted(artifacts.root.rglob("smoke/*.json"))
    assert files
    for changed in ({}, says):
        for file in files:
            record = json.loads(file.read_text())
            for name in says:
                record.pop(name, None)
            file.write_text(json.dumps({**record, **changed}))
        assert run(artifacts, tmp_path / f"with-{len(changed)}") == text


@green
def test_the_same_artifacts_give_the_same_bytes(artifacts, out, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    run(artifacts, out)
    run(artifacts, tmp_path / "again")
    files = sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    assert len(files) > 10
    for file in files:
        assert (out / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


@green
def test_a_gpu_that_no_runner_has_is_not_waited_for(artifacts, out):
    artifacts.replace(", cuda: [self-h", ", cpu: [h")
    artifacts.smoke_file("cu130-stable").unlink()
    assert "cu130-stable     2 KiB   9 ok  not run on a GPU" in run(artifacts, out)


@green
def test_the_version_is_the_tags(artifacts, out):
    assert refused(artifacts, out, version="v2.0") == [
        "cu130-stable: version 1.0.0; expected 2.0",
        "pure: version 1.0.0; expected 2.0",
    ]


@green
def test_a_rocm_wheel_without_an_amd_runner_needs_no_gpu_but_its_records(artifacts, out):
    shutil.rmtree(artifacts.root)
    artifacts.root.mkdir()
    lines = refused(artifacts, out, selection="amd")
    assert lines == ["rocm6.4-stable: no wheel; it is selected, so one is expected"]
    toolkit = {"backend": "rocm", "toolkit": "rocm6.4", "toolkit_version": "6.4"}
    claims = stable(variant="rocm6.4-stable", archs=("gfx942",), **toolkit)
    folder = artifacts.root / "wheel-rocm6.4-stable"
    wheel = make_wheel(folder, version="1.0.0+rocm6.4", tag=TAG, claims=claims)
    artifacts.add("rocm6.4-stable", wheel)
    assert "not run on a GPU" in run(artifacts, out, selection="amd")


@green
def test_a_wheel_that_changes_meanwhile_is_not_published(artifacts, out, monkeypatch):
    def changing(source: Path, target: Path) -> Path:
        target.write_bytes(b"other")
        return target

    monkeypatch.setattr(release_folder.shutil, "copyfile", changing)
    with pytest.raises(TorchwheelError, match="changed while it was copied"):
        run(artifacts, out)
    assert not out.exists()
    assert not [name for name in os.listdir(out.parent) if name.startswith(".")]  # noqa: PTH208


@green
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_only_a_release_is_replaced(artifacts, out, kind):
    if kind == "file":
        out.write_text("mine")
    else:
        out.mkdir()
        (out / "mine").touch()
    with pytest.raises(UsageError, match="is there and is no earlier release"):
        run(artifacts, out)
    assert out.is_file() or (out / "mine").exists()


@green
def test_what_killed_runs_left_goes_first_and_a_release_comes_back(artifacts, out):
    run(artifacts, out)
    before = (out / "catalogue.json").read_bytes()
    left = out.with_name(".release.0123abcd.temporary")
    left.mkdir()
    (left / "wheel").write_bytes(b"x" * 1000)
    # As after a kill between two renames, where names cannot be exchanged.
    out.rename(out.with_name(".release.0123abcd.previous"))
    with pytest.raises(TorchwheelError, match="nothing is written"):
        run(artifacts, out, version="2.0.0")
    assert not left.exists()
    assert (out / "catalogue.json").read_bytes() == before


def test_wrong_calls(artifacts, out):
    with pytest.raises(UsageError, match="'x' is not a version"):
        run(artifacts, out, version="x")
    with pytest.raises(UsageError, match='no variant or selection "relaese"'):
        run(artifacts, out, selection="relaese")
    shutil.rmtree(artifacts.root)
    with pytest.raises(UsageError, match="a folder of wheels and records expected"):
        run(artifacts, out)


@green
def test_the_command(artifacts, out, capsys):
    call = ["assemble", "--matrix", str(artifacts.matrix), "--out", str(out), str(artifacts.root)]
    assert main(call) == 0
    assert f"assembled in {out}" in capsys.readouterr().out
    artifacts.build_file("pure").unlink()
    assert main(call) == 1
    assert "pure: 0 build records; one expected" in capsys.readouterr().err
    assert (out / PURE).is_file()


def release_of(artifacts: Artifacts, folder: Path, version: str) -> None:
    """Another release of the same matrix, assembled into `folder`."""
    artifacts.again("cu130-stable", **{**NATIVE, "version": f"{version}+cu130"})
    artifacts.again("pure", version=version)
    run(artifacts, folder, version=version)


@pytest.fixture
def earlier(artifacts, tmp_path, green_gates) -> Path:
    """Catalogues as they are downloaded: a folder for each release, and one without."""
    release_of(artifacts, tmp_path / "v0.9", "0.9")
    (tmp_path / "earlier" / "v0.9").mkdir(parents=True)
    (tmp_path / "v0.9" / "catalogue.json").rename(tmp_path / "earlier/v0.9/catalogue.json")
    (tmp_path / "earlier" / "v0.1").mkdir()
    release_of(artifacts, tmp_path / "unused", "1.0.0")
    shutil.rmtree(tmp_path / "unused")
    return tmp_path / "earlier"


@green
def test_a_release_holds_its_own_files_alone(artifacts, out, earlier):
    run(artifacts, out, version="1.0.0", earlier=earlier)
    assert "0.9" not in (out / "SHA256SUMS").read_text()
    assert not list(out.rglob("*0.9*"))
    assert not (out / "index").exists()


@green
def test_a_file_keeps_the_time_of_its_first_publication(artifacts, out, earlier, monkeypatch):
    def uploaded() -> str:
        catalogue = read_catalogue(out / "catalogue.json")
        return next(wheel.uploaded for wheel in catalogue.wheels if wheel.file == PURE)

    first = "2026-01-01T00:00:00Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    run(artifacts, out, version="1.0.0", earlier=earlier)
    assert uploaded() == first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1798761600")
    run(artifacts, out, version="1.0.0", earlier=earlier)
    assert uploaded() == first
    # Another runner has what was published, not this folder.
    (earlier / "v1.0.0").mkdir()
    (out / "catalogue.json").rename(earlier / "v1.0.0" / "catalogue.json")
    shutil.rmtree(out)
    run(artifacts, out, version="1.0.0", earlier=earlier)
    assert uploaded() == first
    shutil.rmtree(out)
    run(artifacts, out, version="1.0.0")
    assert uploaded() == "2027-01-01T00:00:00Z"


@green
def test_a_time_that_is_none_is_refused(artifacts, out, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    line = "SOURCE_DATE_EPOCH: expected seconds since 1970, found 'yesterday'; unset it"
    with pytest.raises(UsageError, match=line):
        run(artifacts, out)
    assert not out.exists()


@green
@pytest.mark.parametrize("text", ["[]", '{"schema": 2}'])
def test_a_malformed_catalogue_of_an_earlier_release_is_named(artifacts, out, earlier, text):
    file = earlier / "v0.9" / "catalogue.json"
    file.write_text(text)
    with pytest.raises(TorchwheelError) as caught:
        run(artifacts, out, earlier=earlier)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{file}: expected ")
    assert line.endswith("; download the catalogue again")
    assert not out.exists()


@green
def test_a_release_whose_assets_were_deleted_stops_no_other(artifacts, out, earlier):
    """A maintainer deletes a bad wheel, or all assets of a release, and releases a new version."""
    (earlier / "v0.9" / "catalogue.json").unlink()
    run(artifacts, out, version="1.0.0", earlier=earlier)
    assert (out / PURE).is_file()


@green
def test_the_same_version_with_other_bytes_is_not_released_again(artifacts, out, tmp_path):
    earlier = tmp_path / "earlier"
    run(artifacts, earlier / "v1.0.0", version="v1.0.0")
    run(artifacts, out, earlier=earlier)
    shutil.rmtree(out)
    before = sha256(artifacts.wheels["pure"])
    artifacts.again("pure", files={"demo/__init__.py": b"answer = 43\n"})
    after = sha256(artifacts.wheels["pure"])
    assert refused(artifacts, out, earlier=earlier) == [
        f"wheel-pure/{PURE}: expected sha256 {before}, as v1.0.0 published this name, "
        f"found {after}; raise its version"
    ]
    with pytest.raises(TorchwheelError, match="none: expected a file or folder, found none"):
        run(artifacts, out, earlier=tmp_path / "none")


@green
def test_a_labelled_wheel_is_published_and_stays_off_pypi(artifacts, tmp_path):
    labels = 'universal: {toolkits: [cu130], labels: {cu13: [cu130], "null": []}}'
    artifacts.replace('pure: {torch: "2.6"}', f'{labels}, pure: {{torch: "2.6"}}')
    artifacts.drop("cu130-stable")
    null = dataclasses.replace(wheelmaker.PURE, variant="pure-null", label="null")
    artifacts.add("pure-null", make_wheel(artifacts.root / "wheel-pure-null", claims=null))
    artifacts.smoke("pure-null")
    out = tmp_path / "release"
    assert "pure-null" in run(artifacts, out, selection="pure*")
    name = "demo-1.0.0-py3-none-any-null.whl"
    assert (out / name).is_file()
    assert name in (out / "SHA256SUMS").read_text()
    assert [path.name for path in sorted((out / "pypi").glob("*.whl"))] == [
        "demo-1.0.0-py3-none-any.whl"
    ]
    published = read_catalogue(out / "catalogue.json")
    assert {wheel.file: wheel.claims.label for wheel in published.wheels if wheel.claims} == {
        "demo-1.0.0-py3-none-any.whl": None,
        name: "null",
    }
    assert version_of_file(name) == Version("1.0.0")
