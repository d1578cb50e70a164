"""Golden outputs: what users see of the command line, frozen, so that a refactoring can be seen.

The table OUTPUTS has a function for each file of `golden/` that the command line prints in this
process. Tests of their own hold what `install` chooses, what cibuildwheel is told, and built
wheels. All call the command line, as a user does, on inputs of the test makers, and know nothing
of how torchwheel is built. A change of a golden file is a change for users: its commit says why.

These goldens belong to the net and stand beside the tests of what prints them; `-k golden` runs
them too:
- unit/scaffold: what `adopt` says of projects, and their matrices;
- unit/matrix: `matrix` in all forms, for our matrix and a full one; the schema of the matrix;
- unit/check: `inspect` and `inspect --json` of a foreign wheel;
- unit/doctor: the doctor's text and JSON;
- unit/builder, unit/pipeline: build.ninja files, and the settings of cibuildwheel;
- unit/jit: `cache list`;
- test_installers.py: what pip and uv install, in docs/installers.md.
Two are chosen by their own names: test_doctor_broken.py (the doctor's table of broken set-ups, in
docs/doctor.md), and what reads unit/index/catalogue-schema-1.json, which must stay readable.

Paths differ from run to run: `normal` replaces them.
"""

import contextlib
import difflib
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.parse
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import foreign
import hostile
import setups
import wheelmaker
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


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for variable in [one for one in os.environ if one.startswith(("TORCHWHEEL_", "GITHUB_"))]:
        monkeypatch.delenv(variable)


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_is_golden(name, golden, tmp_path, monkeypatch):
    for variable, value in WIDE.items():
        monkeypatch.setenv(variable, value)
    # Paths in calls and reports are relative: those of Markdown are escaped.
    monkeypatch.chdir(tmp_path)
    golden(name, OUTPUTS[name](tmp_path, monkeypatch))


def normal(text: str, folder: Path) -> str:
    """What differs from machine to machine becomes a word."""
    packages = sysconfig.get_path("purelib")
    words = {folder: "FOLDER", packages: "PACKAGES", sys.executable: "PYTHON", ROOT: "ROOT"}
    for path, word in words.items():
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
    return {name: _in(folder / name, make) for name, make in foreign.WHEELS.items()}


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
    seen: set[str] = set()

    def once(part: re.Match[str]) -> str:
        """The styles and the script of a page where they are the first of their kind."""
        if part[0] in seen:
            return f"<{part[1]}>as above</{part[1]}>"
        seen.add(part[0])
        return part[0]

    text = "\n".join([told, *pages])
    return normal(re.sub(r"(?s)<(style|script)>.*?</\1>", once, text), folder)


TORCHES = {
    "torch for CUDA 13": ("2.11.0+cu130", "13.0"),
    "torch for CUDA 12": ("2.6.0+cu124", "12.4"),
    "torch for CPUs": ("2.9.0+cpu", None),
    "no torch": None,
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheels are for x86_64")
@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on PATH")
def test_why_of_install_is_golden(golden, torchwheel, tmp_path, monkeypatch):
    """Each wheel with why it is not taken: of a catalogue of ours, and of the page of others."""
    build_index(tmp_path)
    page = tmp_path / "foreign/simple/demo/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(foreign.page())
    machine = setups.Setup(tmp_path)
    machine.add_gpu()
    monkeypatch.setenv("LD_LIBRARY_PATH", machine.env["LD_LIBRARY_PATH"])
    indexes = {"ours": tmp_path / "index", "foreign": tmp_path / "foreign/simple"}
    told = []
    for name, torch in TORCHES.items():
        describe_torch(machine.site, torch)
        for whose, index in indexes.items():
            words = ["install", "demo", "--index", index.as_uri(), "--python", machine.python]
            for form in (["--why"], ["--why", "--json"]):
                if "--json" in form and name != "torch for CUDA 12":
                    continue
                done = torchwheel(*words, *form, cwd=tmp_path)
                text = f"{done.stdout}{done.stderr}[status {done.returncode}]\n"
                told.append(f"== {name}, {whose}: {' '.join(form)}\n{text}")
    # Where a row is folded depends on the length of the folder's name.
    text = re.sub(r"\n {11}(?=\S)", " ", normal("\n".join(told), tmp_path))
    # The releases of Python and glibc are those of the machine.
    glibc = platform.libc_ver()[1]
    for found, word in (
        (platform.python_version(), "3.X.Y"),
        (foreign.OWN, "cp3X"),
        (f"glibc {glibc}", "glibc 2.X"),
        (f'"glibc": "{glibc}"', '"glibc": "2.X"'),
    ):
        text = text.replace(found, word)
    golden("why_of_install.txt", text)


def describe_torch(site: Path, torch: tuple[str, str | None] | None) -> None:
    """Put the files of a torch that are read into an environment, in place of those before."""
    for path in site.glob("torch*"):
        if path.name == "torch" or path.suffix == ".dist-info":
            shutil.rmtree(path)
    if torch is None:
        return
    version, cuda = torch
    (site / "torch").mkdir()
    (site / "torch/__init__.py").touch()
    text = f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\n"
    (site / "torch/version.py").write_text(text)
    info = site / f"torch-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_bytes(wheelmaker.metadata("torch", version, ()))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="variants for x86_64 are cross-built")
@pytest.mark.skipif(not shutil.which("podman"), reason="no podman on PATH")
def test_show_of_wheels_is_golden(golden, torchwheel, cache, tmp_path):
    """What cibuildwheel is told: of the first variant all, of the others what differs from it."""
    done = torchwheel("wheels", "--show", "--dist", tmp_path / "dist", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    tables = [without_machine(table, tmp_path, cache) for table in done.stdout.split("\n\n")]
    told = [tables[0].rstrip("\n")]
    for table in tables[1:]:
        lines = difflib.ndiff(tables[0].splitlines(), table.splitlines())
        told.append("\n".join(line.rstrip() for line in lines if line[0] in "+-"))
    golden("show_of_wheels.txt", "\n\n".join(told) + "\n")


def without_machine(text: str, folder: Path, cache: Path) -> str:
    """Options of cibuildwheel without paths, hashes, and the settings of pip and of caches."""
    # Lists are told line by line, so that a difference is short.
    text = normal(text, folder).replace(', "', ',\n  "').replace(" --", "\n  --")
    text = text.replace(str(cache), "CACHE")
    text = re.sub(r'\n  "--volume=(\S+):\1:ro",', "", text)
    text = re.sub(r'\n  "--volume=\S+:/(etc/ssl|cache/uv)\S*",', "", text)
    text = re.sub(r'\n  "(UV_|SSL_CERT|SCCACHE|AWS_|ACTIONS_)\w*" = "[^"]*",?', "", text)
    text = re.sub(r"\b[0-9a-f]{12,16}\b", "HASH", text)
    text = re.sub(r"(/torch-\d+\.\d+)\.\d+", r"\1.X", text)  # the newest of its release
    text = re.sub(r"--user=\d+:\d+", "--user=USER", text)
    text = re.sub(r"uv-\d+", "uv-USER", text)
    return re.sub(r'"MAX_JOBS" = "\d+"', '"MAX_JOBS" = "JOBS"', text)


def test_pure_wheel_is_golden(golden, torchwheel, tmp_path):
    # A folder that is filled already has it: see test_install.py.
    named = os.environ.get("FUSEDOPS_DIST")
    dist = Path(named) if named else tmp_path / "dist"
    done = torchwheel("wheels", "pure", "--dist", dist, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = dist.glob("fusedops-*-py3-none-any.whl")
    golden("pure_wheel.txt", wheel_text(wheel))


@pytest.mark.nightly
def test_universal_wheel_is_golden(golden, torchwheel, nvcc, tmp_path, request):
    """The bytes of its libraries are compared where this machine's compilers are known."""
    call = ("wheels", "universal", "--archs", "9.0", "--dist", tmp_path)
    done = torchwheel(*call, cwd=ROOT, seconds=3000)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("fusedops-*-py3-none-manylinux*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".so")]
        digests = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}
    text = wheel_text(wheel)
    for name, digest in digests.items():
        text = text.replace(digest, f"sha256 of {name}")
    # The compiler decides what a library needs of glibc.
    text = re.sub(r"manylinux_2_\d+_x86_64(\.manylinux\w+)*", "manylinux_2_X_x86_64", text)
    golden("universal_wheel.txt", text)
    compilers = compilers_of_machine(nvcc)
    known = f"universal_libraries_{hashlib.sha256(compilers.encode()).hexdigest()[:8]}.txt"
    if not (HERE / "golden" / known).exists() and not request.config.getoption("--update-goldens"):
        pytest.skip("no golden libraries of these compilers")
    lines = [f"{digest}  {name}\n" for name, digest in digests.items()]
    golden(known, "".join([compilers, *lines]))


def wheel_text(wheel: Path) -> str:
    """What a wheel is, without what the contents of our own Python files decide."""
    with zipfile.ZipFile(wheel) as archive:
        members = archive.infolist()
        info = next(one.filename for one in members if one.filename.endswith("/WHEEL"))[:-5]
        metadata, tags, claims = (
            archive.read(f"{info}{name}").decode()
            for name in ("METADATA", "WHEEL", "torchwheel.json")
        )
    readme = (ROOT / "README.md").read_text()
    metadata = re.sub(r"Requires-Dist: .*\n", "", metadata.replace(readme, "README.md\n"))
    kinds = {(oct(one.external_attr >> 16), one.compress_type, one.date_time) for one in members}
    sections = {
        wheel.name: "".join(f"{one.filename}\n" for one in members),
        "mode, compression and time of members": "".join(f"{one}\n" for one in sorted(kinds)),
        "METADATA": metadata,
        "WHEEL": tags,
        "torchwheel.json": claims,
    }
    return "\n".join(f"== {name}\n{text}" for name, text in sections.items())


def compilers_of_machine(nvcc: Path) -> str:
    """A line for each of the programs that decide the bytes of a library."""
    lines = []
    for program, at in ((os.environ.get("CXX", "g++"), 0), ("ld", 0), ("ldd", 0), (nvcc, -1)):
        call = [program, "--version"]
        done = subprocess.run(call, capture_output=True, text=True, check=True)
        lines.append(done.stdout.splitlines()[at])
    return "".join(f"{line}\n" for line in lines)
