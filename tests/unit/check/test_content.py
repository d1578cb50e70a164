"""Gate `content`, and what a pyproject.toml declares of a wheel."""

import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.check.content import content, require_content
from torchwheel.check.declared import Declared, read_declared
from torchwheel.check.facts import Fact, GateError, Limits, WheelFacts
from torchwheel.inspect.installed import parse_entry_points
from torchwheel.inspect.wheel import read_wheel
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.inspect.elf import Library
from wheelmaker import make_wheel

ROOT = Path(__file__).parents[3]
DEMO = Declared("demo", ("demo",), {"console_scripts": {"demo": "demo:main"}})


def declared(folder: Path, text: str, **more: object) -> Declared:
    (folder / "pyproject.toml").write_text(text)
    return read_declared(folder, **more)  # type: ignore[arg-type]


def test_this_repository_declares_its_packages() -> None:
    assert read_declared(ROOT) == Declared(
        "fusedops", ("fusedops",), {"console_scripts": {}, "gui_scripts": {}}
    )
    torchwheel = read_declared(ROOT / "pkg" / "torchwheel")
    assert (torchwheel.name, torchwheel.packages) == ("torchwheel", ("torchwheel",))
    assert torchwheel.entry_points["console_scripts"] == {"torchwheel": "torchwheel.cli:main"}


def test_what_is_declared(tmp_path: Path) -> None:
    text = '[project]\nname = "My.Demo"\n'
    assert declared(tmp_path, text).packages == ("My_Demo",)
    assert declared(tmp_path, text).name == "my-demo"
    assert declared(tmp_path, text, packages=("cv2",)).packages == ("cv2",)
    listed = '[tool.setuptools]\npackages = ["a", "a.b", "c"]\npy-modules = ["d"]\n'
    assert declared(tmp_path, text + listed).packages == ("a", "c", "d")
    groups = '[project.gui-scripts]\na = "b:c"\n[project.entry-points."x.y"]\nd = "e"\n'
    assert declared(tmp_path, text + groups).entry_points == {
        "console_scripts": {},
        "gui_scripts": {"a": "b:c"},
        "x.y": {"d": "e"},
    }


def test_a_project_without_a_table_has_the_name_of_the_matrix(tmp_path: Path) -> None:
    assert read_declared(tmp_path, "demo").packages == ("demo",)
    assert declared(tmp_path, "[build-system]\n", name="demo").name == "demo"
    with pytest.raises(UsageError, match=r"pyproject.toml: expected key project.name, found none"):
        declared(tmp_path, "[build-system]\n")


def test_a_file_that_is_not_toml_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"pyproject\.toml: expected TOML, found ") as caught:
        declared(tmp_path, "[project\n")
    assert "\n" not in str(caught.value)
    nested = f"x = {'[' * 50_000}{']' * 50_000}"
    with pytest.raises(UsageError, match=r"expected TOML, found lists or tables nested too deep"):
        declared(tmp_path, nested)
    with pytest.raises(UsageError, match=r"expected TOML, found ") as caught:
        declared(tmp_path, f"x = {{{'k' * 5000} = 1, {'k' * 5000} = 1}}")
    assert len(str(caught.value)) < 1000


@given(st.text(), st.sampled_from(["", "[project]\nname = 'x'\n", "[tool.setuptools]\n"]))
def test_any_text_is_a_declaration_or_one_line(text: str, head: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_bytes((head + text).encode("utf-8", "replace"))
        line = ""
        try:
            assert read_declared(Path(folder), "demo").packages
        except UsageError as error:
            line = str(error)
    assert "\n" not in line


@given(st.text() | st.text().map(lambda text: f"[console_scripts]\na = {text}"))
def test_any_text_has_entry_points_or_is_refused(text: str) -> None:
    line = ""
    try:
        assert all(isinstance(names, dict) for names in parse_entry_points(text).values())
    except TorchwheelError as error:
        line = str(error)
    assert "\n" not in line


INFO = "demo-1.0.0.dist-info"
STARTS = "runs whenever Python starts"
OUTSIDE = "is installed outside the packages"
FOREIGN = "is read as the metadata of another package"
OF_PYTHON = "has the name of a module of Python"


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("torch/__init__.py", "has the name of its requirement torch"),
        ("Torch/__init__.py", "has the name of its requirement torch"),
        ("json/__init__.py", OF_PYTHON),
        ("usercustomize.py", STARTS),
        ("sitecustomize/__init__.py", STARTS),
        ("Sitecustomize.cpython-311-x86_64-linux-gnu.so", STARTS),
        ("x.pth", STARTS),
        ("EVIL.PTH", STARTS),
        ("demo.start", STARTS),
        ("demo-1.0.0.data/purelib/evil.pth", STARTS),
        ("demo-1.0.0.data/platlib/sitecustomize.py", STARTS),
        ("demo-1.0.0.data/purelib/demo/more.py", OUTSIDE),
        ("demo-1.0.0.data/data/lib/python3.11/site-packages/evil.pth", OUTSIDE),
        ("demo-1.0.0.data/scripts/pip", OUTSIDE),
        ("demo-1.0.0.data/headers/torch.h", OUTSIDE),
        ("pip/__init__.py", "has the name of a package that others install"),
        ("numpy.py", "has the name of a package that others install"),
        ("numpy.libs/libx.so", "has the name of a package that others install"),
        ("nvidia/cu13/lib/libcudart.so.13", "has the name of a package that others install"),
        ("typing_extensions.py", "has the name of a package that others install"),
        (
            "__pycache__/x.cpython-311.pyc",
            "is compiled Python, which other packages' files may use",
        ),
        ("evil.egg-info/entry_points.txt", FOREIGN),
        ("evil-1.DIST-INFO/entry_points.txt", FOREIGN),
        ("evil.egg-info", FOREIGN),
        (f"{INFO}/Entry_Points.txt", "is no metadata that a build writes"),
    ],
)
def test_of_a_wheel_without_sources_names_are_judged(tmp_path: Path, file: str, says: str) -> None:
    others = {"demo/__init__.py": b"", "other/weights.pth": b"", "demo.libs/libx-1.so.1.2": b""}
    require_content(read_wheel(make_wheel(tmp_path, files=others)), None)
    wheel = read_wheel(make_wheel(tmp_path, files={**others, file: b""}))
    with pytest.raises(GateError) as caught:
        require_content(wheel, None)
    assert str(caught.value) == f"{file}: {says}"
    require_content(wheel, None, lambda name: name == file)


def test_the_dist_info_has_the_name_of_the_wheel(tmp_path: Path) -> None:
    def bend(members: dict[str, bytes]) -> None:
        for name in [name for name in members if name.startswith(INFO)]:
            members[name.replace("demo", "pip")] = members.pop(name)

    path = make_wheel(
        tmp_path, bend=bend, bend_record=lambda text: text.replace(INFO, f"pip{INFO[4:]}")
    )
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace(f"{INFO}/RECORD", f"pip{INFO[4:]}/RECORD"), data)
    with pytest.raises(GateError, match=f"^pip-1.0.0.dist-info/METADATA: {FOREIGN}"):
        require_content(read_wheel(path), None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[console_scripts]\ndemo = demo:main\nDemo-cli = demo.cli:main [x]\n", ""),
        ("# a comment\n[demo.plugins]\na b = demo\n\n[gui_scripts]\ndemo = demo:main", ""),
        ("      [console_scripts]\n      demo = demo:main\n      ", ""),
        (
            "[console_scripts]\npip = demo:main\n",
            'console_scripts "pip" = "demo:main" is not named',
        ),
        (
            "[gui_scripts]\npython3 = demo:main\n",
            'gui_scripts "python3" = "demo:main" is not named',
        ),
        (
            "[console_scripts]\ndemolish = demo:main\n",
            'console_scripts "demolish" = "demo:main" is',
        ),
        (
            "[torch.backends]\ndemo = demo:main\n",
            'torch.backends "demo" = "demo:main" runs in other',
        ),
        ("[pytest11]\ndemo = demo:main\n", 'pytest11 "demo" = "demo:main" runs in other programs'),
        # Readers differ about all of these.
        ("[console_scripts]\ndemo = demo:main\n  pip = demo:main\n", "malformed: "),
        ("[demo.x]\na = demo:b\n [torch.backends]\n c = demo:d\n", "malformed: "),
        ("[torch.backends]\n[demo.x] a=demo:b\nc = demo:d\n", "malformed: "),
        ("[[torch.backends]]\na = demo:b\n", "malformed: "),
        ("[demo.x]\n;a = demo:b\n", "malformed: "),
        ("[demo.x]\na : demo:b\n", "malformed: "),
        ("[demo.x]\na = demo:b\na = demo:c\n", "malformed: "),
        ("[demo.x]\x85[torch.backends]\na = demo:b\n", "torch.backends "),
    ],
)
def test_of_a_wheel_without_sources_entry_points_are_judged(
    tmp_path: Path, text: str, says: str
) -> None:
    files = {"demo/__init__.py": b"", f"{INFO}/entry_points.txt": text.encode()}
    wheel = read_wheel(make_wheel(tmp_path, files=files))
    found = ""
    try:
        require_content(wheel, None)
    except TorchwheelError as error:
        found = str(error)
    assert found.startswith(f"entry_points.txt: {says}") if says else not found
    if "malformed" not in says:
        require_content(wheel, None, lambda name: name == f"{INFO}/entry_points.txt")


def test_libraries_and_the_licence_belong_to_the_project(tmp_path: Path) -> None:
    files = {
        "demo/__init__.py": b"",
        "demo.libs/libx-1.so.1.2": b"",
        "demo-1.0.0.dist-info/licenses/LICENSE": b"",
        "demo-1.0.0.dist-info/entry_points.txt": b"[console_scripts]\ndemo = demo:main\n",
    }
    wheel = read_wheel(make_wheel(tmp_path, files=files))
    require_content(wheel, DEMO)
    facts = WheelFacts(Fact(wheel), Fact(()), Fact({}), Fact(fault="not read"))
    assert content(facts, Limits(1, project=DEMO)) == "demo, demo.libs, 0 libraries"


def test_machine_code_has_the_name_of_a_library(tmp_path: Path) -> None:
    wheel = read_wheel(make_wheel(tmp_path, files={"demo/tool": b"\x7fELF"}))
    library = Library("demo/tool", "x86_64", None, (), ())
    facts = WheelFacts(Fact(wheel), Fact((library,)), Fact({}), Fact(fault="not read"))
    with pytest.raises(GateError, match=r"^demo/tool: is machine code, and its name is no lib"):
        content(facts, Limits(1, project=DEMO))


def test_a_malformed_file_of_entry_points(tmp_path: Path) -> None:
    bad = {"demo/__init__.py": b"", "demo-1.0.0.dist-info/entry_points.txt": b"x = 1\n"}
    with pytest.raises(TorchwheelError, match=r"^entry_points\.txt: malformed: ") as caught:
        require_content(read_wheel(make_wheel(tmp_path, files=bad)), DEMO)
    assert "\n" not in str(caught.value)
