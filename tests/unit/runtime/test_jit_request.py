"""What a library that is built at first use is asked for with: its key in the cache."""

from pathlib import Path

import pytest

from torchwheel.arch.model import parse
from torchwheel.arch.toolkit_releases import ToolkitRelease
from torchwheel.builder import recipe
from torchwheel.builder.extension import Extension, Operator
from torchwheel.builder.target import DeviceCompiler, Target, TorchHeaders
from torchwheel.errors import TorchwheelError
from torchwheel.ownership import temporary_folder
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


def test_a_user_without_a_home_gets_a_build_of_the_processs_own(tmp_path, monkeypatch):
    def no_home() -> Path:
        raise TorchwheelError("home folder: expected HOME, found none")

    used = []
    monkeypatch.setattr(build, "jit_folder", no_home)
    monkeypatch.setattr(build, "source_folder", lambda *_: tmp_path)
    monkeypatch.setattr(build, "find_local_target", lambda *_: None)
    monkeypatch.setattr(build, "_library_request", lambda *_: None)
    monkeypatch.setattr(build, "make_library", lambda folder, *_: used.append(folder))
    build.obtain_library(EXTENSION, tmp_path, "a")
    assert used == [temporary_folder()]


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
