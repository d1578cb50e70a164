"""Reading cuobjdump: real outputs, bent outputs, no cuobjdump."""

import contextlib
import importlib.metadata
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from programmaker import program
from torchwheel_runtime.arch.model import CudaArch, parse
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import cuda
from torchwheel_runtime.inspect.cuda import parse_symbols
from torchwheel_runtime.inspect.elf import GpuCode

OUTPUTS = Path(__file__).parent / "outputs"


def test_modules_of_a_library_linked_by_nvcc() -> None:
    kernels = ("_Z1kPf",)
    # The first three come from nvcc's device link: archs without a kernel.
    assert parse_symbols((OUTPUTS / "linked_by_nvcc.txt").read_text()) == (
        GpuCode("sass", parse("8.0")),
        GpuCode("sass", parse("9.0a")),
        GpuCode("sass", parse("12.0")),
        GpuCode("sass", parse("8.0"), kernels),
        GpuCode("sass", parse("9.0a"), kernels),
        GpuCode("sass", parse("12.0"), kernels),
        GpuCode("ptx", parse("12.0")),
    )


@pytest.mark.parametrize(
    ("file", "expected", "prefix"),
    [
        (
            "two_files",
            [("sass", "8.0", 1), ("sass", "10.0f", 1), ("ptx", "10.0f", 0), ("sass", "9.0", 1)],
            "_Z",
        ),
        # Device functions are no kernels.
        (
            "with_device_functions",
            [("sass", "8.0", 6), ("sass", "9.0", 6), ("ptx", "9.0", 0)],
            "_Z11bias_gelu_k",
        ),
        (
            "printed_by_13.5",
            [("sass", "9.0", 48), ("sass", "9.0", 16), ("sass", "9.0", 8)],
            "_ZN8fusedops",
        ),
    ],
)
def test_the_modules_that_are_printed(
    file: str, expected: list[tuple[str, str, int]], prefix: str
) -> None:
    modules = parse_symbols((OUTPUTS / f"{file}.txt").read_text())
    found = [(module.kind, str(module.arch), len(module.kernels)) for module in modules]
    assert found == expected
    assert all(name.startswith(prefix) for code in modules for name in code.kernels)


def test_nothing_printed_is_no_code() -> None:
    assert parse_symbols("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "Fatbin elf code:\narch = gfx90a\n",
        "Fatbin elf code:\n====\nsymbols:\n",
        "arch = sm_80\n",
        "Fatbin elf code:\narch = sm_80\nSTT_FUNC _Z1kPf\n",
        "Fatbin elf code:\narch = sm_80\nFUNC GLOBAL _Z1kPf\n",
        "Fatbin elf code:\narch = sm_80\nFUNC GLOBAL ENTRY DEFAULT _Z1kPf\n",
    ],
)
def test_what_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(TorchwheelError, match="cuobjdump"):
        parse_symbols(text)


@given(st.text())
def test_any_text_is_modules_or_an_error(text: str) -> None:
    with contextlib.suppress(TorchwheelError):
        assert all(isinstance(module.arch, CudaArch) for module in parse_symbols(text))


@given(
    entry=st.sampled_from(
        ["STT_FUNC   STB_GLOBAL STO_ENTRY   ", "FUNC   GLOBAL  DEFAULT    ENTRY     "]
    ),
    modules=st.lists(
        st.tuples(
            st.sampled_from(["elf", "ptx"]),
            st.builds("sm_{}{}".format, st.integers(10, 999), st.sampled_from(["", "a", "f"])),
            st.lists(
                st.text(string.ascii_letters + string.digits + "_").map("_Z".__add__), unique=True
            ),
        )
    ),
)
def test_what_is_printed_is_read_back(
    entry: str, modules: list[tuple[str, str, list[str]]]
) -> None:
    text = ""
    for kind, arch, kernels in modules:
        text += f"\nFatbin {kind} code:\n================\narch = {arch}\ncode version = [1,8]\n"
        if kind == "elf":
            text += "\nsymbols:\n"
            text += "".join(f"{entry}{name}\n" for name in kernels)
    assert [(code.kind, code.arch.binary_name, code.kernels) for code in parse_symbols(text)] == [
        ("sass" if kind == "elf" else "ptx", arch, tuple(sorted(kernels)) if kind == "elf" else ())
        for kind, arch, kernels in modules
    ]


@pytest.mark.parametrize("line", ["identifier: a.cu", "identifier = /project/csrc/a.cu"])
def test_the_source_of_a_module_is_no_fault(line: str) -> None:
    (code,) = parse_symbols(f"Fatbin elf code:\n================\narch = sm_90\n{line}\n")
    assert code.arch.binary_name == "sm_90"


def no_package(name: str) -> None:
    raise importlib.metadata.PackageNotFoundError(name)


def test_the_pinned_cuobjdump_goes_before_that_of_a_toolkit(tmp_path: Path) -> None:
    home = program(tmp_path / "bin" / "cuobjdump")
    environ = {"PATH": str(home.parent), "CUDA_HOME": str(tmp_path)}
    pinned = cuda.find_cuobjdump(None, environ)
    assert pinned
    assert "site-packages" in pinned.parts


def test_where_cuobjdump_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "files", no_package)
    given_, named, path, home = (
        program(tmp_path / part / "bin" / "cuobjdump")
        for part in ("given", "named", "path", "home")
    )
    environ = {"PATH": str(path.parent), "CUDA_HOME": str(home.parent.parent)}
    with_variable = {**environ, cuda.VARIABLE: str(named)}
    assert cuda.find_cuobjdump(given_, with_variable) == given_
    assert cuda.find_cuobjdump(None, with_variable) == named
    assert cuda.find_cuobjdump(None, environ) == home
    assert cuda.find_cuobjdump(None, {"PATH": str(path.parent)}) is None
    with pytest.raises(TorchwheelError, match=r"expected at .*gone"):
        cuda.find_cuobjdump(tmp_path / "gone", environ)


def test_a_library_without_device_code_is_empty(tmp_path: Path) -> None:
    says = "cuobjdump info    : File 'x.so' does not contain device code"
    quiet = program(tmp_path / "c", f'echo "{says}" >&2; exit 255')
    assert cuda.dump_symbols(quiet, Path("x.so")) == ""


@pytest.mark.parametrize(
    "body",
    [
        "echo no such thing >&2; exit 1",
        "exit 3",
        "echo a warning >&2",
        # As 13.x does that stops after the first of several modules.
        "echo 'Fatbin elf code:'; echo 'arch = sm_80'; exit 1",
    ],
)
def test_a_failing_cuobjdump_is_an_error(tmp_path: Path, body: str) -> None:
    with pytest.raises(TorchwheelError, match=r"failed on x\.so"):
        cuda.dump_symbols(program(tmp_path / "c", body), Path("x.so"))


def test_a_cuobjdump_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("no program")
    with pytest.raises(TorchwheelError, match="cannot be run"):
        cuda.dump_symbols(tmp_path / "c", Path("x.so"))
