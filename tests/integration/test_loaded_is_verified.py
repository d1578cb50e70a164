"""The library that was verified is the one that is loaded, whatever its path leads to by then."""

import ctypes
import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch
from torch.library import Library

import partsmaker
from jitmaker import Told, wanted
from partsmaker import FRONT_END, K80, NUMBERS, compiled, kernels, mapped
from torchwheel_runtime import loadable
from torchwheel_runtime.builder import Extension, Module
from torchwheel_runtime.claims import Part
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import record_hash, sha256
from torchwheel_runtime.jit.make import make_library
from torchwheel_runtime.loadable import open_loadable
from torchwheel_runtime.runtime import front_end, operator_library, prebuilt, universal

pytestmark = pytest.mark.integration

ANSWER = "int answer(void) { return ANSWER; }"
MODULE = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "swapped", 0, -1};
PyMODINIT_FUNC PyInit_dlpack(void) {
  PyObject *module = PyModule_Create(&definition);
  PyModule_AddIntConstant(module, "answer", ANSWER);
  return module;
}
const char torchwheel_interface[] = "torchwheel_interface=one";
_Bool torchwheel_use_kernels(int gpu, void *library) { return 1; }
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    library = Library(f"verified_{next(NUMBERS)}", "DEF")
    yield partsmaker.install(tmp_path, monkeypatch, library)
    library._destroy()


def swap(path: Path, other: Path) -> None:
    """What another user does who can write to the parent."""
    moved = path.with_name("moved")
    shutil.copyfile(other, moved)
    moved.replace(path)


def swap_after_check(monkeypatch, module, path: Path, other: Path) -> None:
    """Swap the file at `path` after a module has verified it."""

    check = universal.verify_part

    def check_then_swap(part, *arguments):
        found = check(part, *arguments)
        if path.name.startswith(f"{part.name}."):
            swap(path, other)
        return found

    monkeypatch.setattr(module, "verify_part", check_then_swap)


def test_a_kernel_library_that_is_swapped_after_its_check(installed, tmp_path, monkeypatch):
    file = installed.file("cu130")
    other = kernels(tmp_path / "other.so", 666)
    swap_after_check(monkeypatch, universal, file, other)
    installed.load()
    assert installed.call() == 130
    assert installed.status().library == file


def test_a_front_end_that_is_swapped_after_its_check(installed, tmp_path, monkeypatch):
    other = compiled(
        tmp_path / "other.so", FRONT_END.replace("libraries[gpu + 1][0];", "0; return 666;")
    )
    file = installed.file("stable")
    swap_after_check(monkeypatch, universal, file, other)
    installed.load()
    assert installed.call() == 130
    assert installed.registered == [file]


def test_a_library_of_the_jit_cache_that_is_swapped_after_its_check(
    installed, tmp_path, monkeypatch
):
    installed.gpus[:] = [K80]
    other = kernels(tmp_path / "other.so", 666)

    def obtain(_extension, _package, _name, *, kernels_for):
        def compile_(source, output):
            return kernels(output / "built.so", 37)

        library = make_library(tmp_path / "jit", wanted(), compile_, Told())
        (path,) = (tmp_path / "jit").glob("*/*/built.so")
        swap(path, other)
        return library, "jit cache"

    monkeypatch.setattr(operator_library, "obtain_library", obtain)
    installed.load()
    with pytest.warns(RuntimeWarning, match="built here"):
        assert installed.call() == 37


def is_mapped_by_its_path(file: Path) -> bool:
    """Whether what lies there now is mapped; what was verified has a name of its own."""
    return any(line.endswith(str(file)) for line in Path("/proc/self/maps").read_text().split("\n"))


def python_module(path: Path, answer: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(MODULE)
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").is_file():
        pytest.skip("this Python has no headers")
    command = ["gcc", "-shared", "-fPIC", f"-DANSWER={answer}", f"-I{include}"]
    subprocess.run([*command, str(source), "-o", str(path)], check=True)
    return path


def test_a_module_of_entry_points_that_is_swapped_after_its_check(tmp_path, monkeypatch):
    file = python_module(tmp_path / "pkg" / "dlpack.abi3.so", 42)
    other = python_module(tmp_path / "other.abi3.so", 666)
    swap_after_check(monkeypatch, front_end, file, other)
    part = Part("entry_points", "dlpack", "pkg/dlpack.abi3.so", sha256(file))
    made = front_end._import_part(part, tmp_path / "pkg")
    assert made.module.answer == 42
    assert made.module.__file__ == made.module.__spec__.origin == str(file)
    assert made.library.torchwheel_use_kernels(0, None)
    assert not is_mapped_by_its_path(file)


# Wheels with one library.


def swap_before_the_loader(monkeypatch, module, name: str, path: Path, other: Path) -> None:
    """Swap the file at `path` when the loader is called: a function of a module of Python's."""
    call = getattr(module, name)

    def swap_then_call(*arguments, **keywords):
        if not path.with_name("swapped").exists():
            path.with_name("swapped").touch()
            swap(path, other)
        return call(*arguments, **keywords)

    monkeypatch.setattr(module, name, swap_then_call)


def installed_wheel(folder: Path, monkeypatch, file: Path, package: str) -> None:
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    digest = record_hash(bytes.fromhex(sha256(file)))
    (info / "RECORD").write_text(f"{file.relative_to(folder)},{digest},{file.stat().st_size}\n")
    monkeypatch.syspath_prepend(folder)


def test_a_stable_library_that_is_swapped_before_it_is_loaded(tmp_path, monkeypatch):
    file = compiled(tmp_path / "one_stable" / "_lib" / "cu130-stable.so", ANSWER, ANSWER=1)
    other = compiled(tmp_path / "other.so", ANSWER, ANSWER=666)
    installed_wheel(tmp_path, monkeypatch, file, "one_stable")
    swap_before_the_loader(monkeypatch, ctypes, "CDLL", file, other)
    extension = Extension("one_stable", "csrc", ())
    library, _, refused = prebuilt.load_first(extension, file.parents[1], [file])
    assert (library, refused) == (file, ())
    assert file.with_name("swapped").exists()
    assert not is_mapped_by_its_path(file)
    assert str(file) in torch.ops.loaded_libraries


def test_an_extension_module_that_is_swapped_before_it_is_loaded(tmp_path, monkeypatch):
    package = tmp_path / "one_aten"
    file = python_module(package / f"dlpack{EXTENSION_SUFFIXES[0]}", 42)
    other = python_module(tmp_path / "other.abi3.so", 666)
    (package / "__init__.py").touch()
    installed_wheel(tmp_path, monkeypatch, file, "one_aten")
    import _imp

    swap_before_the_loader(monkeypatch, _imp, "create_dynamic", file, other)
    extension = Extension("one_aten", "csrc", (), module=Module("one_aten.dlpack"))
    parent = importlib.import_module("one_aten")
    library, module, refused = prebuilt.load_first(extension, package, [file])
    assert (library, refused) == (file, ())
    assert module.answer == 42
    assert file.with_name("swapped").exists()
    assert module.__file__ == module.__spec__.origin == str(file)
    assert sys.modules["one_aten.dlpack"] is parent.dlpack is module
    assert prebuilt.load_first(extension, package, [file])[1] is module


def test_an_extension_module_that_was_replaced_is_refused(tmp_path, monkeypatch):
    package = tmp_path / "two_aten"
    file = python_module(package / f"dlpack{EXTENSION_SUFFIXES[0]}", 42)
    (package / "__init__.py").touch()
    installed_wheel(tmp_path, monkeypatch, file, "two_aten")
    swap(file, python_module(tmp_path / "other.abi3.so", 666))
    extension = Extension("two_aten", "csrc", (), module=Module("two_aten.dlpack"))
    found = prebuilt.load_first(extension, package, [file])
    assert found[:2] == (None, None)
    assert "expected the file that was installed" in str(found[2][0])
    assert "two_aten.dlpack" not in sys.modules


# Names.


class Symbol(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def name_in_stack_traces(function) -> str:
    symbol = Symbol()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(symbol))
    return symbol.file.decode()


def test_the_names_that_people_see_are_those_of_the_file(installed):
    installed.load()
    installed.call()
    file = installed.file("cu130")
    assert mapped(file)
    assert installed.status().library == file
    library = open_loadable(installed.file("stable")).load()
    assert Path(name_in_stack_traces(library.answer)).name == "stable.so"


def test_an_error_of_the_loader_names_the_file(tmp_path):
    (tmp_path / "junk.so").write_text("junk")
    with pytest.raises(OSError, match=rf"^{tmp_path / 'junk.so'}: file too short$"):
        open_loadable(tmp_path / "junk.so").load()


# Ways.


@pytest.fixture
def one(tmp_path):
    return compiled(tmp_path / "one.so", ANSWER, ANSWER=1)


@pytest.fixture
def two(tmp_path):
    return compiled(tmp_path / "two.so", ANSWER, ANSWER=2)


def test_a_file_that_is_loaded_twice_is_one_library(one):
    first, again = open_loadable(one).load(), open_loadable(one).load()
    assert first._handle == again._handle
    assert ctypes.CDLL(str(one))._handle == first._handle


def test_libraries_are_told_apart_though_their_open_files_were_closed(one, two):
    """A daemon closes every file that it inherits."""
    code = """
import os, sys
from pathlib import Path
from torchwheel_runtime.loadable import open_loadable
one = open_loadable(Path(sys.argv[1])).load()
os.closerange(3, 100)
print(one.answer(), open_loadable(Path(sys.argv[2])).load().answer())
"""
    command = [sys.executable, "-c", code, str(one), str(two)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1 2\n", "")


def test_a_child_uses_what_its_parent_loaded_and_loads_more(one, two):
    library, unloaded = open_loadable(one).load(), open_loadable(two)
    child = os.fork()
    if child == 0:
        os._exit(10 * library.answer() + unloaded.load().answer())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 12
    assert unloaded.load().answer() == 2


@pytest.mark.parametrize("change", ["mode", "owner"])
def test_a_file_that_others_can_change_in_place_is_loaded_from_memory(one, two, change):
    if change == "mode":
        one.chmod(0o666)
    elif os.geteuid():
        pytest.skip("only root can give files away")
    else:
        os.chown(one, 65534, 65534)
    library = open_loadable(one)
    with one.open("r+b") as file:
        file.write(two.read_bytes())
    assert library.load().answer() == 1
    assert Path(name_in_stack_traces(library.load().answer)).name == "one.so"


def test_without_proc_a_private_copy_is_loaded(one, two, monkeypatch):
    readlink = Path.readlink

    def without_proc(path):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return readlink(path)

    monkeypatch.setattr(Path, "readlink", without_proc)
    library = open_loadable(one)
    swap(one, two)
    assert library.load().answer() == 1


def test_without_a_folder_for_temporary_files_the_open_file_is_loaded(one, two, monkeypatch):
    def refuse() -> Path:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(loadable, "private_folder", refuse)
    library = open_loadable(one)
    swap(one, two)
    assert library.load().answer() == 1
    assert name_in_stack_traces(library.load().answer).startswith(f"/proc/{os.getpid()}/fd/")


def test_a_temporary_folder_that_others_can_change_is_not_used(one, tmp_path, monkeypatch):
    """There another user could put a link of the same name in the link's place."""
    tmp_path.chmod(0o777)
    monkeypatch.setattr(loadable, "private_folder", lambda: tmp_path)
    library = open_loadable(one)
    assert library.load().answer() == 1
    assert name_in_stack_traces(library.load().answer).startswith("/proc/")


def test_what_is_no_file_is_an_error_and_no_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="not a file"):
            open_loadable(path)


@pytest.fixture
def grafted(tmp_path):
    """A library as auditwheel leaves it: it loads another one, relative to its own folder."""
    # The loader takes one that is loaded already, from wherever it came.
    name = f"libinner-{next(NUMBERS)}.so"
    libraries = tmp_path / "pkg.libs"
    (tmp_path / "pkg").mkdir()
    libraries.mkdir()
    compiled(libraries / name, "int inner(void) { return 5; }")
    source = tmp_path / "outer.c"
    source.write_text("int inner(void); int answer(void) { return inner(); }")
    outer = tmp_path / "pkg" / "outer.so"
    flags = ["-Wl,-rpath,$ORIGIN/../pkg.libs", f"-L{libraries}", f"-l:{name}"]
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(outer), *flags], check=True)
    return outer


def test_a_library_that_loads_others_beside_it_is_loaded_by_its_path(grafted):
    assert open_loadable(grafted).load().answer() == 5


def test_it_is_refused_where_another_user_can_replace_these(grafted):
    grafted.parents[1].chmod(0o777)
    with pytest.raises(TorchwheelError, match="others can replace the libraries beside it") as one:
        open_loadable(grafted).load()
    assert "\n" not in str(one.value)
