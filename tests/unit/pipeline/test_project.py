"""The sources of a project: a folder, an sdist, a release or a git reference."""

import io
import tarfile

import pytest

from gitmaker import git, repository
from listener import Listener
from torchwheel.matrix.load import parse
from torchwheel.pipeline import sources
from torchwheel.pipeline.sources import project_folder
from torchwheel.sdist.request import find_source
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import sha256

# It would tell on itself.
SETUP = "raise SystemExit('setup.py was run')\n"
MATRIX = """
schema: 1
project: {{name: conv, source: "{source}"{more}}}
abis: {{ordinary: {{}}}}
build: {{tests: tests}}
toolkits:
  cu130: {{backend: cuda, version: "13.0", abis: [ordinary], archs: ["9.0"], source: pypi}}
torch: {{"2.11": {{toolkits: [cu130], pythons: ["3.12"]}}}}
platforms: [linux_x86_64]
"""


def folder_of(tmp_path, source, more="", heard=None):
    matrix = parse(MATRIX.format(source=source, more=more), "matrix.yaml")
    return project_folder(matrix, tmp_path, tmp_path / "cache", heard or Quiet())


@pytest.fixture
def sdist(tmp_path):
    path = tmp_path / "conv-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in (("setup.py", SETUP), ("csrc/a.cu", "// a")):
            member = tarfile.TarInfo(f"conv-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("conv-1.0/headers")
        link.type, link.linkname = tarfile.SYMTYPE, "csrc"
        archive.addfile(link)
    return path


def test_a_folder_is_taken_as_it_is(tmp_path):
    (tmp_path / "ext").mkdir()
    with pytest.raises(UsageError, match=r"expected pyproject.toml or setup.py in it, found"):
        folder_of(tmp_path, "ext")
    (tmp_path / "ext" / "setup.py").write_text(SETUP)
    assert folder_of(tmp_path, "ext") == tmp_path / "ext"


def test_an_sdist_is_unpacked_once_and_not_run(tmp_path, sdist):
    folder = folder_of(tmp_path, sdist.name)
    assert (folder / "setup.py").read_text() == SETUP
    assert [path.name for path in sorted(folder.iterdir())] == ["csrc", "headers", "setup.py"]
    assert str((folder / "headers").readlink()) == "csrc"
    before = (folder / "setup.py").stat().st_ino
    assert folder_of(tmp_path, sdist.name) == folder
    assert (folder / "setup.py").stat().st_ino == before


def test_an_sdist_of_another_hash_is_not_unpacked(tmp_path, sdist):
    pin = f", sha256: '{'0' * 64}'"
    with pytest.raises(TorchwheelError, match=r"^hash mismatch: .*conv-1\.0\.tar\.gz: expected"):
        folder_of(tmp_path, sdist.name, pin)
    assert not (tmp_path / "cache").exists()
    assert folder_of(tmp_path, sdist.name, f", sha256: '{sha256(sdist)}'").is_dir()
    with pytest.raises(UsageError, match=r"expected an sdist, found no such file"):
        folder_of(tmp_path, "other-1.0.tar.gz")


def test_a_release_is_downloaded_and_its_hash_is_said(tmp_path, sdist, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    heard = Listener()
    folder = folder_of(tmp_path, "conv==1.0", heard=heard)
    assert (folder / "setup.py").read_text() == SETUP
    pin = f'sha256: "{sha256(sdist)}"'
    assert heard.said == [f"conv-1.0.tar.gz: not pinned; under project, write  {pin}"]
    # A pinned one that is in the cache needs no index.
    sdist.unlink()
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1")
    assert folder_of(tmp_path, "conv==1.0", f", {pin}") == folder


def test_torchwheel_build_takes_a_release_a_file_and_a_folder(tmp_path, sdist, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    heard = Listener()
    found = find_source("conv==1.0", tmp_path / "cache", heard)
    assert found == tmp_path / "cache" / "sdists" / "conv-1.0" / sdist.name
    assert sha256(found) == sha256(sdist)
    assert heard.said == [f"conv-1.0.tar.gz: sha256 {sha256(sdist)}"]
    assert find_source(str(sdist), tmp_path / "cache", heard) == sdist
    (tmp_path / "conv==2.0").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_source("conv==2.0", tmp_path / "cache", heard).is_dir()
    assert len(heard.said) == 1


def test_a_git_reference_is_fetched_without_gits_own_files(tmp_path):
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository/setup.py").write_text(SETUP)
    origin = repository(tmp_path / "repository", "")
    git(origin, "tag", "-a", "v1", "-m", "v1")
    commit = git(origin, "rev-parse", "HEAD")
    place = f"git+file://{origin}"
    folder = folder_of(tmp_path, f"{place}@v1")
    assert [path.name for path in folder.iterdir()] == ["setup.py"]
    assert folder_of(tmp_path, f"{place}@main") == folder_of(tmp_path, f"{place}@{commit}")
    with pytest.raises(UsageError, match=r'expected a branch or tag "v2", found none'):
        folder_of(tmp_path, f"{place}@v2")
    with pytest.raises(TorchwheelError, match=r"/none@v1: .*does not appear to be a git repo"):
        folder_of(tmp_path, f"git+file://{tmp_path}/none@v1")


def test_a_project_in_a_subfolder_of_a_reference_has_the_tags_version(tmp_path):
    origin = tmp_path / "repository"
    for name, text in (("hopper/setup.py", "use_scm_version=True"), ("csrc/a.h", "")):
        (origin / name).parent.mkdir(parents=True)
        (origin / name).write_text(text)
    place = f"git+file://{repository(origin, 'v1.0+cu12')}"
    text = f"{place}@v1.0+cu12#subdirectory=hopper"
    folder = folder_of(tmp_path, text)
    assert (folder.name, (folder / "../csrc/a.h").is_file()) == ("hopper", True)
    assert "Version: 1.0\n" in (folder / "PKG-INFO").read_text()
    assert sources.tree_of(parse(MATRIX.format(source=text, more=""), ""), folder) == folder.parent
    heard = Listener()
    folder = folder_of(tmp_path, f"{place}@main#subdirectory=hopper", heard=heard)
    assert "Version: 0.1.dev1\n" in (folder / "PKG-INFO").read_text()
    assert "names none: 0.1.dev1; name a tag" in heard.said[0]
    with pytest.raises(UsageError, match=r"@main: expected pyproject.toml or setup.py in it"):
        folder_of(tmp_path, f"{place}@main")


def test_the_tests_of_an_ordinary_project_are_its_own(tmp_path):
    matrix = parse(MATRIX.format(source="ext", more=""), "matrix.yaml")
    assert sources.tests_folder(matrix, tmp_path, tmp_path / "ext") == tmp_path / "ext" / "tests"
