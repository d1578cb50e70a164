"""What a library that is built at first use is asked for with: its key in the cache."""

from pathlib import Path

import pytest

from torchwheel.arch.model import parse
from torchwheel.arch.toolkit_releases import ToolkitRelease
from torchwheel.builder import recipe
from torchwheel.builder.extension import Extension, Operator
from torchwheel.builder.target import DeviceCompiler, Target, TorchHeaders
from torchwheel.runtime import build
from torchwheel.runtime.local_target import LocalTarget

EXTENSION = Extension("pkg", "csrc", (Operator("a", ("a.cu",), bindings={"stable": ("a.cpp",)}),))


@pytest.fixture
def local(tmp_path):
    source = tmp_path / "csrc"
    source.mkdir()
    for name in ("a.cu", "a.cpp", "a.h"):
        (source / name).write_text(name)
    toolkit = DeviceCompiler(
        ToolkitRelease("cuda", "13.0"), Path("/cuda"), (parse("9.0"),), Path("/cuda/cudart.a")
    )
    target = Target(
        *("a", "stable", source, toolkit, TorchHeaders(Path("/torch"), "2.11")),
        *("linux_x86_64", False, "/usr/bin/g++"),
    )
    return LocalTarget(target, "CUDA 13.0.88, gcc 12.2.0", "2.13.0")


@pytest.mark.parametrize(
    "changed", ["csrc/a.cu", "csrc/a.h", "own/torchwheel/kernels.h", "own/interface.c"]
)
def test_a_changed_source_or_header_is_another_library(changed, local, tmp_path, monkeypatch):
    own = tmp_path / "own"
    (own / "torchwheel").mkdir(parents=True)
    for name in ("torchwheel/kernels.h", "interface.c"):
        (own / name).write_text("one")
    monkeypatch.setattr(recipe, "INCLUDE", own)
    monkeypatch.setattr(recipe, "_INTERFACE_FILE", own / "interface.c")
    before = build._library_request(EXTENSION, "a", local).key
    (tmp_path / changed).write_text("two")
    assert build._library_request(EXTENSION, "a", local).key.content != before.content
