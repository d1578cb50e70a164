"""Installed libraries are compared with their wheel's RECORD before they are loaded."""

import contextlib
import hashlib
import os
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchwheel_runtime.builder import Extension
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import record_hash
from torchwheel_runtime.runtime import prebuilt

EXTENSION = Extension("recorded", "csrc", ())
BYTES = b"a library" * 100


def record_row(name, content=BYTES):
    return f"{name},{record_hash(hashlib.sha256(content).digest())},{len(content)}\n"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An installed wheel with two libraries, and the paths of the libraries that were loaded."""
    libraries = tmp_path / "recorded" / "_lib"
    libraries.mkdir(parents=True)
    names = ("a.so", "b.so")
    for name in names:
        (libraries / name).write_bytes(BYTES)
    info = tmp_path / "recorded-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: recorded\nVersion: 1.0\n")
    record = info / "RECORD"
    record.write_text("".join(record_row(f"recorded/_lib/{name}") for name in names))
    loaded = []
    monkeypatch.setattr(prebuilt, "load_library", lambda library: loaded.append(library.path))
    monkeypatch.syspath_prepend(tmp_path)
    return SimpleNamespace(libraries=libraries, record=record, loaded=loaded, names=names)


def load(site, libraries=None):
    folder = libraries or site.libraries
    files = [folder / name for name in site.names]
    return prebuilt.load_first(EXTENSION, folder.parent, files)


def test_the_installed_file_is_loaded(site):
    assert load(site) == (site.libraries / "a.so", None, ())
    assert site.loaded == [site.libraries / "a.so"]


CHANGES = {
    "replaced": lambda path: path.write_bytes(b"another library"),
    "cut": lambda path: os.truncate(path, 10),
    "empty": lambda path: os.truncate(path, 0),
    "one bit": lambda path: path.write_bytes(bytes([BYTES[0] ^ 1]) + BYTES[1:]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_refused_and_the_next_library_is_loaded(site, change):
    CHANGES[change](site.libraries / "a.so")
    library, _, (refusal,) = load(site)
    assert site.loaded == [library] == [site.libraries / "b.so"]
    expected = hashlib.sha256(BYTES).hexdigest()[:8]
    assert str(refusal).startswith(
        f"prebuilt: a.so: expected the file that was installed (sha256 {expected}…), found another"
    )
    assert str(refusal).endswith("; reinstall recorded")


def test_a_file_that_record_does_not_list_is_loaded(site, tmp_path):
    site.record.write_text(record_row("recorded/__init__.py"))
    assert load(site)[0] == site.libraries / "a.so"
    site.record.unlink()
    assert load(site)[0] == site.libraries / "a.so"


def test_a_source_tree_that_is_imported_in_place_of_the_wheel_has_files_of_its_own(site, tmp_path):
    tree = tmp_path / "tree" / "recorded" / "_lib"
    tree.mkdir(parents=True)
    for name in site.names:
        (tree / name).write_bytes(b"built here")
    assert load(site, tree)[0] == tree / "a.so"


def test_the_path_may_have_links(site, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(site.libraries.parent)
    (site.libraries / "a.so").write_bytes(b"another library")
    assert load(site, link / "_lib")[0] == link / "_lib" / "b.so"


@pytest.mark.parametrize(
    "row",
    ["recorded/_lib/a.so,sha256=x,9", "recorded/_lib/a.so", "\0/a.so,sha256=,", '"a.so" x"\0'],
)
def test_a_malformed_row_is_one_line(site, row):
    site.record.write_text(f"{row}\n{record_row('recorded/_lib/b.so')}", "utf-8")
    library, _, refusals = load(site)
    assert library in {site.libraries / "a.so", site.libraries / "b.so"}
    for refusal in refusals:
        assert str(refusal).startswith("prebuilt: a.so: ")
        assert str(refusal).endswith("reinstall recorded")
        assert str(refusal).isprintable()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.text(st.sampled_from('a.so/,"=sh256\0\n\r\\recodli_'), max_size=60))
def test_any_record_is_read_or_is_an_error(site, text):
    site.record.write_text(f"{text}a.so,sha256={text}\n", "utf-8", newline="")
    found = None
    with contextlib.suppress(TorchwheelError):
        found = prebuilt._recorded_sha256("recorded", site.libraries / "a.so")
    assert found is None or not found.strip("0123456789abcdef")
