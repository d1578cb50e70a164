"""Anybody's wheel, package or library: its facts, and its faults as facts."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elfmaker import cubin, fatbin, linked, module
from torchwheel.inspect.inspection import inspect, inspect_package, inspect_wheel
from torchwheel.inspect.library_facts import GpuRuntime, find_runtimes
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.window import WheelError
from wheelmaker import make_wheel

TAG = "cp312-cp312-manylinux_2_28_x86_64"
CUDA = {".nv_fatbin": fatbin(module(cubin())), ".nvFatBinSegment": bytes(24)}
NEEDS = linked(
    undefined=["_ZN3c106detail14torchCheckFailEPKc", "aoti_torch_empty", "PyList_New", "puts"],
    defined=["_ZN2at4demoEv"],
    needed=["libcudart.so.12", "libc.so.6"],
    run_paths=["$ORIGIN:/somewhere"],
    soname="_C.so",
    sections=CUDA,
)


def wheel(folder: Path, **changes: object) -> Path:
    files = {"demo/__init__.py": b"", "demo/_C.so": NEEDS, "demo.libs/libx-0a1b2c3d.so.1": linked()}
    fields = {"tag": TAG, "files": files, "claims": None, "version": "1.0.0+cu126", **changes}
    return make_wheel(folder, **fields)  # type: ignore[arg-type]


def test_facts_of_a_wheel(tmp_path: Path) -> None:
    found = inspect(str(wheel(tmp_path)))
    assert found.named is not None
    assert (found.kind, str(found.named.version), found.faults) == (
        "wheel",
        "1.0.0+cu126",
        {},
    )
    assert [library.name for library in found.grafted] == ["demo.libs/libx-0a1b2c3d.so.1"]
    library = found.libraries[0]
    assert (library.machine, library.soname) == ("x86_64", "_C.so")
    assert library.needed == ("libcudart.so.12", "libc.so.6")
    assert library.run_paths == ("$ORIGIN", "/somewhere")
    assert library.torch == {"_ZN3c106detail14torchCheckFailEPKc", "aoti_torch_empty"}
    assert library.exports == {"_ZN2at4demoEv"}
    assert library.python == {"PyList_New"}
    assert [str(target.arch) for target in library.targets] == ["8.0"]
    assert not list(tmp_path.parent.glob("torchwheel-*"))


def test_facts_of_a_library_alone(tmp_path: Path) -> None:
    path = tmp_path / "any.so"
    path.write_bytes(NEEDS)
    found = inspect(str(path))
    assert (found.kind, found.libraries[0].soname, found.named) == ("library", "_C.so", None)


def test_facts_of_an_installed_package() -> None:
    found = inspect("pyyaml")
    assert found.title.lower().startswith("pyyaml ")
    assert any(library.python for library in found.libraries)
    assert inspect("yaml").title == found.title
    with pytest.raises(UsageError, match="found neither; did you mean"):
        inspect("pyyamll")


@pytest.mark.parametrize("name", ["METADATA", "RECORD", "WHEEL", "top_level.txt"])
def test_a_pipe_in_its_metadata_is_one_error_and_of_another_package_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "other-1.0.dist-info"
    folder.mkdir()
    os.mkfifo(folder / name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(WheelError) as caught:
        inspect_package("other")
    assert str(caught.value) == (
        f"{folder}/{name}: expected a file, found a pipe or a device; `rm -r {folder}`, then "
        "`pip install --no-deps ORIGIN`, the file or address that it was installed from"
    )
    assert inspect_package("pytest").title.startswith("pytest ")


def test_the_runtimes_of_libraries() -> None:
    def runtimes(*needed: str, registers: bool = True) -> list[tuple[str, str | None]]:
        found = find_runtimes(needed, has_code=True, registers=registers)
        return [(runtime.how, runtime.version) for runtime in found]

    assert runtimes(registers=False) == [("static", None)]
    assert runtimes("libcudart.so.12") == [("shared", "12")]
    assert runtimes("libcudart.3eda8113.so.13") == [("grafted", "13")]
    assert runtimes("libcudart-9335f6a2.so.12.4.127") == [("grafted", "12.4.127")]
    assert runtimes("libamdhip64.so.7", "libm.so.6") == [("shared", "7")]
    assert find_runtimes((), has_code=False, registers=False) == ()
    assert find_runtimes(["libamdhip64.so"], has_code=False, registers=False) == (
        GpuRuntime("shared", "rocm", "libamdhip64.so"),
    )


INFO = "demo-1.0.0+cu126.dist-info"


def with_file(name: str, data: bytes) -> dict[str, object]:
    return {"bend": lambda members: members.update({name: data})}


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        (
            {"bend_record": lambda text: text.replace("sha256=", "sha256=A")},
            "record",
            "RECORD's hash",
        ),
        ({"bend_record": lambda text: text + "a,b\n"}, "record", "3 fields expected"),
        (with_file(f"{INFO}/WHEEL", b"no"), "wheel", "Root-Is-Purelib must be"),
        (with_file(f"{INFO}/METADATA", b"no"), "metadata", "METADATA is not valid"),
        (with_file("x-1.dist-info/a", b""), "record", "one .dist-info"),
    ],
)
def test_a_fault_is_a_fact(
    tmp_path: Path, changes: dict[str, object], field: str, says: str
) -> None:
    found = inspect(str(wheel(tmp_path, **changes)))
    assert says in found.faults[field]
    assert found.libraries[0].targets


def test_a_library_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    broken = linked(sections={".nv_fatbin": b"text" * 9})
    files = {"demo/a.so": b"\x7fELF and no more", "demo/b.so": broken}
    first, second = inspect(str(wheel(tmp_path, files=files))).libraries
    assert "not an ELF file that can be read" in (first.problem or "")
    assert "no container of GPU code" in (second.targets_problem or "")


def test_symbols_of_all_libraries_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "SYMBOLS_KEPT", 5)
    libraries = [linked(defined=[f"aoti_torch_{n}_{m}" for m in range(3)]) for n in range(2)]
    files = {f"demo/{number}.so": library for number, library in enumerate(libraries)}
    found = inspect(str(wheel(tmp_path, files=files))).libraries
    problems = [library.problem for library in found if library.problem]
    assert len(problems) == 1
    assert problems[0].startswith("more than 5 symbols of torch and Python")


def test_a_limit_of_the_whole_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = wheel(tmp_path)
    monkeypatch.setattr(budgets, "LIBRARIES", 1)
    with pytest.raises(WheelError, match=r"^demo-1\.0\.0.*: more than 1 ELF files in it"):
        inspect(str(path))
    monkeypatch.setattr(budgets, "INSPECT_SECONDS", -1)
    with pytest.raises(WheelError, match=r"^demo-1\.0\.0.*: the libraries take more than -1 s"):
        inspect(str(path))


def test_what_is_no_wheel(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(b"no zip")
    with pytest.raises(WheelError, match="not a whole zip archive"):
        inspect(str(path))
    with pytest.raises(WheelError, match="no regular file"):
        inspect("/dev/null")


@given(st.data())
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=50,
)
def test_any_change_is_facts_or_one_error(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / f"demo-1.0.0+cu126-{TAG}.whl"
    if not (tmp_path / "right").exists():
        (tmp_path / "right").write_bytes(wheel(tmp_path).read_bytes())
    changed = bytearray((tmp_path / "right").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(changed))
    with contextlib.suppress(TorchwheelError):
        inspect_wheel(path)
