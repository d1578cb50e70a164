"""Golden outputs: what users see of the command line, frozen, so that a refactoring can be seen.

The table OUTPUTS has a function for each file of `golden/`. A function calls the command line, as
a user does, on inputs of the test makers; it knows nothing of how torchwheel is built. A change
of a golden file is a change for users: its commit says why.

These goldens belong to the net and stand beside the tests of what prints them:
- unit/matrix: `matrix` in all forms, for our matrix and a full one; the schema of the matrix;
- unit/check: `inspect` and `inspect --json` of a foreign wheel;
- unit/doctor: the doctor's text and JSON; docs/doctor.md: its table of broken set-ups;
- unit/builder, unit/pipeline: build.ninja files, and the settings of cibuildwheel;
- unit/jit: `cache list`; unit/index/catalogue-schema-1.json: a catalogue that must stay readable.

Paths differ from run to run: `normal` replaces them. Not held yet: `wheels --show`,
`install --why --json`, and the bytes of built wheels.
"""

import contextlib
import io
import json
import os
import re
import shutil
import sys
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import hostile
import wheelmaker
from elfmaker import cubin, fatbin, linked, module, ptx
from torchwheel.cli import main

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CATALOGUE = ROOT / "tests/unit/index/catalogue-schema-1.json"
MATRICES = {"ours": ROOT / "matrix.yaml", "full": ROOT / "tests/unit/matrix/full.yaml"}
WIDE = {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "HOME": "/home/me", "NO_COLOR": "1"}

OUTPUTS: dict[str, Callable[[Path, pytest.MonkeyPatch], str]] = {}
Output = Callable[[Path, pytest.MonkeyPatch], str]


def output(make: Output) -> Output:
    """Decorator: what the function returns is the golden file of its name."""
    OUTPUTS[f"{make.__name__}.txt"] = make
    return make


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_is_golden(name, golden, tmp_path, monkeypatch):
    for variable in [one for one in os.environ if one.startswith(("TORCHWHEEL_", "GITHUB_"))]:
        monkeypatch.delenv(variable)
    for variable, value in WIDE.items():
        monkeypatch.setenv(variable, value)
    # Paths in calls and reports are relative: those of Markdown are escaped.
    monkeypatch.chdir(tmp_path)
    golden(name, OUTPUTS[name](tmp_path, monkeypatch))


def normal(text: str, folder: Path) -> str:
    """What differs from machine to machine becomes a word."""
    for path, word in ((folder, "FOLDER"), (ROOT, "ROOT"), (sys.executable, "PYTHON")):
        for form in {str(path), os.path.realpath(path)}:
            # SARIF has URIs.
            text = text.replace(form, word).replace(urllib.parse.quote(form), word)
    # packaging names absent fields in the order of a set.
    fields = r"(?:[a-z-]+: '[a-z-]+' is a required field(?:; )?)+"
    return re.sub(fields, lambda found: "; ".join(sorted(found[0].split("; "))), text)


def call(folder: Path, *arguments: object) -> str:
    """The call, its status, and what it prints on both streams."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = int(end.code or 0)
    words = " ".join(map(str, arguments))
    told = [f"$ torchwheel {words}", out.getvalue().rstrip("\n")]
    told += [err.getvalue().rstrip("\n"), f"[status {status}]"]
    return normal("\n".join(part for part in told if part) + "\n", folder)


def commands_of(text: str) -> list[str]:
    """The commands that a help text lists: lines that are indented by four spaces."""
    return re.findall(r"^    ([a-z][a-z-]*)(?=$| )", text, flags=re.MULTILINE)


@output
def help_of_all_commands(folder: Path, _: pytest.MonkeyPatch) -> str:
    texts = [call(folder, "--help")]
    for name in commands_of(texts[0]):
        texts.append(call(folder, name, "--help"))
        texts += [call(folder, name, one, "--help") for one in commands_of(texts[-1])]
    assert len(texts) > 25
    return "\n".join(texts)


@output
def matrix_in_all_forms(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Forms that unit/matrix has no golden of."""
    monkeypatch.chdir(ROOT)
    calls = [
        ("--matrix", MATRICES["ours"], "--github", "--gpu", "no", "release"),
        ("--matrix", MATRICES["ours"], "--github", "--shards", "3", "release"),
        ("--matrix", MATRICES["ours"], "--kernels", "--shards", "3", "universal*"),
        ("--matrix", MATRICES["ours"], "--gitlab", "--gpu", "no", "pure"),
        ("--matrix", MATRICES["full"], "default"),
        ("--matrix", MATRICES["full"], "--json", "default"),
        ("--matrix", MATRICES["ours"], "nosuch"),
        ("--matrix", folder / "missing.yaml"),
    ]
    return "\n".join(call(folder, "matrix", *arguments) for arguments in calls)


def hostile_wheels(folder: Path) -> dict[str, Path]:
    """Every hostile wheel that can be made quickly, by its name."""
    made = {name: _in(folder / name, one.make) for name, one in hostile.WHEELS.items()}
    for name in hostile.LIBRARIES:
        made[name] = _in(folder / name, lambda at, name=name: hostile.wheel_with(at, name))
    for path in sorted((ROOT / "tests/fuzz/corpus/inspect").iterdir()):
        at = folder / path.name / hostile.NAME
        at.parent.mkdir()
        made[path.name] = Path(shutil.copyfile(path, at))
    return made


def _in(folder: Path, make: Callable[[Path], Path]) -> Path:
    folder.mkdir()
    return make(folder)


@output
def check_of_hostile_wheels(folder: Path, _: pytest.MonkeyPatch) -> str:
    return _sections(folder, hostile_wheels(folder), ("check",))


@output
def check_by_name_of_hostile_wheels(folder: Path, _: pytest.MonkeyPatch) -> str:
    return _sections(folder, hostile_wheels(folder), ("check", "--claims", "auto"))


@output
def inspect_of_hostile_wheels(folder: Path, _: pytest.MonkeyPatch) -> str:
    return _sections(folder, hostile_wheels(folder), ("inspect", "--json"))


def _relative(folder: Path, wheels: Mapping[str, Path]) -> dict[str, Path]:
    return {name: path.relative_to(folder) for name, path in wheels.items()}


def _sections(folder: Path, wheels: Mapping[str, Path], words: tuple[str, ...]) -> str:
    found = _relative(folder, wheels).items()
    return "\n".join(f"== {name}\n{call(folder, *words, path)}" for name, path in found)


def foreign_wheels(folder: Path) -> dict[str, Path]:
    """Wheels as others make them, and wheels of ours, right and wrong in one place."""
    torch_symbols = ["_ZN3c106detail14torchCheckFailEPKc", "aoti_torch_empty", "PyList_New"]
    gpu = {
        ".nv_fatbin": fatbin(module(cubin(80)), module(cubin(90), 90), module(ptx(), kind=1)),
        ".nvFatBinSegment": bytes(24),
    }
    mangled = linked(undefined=torch_symbols, needed=["libtorch.so", "libcudart.so.12"])
    paths = linked(needed=["libtorch.so"], run_paths=["$ORIGIN:/somewhere"], sections=gpu)
    manylinux = "cp312-cp312-manylinux_2_28_x86_64"

    def wheel(library: bytes, tag: str = manylinux, **more: object) -> Callable[[Path], Path]:
        files = {"demo/__init__.py": b"", "demo/_C.so": library}
        given = {"tag": tag, "claims": None, "files": files, **more}
        return lambda at: wheelmaker.make_wheel(at, **given)  # type: ignore[arg-type]

    plain = linked(undefined=["aoti_torch_abi_version"], needed=["libc.so.6"])
    evil = {
        "demo/__init__.py": b"",
        "demo-1.0.0.data/purelib/evil.pth": b"import os\n",
        "demo-1.0.0.data/scripts/pip": b"",
        "torch/_C/nested.py": b"",
    }
    makers: dict[str, Callable[[Path], Path]] = {
        "pure": wheelmaker.make_wheel,
        "pure, nothing claimed": lambda at: wheelmaker.make_wheel(at, claims=None),
        "a library of C": wheel(plain),
        "C++ symbols of torch": wheel(mangled, version="1.0.0+cu126"),
        "limited API": wheel(mangled, "cp312-abi3-linux_x86_64"),
        "run paths and GPU code": wheel(paths, version="1.0.0+cu130torch2.11"),
        "a ROCm version": wheel(plain, version="1.0.0+rocm7.2"),
        "files of others": lambda at: wheelmaker.make_wheel(at, claims=None, files=evil),
        "claims and no code": lambda at: wheelmaker.wheel_around(
            at, plain, wheelmaker.stable(), "manylinux_2_28_x86_64"
        ),
        "claims and other code": lambda at: wheelmaker.wheel_around(
            at, paths, wheelmaker.stable(archs=("8.0", "9.0")), "manylinux_2_28_x86_64"
        ),
        "another torch required": lambda at: wheelmaker.make_wheel(at, requires=("torch==2.9",)),
        "no torch required": lambda at: wheelmaker.make_wheel(at, requires=()),
        "universal without parts": lambda at: wheelmaker.make_wheel(
            at, claims=wheelmaker.universal(), tag="py3-none-manylinux_2_28_x86_64"
        ),
        "a changed RECORD": lambda at: wheelmaker.make_wheel(
            at, bend_record=lambda text: text.replace("sha256=", "sha256=x", 1)
        ),
    }
    return {name: _in(folder / name, make) for name, make in makers.items()}


@output
def check_of_foreign_wheels(folder: Path, _: pytest.MonkeyPatch) -> str:
    wheels = foreign_wheels(folder)
    by_name = _sections(folder, wheels, ("check", "--claims", "auto"))
    return f"{_sections(folder, wheels, ('check',))}\n{by_name}"


@output
def reports_of_foreign_wheels(folder: Path, _: pytest.MonkeyPatch) -> str:
    """The SARIF file and the Markdown of all of them in one call."""
    wheels = foreign_wheels(folder)
    sarif, summary = folder / "out.sarif", folder / "summary.md"
    files = ("--sarif", sarif, "--summary", summary)
    call(folder, "check", "--claims", "auto", *files, *_relative(folder, wheels).values())
    report = json.dumps(json.loads(sarif.read_text()), indent=1)
    return normal(f"{report}\n{summary.read_text()}", folder)


@output
def inspect_of_foreign_wheels(folder: Path, _: pytest.MonkeyPatch) -> str:
    wheels = foreign_wheels(folder)
    as_json = _sections(folder, wheels, ("inspect", "--json"))
    return f"{_sections(folder, wheels, ('inspect',))}\n{as_json}"


def build_index(folder: Path) -> str:
    releases = folder / "releases" / "v1.0.0"
    releases.mkdir(parents=True)
    shutil.copyfile(CATALOGUE, releases / "catalogue.json")
    address = "https://host/releases/{tag}"
    yanked = ROOT / "yanked.yaml"
    given = ("--address", address, "--yanked", yanked, "--out", folder / "index")
    return call(folder, "index", "build", *given, folder / "releases")


@output
def index_bytes(folder: Path, _: pytest.MonkeyPatch) -> str:
    told = build_index(folder)
    index = (folder / "index").resolve()
    files = sorted(path for path in index.rglob("*") if path.is_file())
    assert files, told
    pages = [f"== {path.relative_to(index).as_posix()}\n{path.read_text()}" for path in files]
    return normal("\n".join([told, *pages]), folder)
