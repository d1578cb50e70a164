"""The import of packages that misbehave, each in a Python of its own."""

import time
from pathlib import Path

import pytest

from torchwheel_runtime.doctor import importing
from torchwheel_runtime.doctor.importing import import_package


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes a package `odd`, in a folder that comes first on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = tmp_path / "odd"
    folder.mkdir()

    def write(code: str, **modules: str):
        for name, text in {"__init__": code, **modules}.items():
            (folder / f"{name}.py").write_text(text)
        return folder

    return write


def test_one_that_is_imported(package):
    folder = package("import sys\nprint('noise')\nprint('noise', file=sys.stderr)")
    found = import_package("odd")
    assert (found.how, found.words, found.status) == ("imported", (), None)
    assert (found.file, found.folders) == (folder / "__init__.py", (folder,))
    assert any("python" in path.name or "libc" in path.name for path in found.libraries)


@pytest.mark.parametrize("then", ["", "1 / 0"])
def test_it_says_whether_torch_was_imported(package, tmp_path, then):
    package(f"import torch\n{then}")
    torch = tmp_path / "torch.py"
    torch.touch()
    assert import_package("odd").torch
    torch.write_text("raise OSError")
    assert not import_package("odd").torch


def test_one_that_raises_tells_where_and_from_what(package):
    package(
        "from odd import inner",
        inner="\n\ntry:\n    1 / 0\nexcept ZeroDivisionError as e:\n"
        "    raise RuntimeError('in\\ntwo lines') from e\n",
    )
    found = import_package("odd")
    assert found.how == "raised"
    assert found.words == ("RuntimeError: in two lines", "ZeroDivisionError: division by zero")
    assert found.where == "odd/inner.py:6"
    assert (found.missing_modules, found.unloaded, found.torch) == ((), (), False)


@pytest.mark.parametrize(
    ("code", "missing", "refused"),
    [
        ("import no_such_thing.at_all", ["no_such_thing"], 0),
        ("raise ImportError('No module named 'torch'')", [], 0),
        ("from odd import nothing", [], 0),
        ("import ctypes; ctypes.CDLL('libno-such-library.so.1')", [], 1),
        ("open('none')", [], 0),
        (
            "import importlib.util as u; s = u.spec_from_file_location('_C', 'odd/_C.so')\n"
            "u.module_from_spec(s)",
            [],
            1,
        ),
    ],
)
def test_what_kind_of_error_it_raises(package, code, missing, refused):
    (package(code) / "_C.so").write_bytes(b"not a library")
    found = import_package("odd")
    assert (list(found.missing_modules), len(found.unloaded)) == (missing, refused)


ENDS = {
    "leaves with the words of one that hangs": (
        "import os, sys\nprint('Timeout (0:00:01)!', file=sys.stderr)\nos._exit(1)",
        ("left", ("exit status 1",), None),
    ),
    "ends Python": ("import os\nos._exit(3)", ("left", ("exit status 3",), None)),
    "closes what is not its own": ("import os\nos.closerange(3, 256)", ("left", ..., None)),
    "crashes": ("from odd import inner", ("killed", ("SIGSEGV",), "odd/inner.py:3")),
    # torchwheel_runtime/doctor/native.py lies beside import_child.py, and is not on the path.
    "imports a module beside the child": (
        "import native",
        ("raised", ("ModuleNotFoundError: No module named 'native'",), "odd/__init__.py:1"),
    ),
}


@pytest.mark.parametrize(("code", "expected"), ENDS.values(), ids=ENDS)
def test_one_that_ends_otherwise(package, code, expected):
    package(code, inner="\nimport ctypes\nctypes.string_at(0)")
    found = import_package("odd")
    how, words, where = expected
    assert (found.how, found.where) == (how, where)
    assert words is ... or found.words == words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit('no')", ("SystemExit: no",)),
        ("raise KeyboardInterrupt", ("KeyboardInterrupt",)),
        ("e = ValueError(); e.__cause__ = e; raise e", ("ValueError",) * 10),
        ("def", ("SyntaxError: invalid syntax",)),
    ],
)
def test_whatever_it_raises(package, code, words):
    package(code)
    found = import_package("odd")
    assert found.how == "raised"
    assert found.words[0].startswith(words[0])
    assert len(found.words) == len(words)


def test_one_that_hangs_tells_where(package):
    package("\nimport time\ntime.sleep(60)")
    began = time.monotonic()
    found = import_package("odd", seconds=1)
    assert (found.how, found.words, found.where) == ("hung", ("1 s",), "odd/__init__.py:3")
    assert time.monotonic() - began < 10


def test_one_that_stops_itself(package, monkeypatch):
    monkeypatch.setattr(importing, "_GRACE_SECONDS", 0.5)
    package("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")
    assert import_package("odd", seconds=0.5).how == "hung"


def test_what_it_leaves_running_is_ended(package, tmp_path):
    package(
        "import os, time\n"
        "if (child := os.fork()) == 0:\n    time.sleep(60)\n    os._exit(0)\n"
        "open('pid', 'w').write(str(child))"
    )
    assert import_package("odd").how == "imported"
    stat = Path("/proc", (tmp_path / "pid").read_text(), "stat")
    for _ in range(100):
        # Gone, or dead and not yet collected by its new parent.
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("it still runs")


def test_none_of_that_name(package):
    package("")
    found = import_package("even")
    assert (found.how, found.file, found.folders) == ("not found", None, ())
