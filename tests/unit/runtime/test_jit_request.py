"""What a library that is built at first use is asked for with: its key in the cache."""

import dataclasses
from pathlib import Path

import pytest

from torchwheel.arch.model import parse
from torchwheel.arch.toolkit_releases import ToolkitRelease
from torchwheel.builder import recipe
from torchwheel.builder.extension import Extension, Operator
from torchwheel.builder.flags import Flags, Probe
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


def key_with(local: LocalTarget, **changes: object) -> str:
    extension = dataclasses.replace(EXTENSION, **changes)  # type: ignore[arg-type]
    return build._library_request(extension, "a", local).key.content


FAST = Flags(cuda=("--use_fast_math",))


@pytest.mark.parametrize(
    "changes",
    [
        {"flags": FAST},
        {"flags": Flags(cxx=("-O3",))},
        {"flags": Flags(link=("-Wl,-z,now",))},
        {"flags": Flags(libraries=("aio",))},
        {"toolkit_flags": {"cuda>=13": FAST}},
    ],
    ids=str,
)
def test_a_changed_flag_is_another_library(changes, local):
    assert key_with(local, **changes) != key_with(local)


@pytest.mark.parametrize(
    "changes",
    [
        {"verbose": True},
        {"flags": Flags(hip=("-ffast-math",))},
        {"toolkit_flags": {"cuda<13": FAST, "rocm": FAST}},
        {"probes": (Probe("no", FAST),)},
    ],
    ids=str,
)
def test_a_flag_that_no_command_has_is_the_same_library(changes, local):
    assert key_with(local, **changes) == key_with(local)


def test_another_answer_of_the_compiler_is_another_library(local):
    asked = (Probe("fast", FAST),)
    yes = dataclasses.replace(local.target, probes=frozenset({"fast"}))
    assert key_with(local, probes=asked) != key_with(
        dataclasses.replace(local, target=yes), probes=asked
    )


def test_a_changed_library_of_the_extensions_own_is_another_library(local):
    folder = local.target.source / "lib"
    folder.mkdir()
    (folder / "libown.a").write_text("one")
    flags = Flags(libraries=("own",), library_dirs=("lib",))
    before = key_with(local, flags=flags)
    (folder / "libown.a").write_text("two")
    assert key_with(local, flags=flags) != before
