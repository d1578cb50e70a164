"""How an extension asks for kernels: modes, downloads, folders and requests."""

import dataclasses
import pwd
import stat
import warnings
from pathlib import Path

import pytest

from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder import recipe
from torchwheel_runtime.builder.extension import Extension, Operator
from torchwheel_runtime.builder.flags import Flags, Probe
from torchwheel_runtime.builder.target import DeviceCompiler, Target, TorchHeaders
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.runtime import operator_library
from torchwheel_runtime.runtime.operator_library import (
    download_offer,
    download_toolkit,
    library_request,
)
from torchwheel_runtime.runtime.status import may_build, may_load, read_mode
from torchwheel_runtime.toolkit import provision
from torchwheel_runtime.toolkit.cache import cache_path

MODES = ("auto", "prebuilt", "jit", "fallback", "error")


@pytest.mark.parametrize(
    ("environ", "mode", "warning"),
    [
        *(({"TORCHWHEEL_MODE": mode}, mode, None) for mode in MODES),
        ({}, "auto", None),
        ({"TORCHWHEEL_MODE": ""}, "auto", None),
        ({"TORCHWHEEL_MODE": "0"}, "auto", 'found "0"; auto is used'),
        ({"TORCHWHEEL_MODE": "falback"}, "auto", 'found "falback"; did you mean "fallback"?; auto'),
        # A word cannot draw on the terminal.
        ({"TORCHWHEEL_MODE": "\x1b[2J"}, "auto", r'found "\u001b[2J"; auto is used'),
    ],
    ids=str,
)
def test_a_known_word_is_taken_in_silence_and_another_means_auto(environ, mode, warning):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert read_mode(environ) == mode
    assert len(seen) == bool(warning)
    for one in seen:
        assert str(one.message).startswith(f"TORCHWHEEL_MODE: expected one of {', '.join(MODES)}, ")
        assert warning in str(one.message)
        assert warnings.formatwarning(one.message, one.category, one.filename, one.lineno) == (
            f"<torchwheel>:1: RuntimeWarning: {one.message}\n"
        ), "a line of source"


def test_what_each_may_do():
    assert [may_load(one) for one in MODES] == [True, True, False, False, True]
    assert [may_build(one) for one in MODES] == [True, False, True, False, True]


# A first call on a GPU by a user without a home folder: the library is built for the process.


@pytest.fixture
def homeless(monkeypatch):
    """A user without HOME and without an entry in the table of users."""

    def none(_user):
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME", "TORCHWHEEL_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", none)


def test_the_cache_has_no_path(homeless):
    with pytest.raises(
        TorchwheelError, match=r"home folder: expected HOME .*; set TORCHWHEEL_CACHE"
    ):
        cache_path()


def test_the_library_is_built_for_this_process_alone(homeless, tmp_path, monkeypatch, capsys):
    folders = []

    def make(folder, *_):
        folders.append(folder)
        return folder / "x.so"

    (tmp_path / "csrc").mkdir()
    monkeypatch.setattr(operator_library, "source_folder", lambda *_: tmp_path / "csrc")
    monkeypatch.setattr(operator_library, "find_local_build", lambda *_: (None, None))
    monkeypatch.setattr(operator_library, "make_library", make)
    extension = Extension(package="demo", sources="csrc", operators=())
    library, step = operator_library.obtain_library(extension, tmp_path, "scale")
    (folder,) = folders
    assert (library, step) == (folder / "x.so", "jit cache")
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert "what is built is for this process alone" in " ".join(capsys.readouterr().err.split())


def torch(cuda):
    return Torch("2.13.0", cuda, None, Path("/torch"))


def test_what_the_lock_has_is_offered():
    (text,) = download_offer(torch("13.0"))
    assert text.startswith("or set TORCHWHEEL_DOWNLOAD=1: CUDA 13.0 is then downloaded")


@pytest.mark.parametrize("cuda", [None, "11.8", "99.0"])
def test_what_cannot_be_had_is_not_offered(cuda):
    assert download_offer(torch(cuda)) == ()
    assert download_toolkit(torch(cuda), {"TORCHWHEEL_DOWNLOAD": "1"}, Quiet()) is None


@pytest.mark.parametrize("environ", [{}, {"TORCHWHEEL_DOWNLOAD": "0"}, {"TORCHWHEEL_DOWNLOAD": ""}])
def test_nothing_is_downloaded_unasked(environ, monkeypatch):
    monkeypatch.setattr(provision, "provision_pypi", lambda *_: pytest.fail("it was downloaded"))
    assert download_toolkit(torch("13.0"), environ, Quiet()) is None


def test_what_is_allowed_is_provisioned(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path))
    monkeypatch.setattr(provision, "provision_pypi", lambda release, *_: (tmp_path / release, "id"))
    found = download_toolkit(torch("13.0"), {"TORCHWHEEL_DOWNLOAD": "1"}, Quiet())
    assert found is not None
    assert (found.root, found.release) == (tmp_path / "13.0", "13.0")


# What a library that is built at first use is asked for with: its key in the cache.


EXTENSION = Extension("pkg", "csrc", (Operator("a", ("a.cu",), bindings={"stable": ("a.cpp",)}),))


@pytest.fixture
def target(tmp_path):
    source = tmp_path / "csrc"
    source.mkdir()
    for name in ("a.cu", "a.cpp", "a.h"):
        (source / name).write_text(name)
    toolkit = DeviceCompiler(
        ToolkitRelease("cuda", "13.0"), Path("/cuda"), (parse("9.0"),), Path("/cuda/cudart.a")
    )
    return Target(
        *("a", "stable", source, toolkit, TorchHeaders(Path("/torch"), "2.11")),
        *("linux_x86_64", False, "/usr/bin/g++"),
    )


@pytest.mark.parametrize(
    "changed", ["csrc/a.cu", "csrc/a.h", "own/torchwheel/kernels.h", "own/interface.c"]
)
def test_a_changed_source_or_header_is_another_library(changed, target, tmp_path, monkeypatch):
    own = tmp_path / "own"
    (own / "torchwheel").mkdir(parents=True)
    for name in ("torchwheel/kernels.h", "interface.c"):
        (own / name).write_text("one")
    monkeypatch.setattr(recipe, "INCLUDE", own)
    monkeypatch.setattr(recipe, "_INTERFACE_FILE", own / "interface.c")
    before = key_with(target)
    (tmp_path / changed).write_text("two")
    assert key_with(target) != before


def key_with(target: Target, **changes: object) -> str:
    extension = dataclasses.replace(EXTENSION, **changes)  # type: ignore[arg-type]
    compilers = "CUDA 13.0.88, gcc 12.2.0"
    return library_request(extension, "a", target, compilers, "2.13.0").key.content


FAST = Flags(cuda=("--use_fast_math",))


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"flags": FAST}, False),
        ({"flags": Flags(cxx=("-O3",))}, False),
        ({"flags": Flags(link=("-Wl,-z,now",))}, False),
        ({"flags": Flags(libraries=("aio",))}, False),
        ({"toolkit_flags": {"cuda>=13": FAST}}, False),
        # No command has these.
        ({"verbose": True}, True),
        ({"flags": Flags(hip=("-ffast-math",))}, True),
        ({"toolkit_flags": {"cuda<13": FAST, "rocm": FAST}}, True),
        ({"probes": (Probe("no", FAST),)}, True),
    ],
    ids=str,
)
def test_a_changed_flag_of_a_command_is_another_library(changes, same, target):
    assert (key_with(target, **changes) == key_with(target)) is same


def test_another_answer_of_the_compiler_is_another_library(target):
    asked = (Probe("fast", FAST),)
    yes = dataclasses.replace(target, probes=frozenset({"fast"}))
    assert key_with(target, probes=asked) != key_with(yes, probes=asked)


def test_a_changed_library_of_the_extensions_own_is_another_library(target):
    folder = target.source / "lib"
    folder.mkdir()
    (folder / "libown.a").write_text("one")
    flags = Flags(libraries=("own",), library_dirs=("lib",))
    before = key_with(target, flags=flags)
    (folder / "libown.a").write_text("two")
    assert key_with(target, flags=flags) != before
