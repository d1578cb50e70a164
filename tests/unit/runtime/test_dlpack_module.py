"""Which processes get the module of entry points over DLPack."""

import hashlib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torchwheel_runtime.builder.extension import Extension, Operator  # noqa: E402
from torchwheel_runtime.claims import Claims, Part  # noqa: E402
from torchwheel_runtime.errors import TorchwheelError  # noqa: E402
from torchwheel_runtime.runtime import front_end  # noqa: E402

EXTENSION = Extension(package="pkg", sources="csrc", operators=(Operator("scale", ("scale.cu",)),))
FILE = "pkg/_lib/entry_points/dlpack.abi3.so"
TEXT = b"torchwheel_use_kernels\0torchwheel_interface=12ab\0"


@pytest.fixture
def package(tmp_path, monkeypatch, request) -> Path:
    """An installed package whose module is no library: its bytes, and those that are claimed."""
    data, claimed = getattr(request, "param", (TEXT, TEXT))
    library = tmp_path / FILE
    library.parent.mkdir(parents=True)
    library.write_bytes(data)
    part = Part("entry_points", "dlpack", FILE, hashlib.sha256(claimed).hexdigest())
    claims = Claims("universal", "universal", "2.6", parts=(part,))
    monkeypatch.setattr(front_end, "installed_claims", lambda _: claims)
    monkeypatch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", object(), raising=False)
    return tmp_path / "pkg"


TAKES_NONE = TEXT.replace(b"use_kernels", b"use_nothing")


@pytest.mark.parametrize(
    ("package", "error", "says"),
    [
        ((TEXT, TEXT), ImportError, r"dlpack\.abi3\.so: "),  # what was verified is imported
        ((TEXT + b"x", TEXT), TorchwheelError, "expected the file that was installed"),
        ((TAKES_NONE, TAKES_NONE), TorchwheelError, "expected a front end that has"),
    ],
    ids=["verified", "another", "takes no kernels"],
    indirect=["package"],
)
def test_the_file_is_verified_before_it_is_imported(package, error, says):
    with pytest.raises(error, match=says):
        front_end.import_entry_points(EXTENSION, package)


def test_a_free_threaded_python_has_none(package, monkeypatch):
    monkeypatch.setattr(front_end.sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    assert front_end.import_entry_points(EXTENSION, package) is None


def test_a_torch_without_the_exchange_api_has_none(package, monkeypatch):
    monkeypatch.delattr(torch.Tensor, "__dlpack_c_exchange_api__")
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        assert front_end.import_entry_points(EXTENSION, package) is None


@pytest.mark.parametrize("claims", [None, Claims("cu130-stable", "stable", "2.11")])
def test_another_wheel_has_none(package, monkeypatch, claims):
    monkeypatch.setattr(front_end, "installed_claims", lambda _: claims)
    assert front_end.import_entry_points(EXTENSION, package) is None
