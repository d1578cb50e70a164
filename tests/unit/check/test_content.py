"""Gate `content`, and what a pyproject.toml declares of a wheel."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.check.content import content, parse_entry_points, require_content
from torchwheel.check.declared import Declared, read_declared
from torchwheel.check.facts import Fact, GateError, Limits, WheelFacts
from torchwheel.errors import UsageError
from torchwheel.inspect.elf import Library
from torchwheel.inspect.wheel import read_wheel
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
    except GateError as error:
        line = str(error)
    assert "\n" not in line


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"torch/__init__.py": b""}, "torch/__init__.py: has the name of its requirement torch"),
        ({"json/__init__.py": b""}, "json/__init__.py: has the name of a module of Python"),
        ({"usercustomize.py": b""}, "usercustomize.py: has the name of a module of Python"),
        ({"x.pth": b""}, "x.pth: runs whenever Python starts"),
    ],
)
def test_of_a_wheel_without_sources_names_are_judged(
    tmp_path: Path, files: dict[str, bytes], says: str
) -> None:
    others = {"demo/__init__.py": b"", "other/weights.pth": b"", "demo.libs/libx-1.so.1.2": b""}
    require_content(read_wheel(make_wheel(tmp_path, files=others)), None)
    path = make_wheel(tmp_path, files={**others, **files})
    with pytest.raises(GateError) as caught:
        require_content(read_wheel(path), None)
    assert str(caught.value) == says


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
    with pytest.raises(GateError, match=r"^entry_points\.txt: malformed: ") as caught:
        require_content(read_wheel(make_wheel(tmp_path, files=bad)), DEMO)
    assert "\n" not in str(caught.value)
