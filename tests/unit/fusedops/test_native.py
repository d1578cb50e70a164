"""Finding and loading the native library, and the ways that can fail."""

import sys
import warnings
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import fusedops  # noqa: E402
from fusedops import _native  # noqa: E402


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(_native, "_status", _native._status)


def test_no_library_is_no_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        status = _native.load(tmp_path / "none")
    assert not status.loaded
    assert "no native library" in status.reason


def test_a_library_that_does_not_load_is_one_warning_that_names_it(tmp_path):
    (tmp_path / "cu130-stable.so").write_bytes(b"no library")
    with pytest.warns(RuntimeWarning, match="could not load cu130-stable.so: ") as seen:
        status = _native.load(tmp_path)
    assert len(seen) == 1
    assert not status.loaded
    assert torch.__version__ in status.reason
    assert fusedops.native_status() is status
    x = torch.ones(2, 3)
    assert torch.equal(fusedops.bias_add(x, x[0]), x + 1)


def test_the_next_library_is_tried(tmp_path, monkeypatch):
    accepted = []

    def load_library(path):
        if path.name == "a.so":
            raise OSError("undefined symbol: aoti_torch_empty\nmore")
        accepted.append(path)

    (tmp_path / "a.so").touch()
    (tmp_path / "b.so").touch()
    monkeypatch.setattr(torch.ops, "load_library", load_library)
    status = _native.load(tmp_path)
    assert status.library == tmp_path / "b.so"
    assert accepted == [tmp_path / "b.so"]


def test_the_extension_module_is_tried_after_the_stable_libraries(tmp_path, monkeypatch):
    library = tmp_path / f"_C{EXTENSION_SUFFIXES[0]}"
    library.touch()
    (tmp_path / "_C.cpython-999-x86_64-linux-gnu.so").touch()  # another Python's
    module = ModuleType("fusedops._C")
    monkeypatch.setitem(sys.modules, "fusedops._C", module)
    status = _native.load(tmp_path / "none", tmp_path)
    assert (status.library, status.module) == (library, module)
    assert status.reason == f"loaded {library.name}"
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    (tmp_path / "_lib").mkdir()
    (tmp_path / "_lib" / "cu130-stable.so").touch()
    status = _native.load(tmp_path / "_lib", tmp_path)
    assert status.library == tmp_path / "_lib" / "cu130-stable.so"
    assert status.module is None


def test_an_extension_module_that_does_not_load_is_one_warning(tmp_path, monkeypatch):
    (tmp_path / f"_C{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    monkeypatch.setattr(fusedops, "__path__", [str(tmp_path)])
    with pytest.warns(RuntimeWarning, match=r"could not load _C\..*file too short") as seen:
        status = _native.load(tmp_path / "none", tmp_path)
    assert len(seen) == 1
    assert not status.loaded
    assert status.module is None
