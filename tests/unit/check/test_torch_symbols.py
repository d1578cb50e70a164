"""The tables of torch's symbols, the command that makes them, and the torch that a library fits."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elfmaker import linked
from torchwheel.check.named_claims import fit_torch
from torchwheel.check.torch_symbols import (
    CPU,
    GPU,
    ExportTable,
    add_release,
    decode,
    encode,
    export_table,
    hash_of,
    main,
    read_torch_wheel,
)
from torchwheel.inspect.library_facts import LibraryFacts
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.inspect.elf import UndefinedSymbol
from wheelmaker import make_wheel

FAIL = (
    "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
)
FAIL_OLD = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"


def test_what_the_data_file_says() -> None:
    table = export_table()
    assert table.releases == tuple(f"2.{minor}" for minor in range(6, 16))
    assert "2.6" not in table.releases_with(FAIL)
    assert "2.10" in table.releases_with(FAIL)
    assert table.releases_with(FAIL_OLD) == {"2.6"}
    assert table.releases_with("_ZN3c106detail10no_such_fnEv") == frozenset()
    assert table.releases_with("aoti_torch_abi_version") == {*table.releases} - {"2.6"}


@given(st.dictionaries(st.integers(0, (1 << 40) - 1), st.integers(1, 7), max_size=50))
def test_what_is_written_is_read_back(masks: dict[int, int]) -> None:
    table = ExportTable(("2.6", "2.7", "2.10"), masks)
    assert decode(encode(table)) == table


def test_a_release_between_others() -> None:
    table = add_release(add_release(ExportTable((), {}), "2.9", ["a", "b"]), "2.11", ["b"])
    table = add_release(table, "2.10", ["b", "c"])
    assert table.releases == ("2.9", "2.10", "2.11")
    assert table.releases_with("a") == {"2.9"}
    assert table.releases_with("b") == {"2.9", "2.10", "2.11"}
    again = add_release(table, "2.9", ["c"])
    assert hash_of("a") not in again.masks
    assert again.releases_with("c") == {"2.9", "2.10"}


def library(*torch: str, exports: tuple[str, ...] = ()) -> LibraryFacts:
    undefined = tuple(map(UndefinedSymbol, torch))
    return LibraryFacts("demo/_C.so", undefined=undefined, exports=frozenset(exports))


def test_the_torch_that_a_library_fits() -> None:
    fit = fit_torch(library(FAIL, "aoti_torch_abi_version"), (), export_table())
    assert fit is not None
    assert (fit.shims, fit.others, fit.strings) == (1, 1, "new")
    assert "2.6" not in fit.releases
    assert dict(fit.lacking)["2.6"] == FAIL
    old = fit_torch(library(FAIL_OLD), (), export_table())
    assert old is not None
    assert (old.strings, old.releases) == ("old", ("2.6",))


def test_what_no_torch_has() -> None:
    unknown = "_ZN2at6nobodyEv"
    fit = fit_torch(library(unknown), (), export_table())
    assert fit is not None
    assert fit.unknown == (unknown,)
    # Another library of the wheel has it; a function of the extension's own takes a tensor.
    assert fit_torch(library(unknown), (library(exports=(unknown,)),), export_table()) is None
    assert fit_torch(library("_Z4demoRKN2at6TensorE"), (), export_table()) is None
    # torch for ROCm has it, of which the table knows nothing.
    assert fit_torch(library("_ZN3c103hip9SetDeviceEa"), (), export_table()) is None


def test_the_library_that_has_a_c_symbol() -> None:
    table = export_table()
    assert "2.11" in table.releases_by_library
    for name, home in (
        ("aoti_torch_get_current_cuda_stream", GPU),
        ("torch_call_dispatcher", CPU),
        ("torch_library_impl", CPU),
        # Stable wheels may use no C++, and nothing that libtorch_python alone has.
        (FAIL, None),
        ("THPVariable_Check", None),
    ):
        assert table.home_of(name, "2.11") == home
    assert table.home_of("torch_call_dispatcher", "2.6") is None


def test_the_names_of_a_wheel_of_torch(tmp_path: Path) -> None:
    defined = {
        "libtorch_cpu.so": [FAIL, "torch_x", "puts"],
        "libtorch_cuda.so": ["aoti_torch_y"],
        "libtorch_python.so": ["THPVariable_Check", "torch_z"],
        "libtorch_global_deps.so": ["torch_no"],
    }
    files = {f"torch/lib/{name}": linked(defined=names) for name, names in defined.items()}
    path = make_wheel(tmp_path, name="torch", version="2.99.1", files=files, claims=None)
    release, names = read_torch_wheel(path)
    assert release == "2.99"
    assert names == {
        *(FAIL, "torch_x", "aoti_torch_y", "THPVariable_Check", "torch_z"),
        *(CPU, GPU, f"{CPU}:torch_x", f"{GPU}:aoti_torch_y"),
    }
    table = add_release(ExportTable((), {}), release, names)
    assert table.releases_by_library == ("2.99",)
    found = [table.home_of(f"torch_{letter}", "2.99") for letter in "xz"]
    assert found == [CPU, None]


def test_another_wheel_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a wheel of torch expected, got numpy"):
        read_torch_wheel(Path("numpy-2.0.0-py3-none-any.whl"))


def test_a_wheel_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torch-2.11.0-py3-none-any.whl"]) == 1
    assert "no such file" in capsys.readouterr().err
    assert main([]) == 2
