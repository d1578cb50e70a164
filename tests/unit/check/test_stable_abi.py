"""What keeps a library from the stable ABI: the construct of each symbol, and what replaces it."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elfmaker import linked
from torchwheel import cli
from torchwheel.check.libraries import complete_since
from torchwheel.check.named_claims import case_of
from torchwheel.check.stable_abi import (
    UNKNOWN,
    Construct,
    construct_of,
    read_stable_abi,
    replacements,
    stable_abi_json,
    stable_abi_text,
)
from torchwheel.check.torch_symbols import export_table
from torchwheel.inspect.inspection import inspect
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.machine.torch import read_torch
from torchwheel_runtime.versions import version_numbers
from wheelmaker import make_wheel

CONSTRUCTS = replacements().constructs
SOURCES = {
    "_ZNK2at10TensorBase8data_ptrIfEEPT_v": "tensor.data_ptr<T>(), tensor.mutable_data_ptr<T>()",
    "_ZNK2at10TensorBase14const_data_ptrIN3c108BFloat16EEEPKT_v": "tensor.const_data_ptr<T>()",
    "_ZN3c1021throwNullDataPtrErrorEv": "tensor.data_ptr<T>(), tensor.mutable_data_ptr<T>()",
    "_ZN3c106detail14torchCheckFailEPKcS2_jS2_": "TORCH_CHECK, TORCH_INTERNAL_ASSERT, AT_ERROR",
    "_ZTVN3c105ErrorE": "TORCH_CHECK, TORCH_INTERNAL_ASSERT, AT_ERROR",
    "_ZN3c1010ValueErrorC1ENS_14SourceLocationE": "TORCH_CHECK, TORCH_INTERNAL_ASSERT, AT_ERROR",
    "_ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE": "m.def, m.impl",
    "_ZN3c1010TensorType3getEv": "m.def, m.impl",
    "_ZN3c1010SymIntType3getEv": "m.def, m.impl",
    "_ZN3c109ClassType9addMethodEPN5torch3jit8FunctionE": "torch::class_",
    "_ZNK3c106SymInt9guard_intEPKcl": "sizes as c10::SymInt",
    "_ZN3c104cuda20getCurrentCUDAStreamEa": "at::getCurrentCUDAStream",
    "_ZN3c104cuda14ExchangeDeviceEa": "at::cuda::CUDAGuard",
    "_ZTHN3c104impl26raw_local_dispatch_key_setE": "c10::Dispatcher::singleton()",
    "_ZN2at14RecordFunctionC1EONS_13StepCallbacksE": "c10::Dispatcher::singleton()",
    "_ZN2at14RecordFunction3endEv": "RECORD_FUNCTION",
    "_ZN2at4_ops10empty_like4callERKNS_6TensorE": "at::NAME(…), tensor.NAME(…)",
    "_ZN2at4_ops4item4callERKNS_6TensorE": "tensor.item<T>(), c10::Scalar",
    "_ZN3c10lsERSoNS_10DeviceTypeE": "values that are printed",
    "_ZN5torch8autograd4Node8metadataEv": "torch::autograd::Function",
    "_ZTIN5torch8autograd4NodeE": "torch::autograd::Function",
    "THPVariable_Wrap": "tensors of Python",
    "_Z16THPVariable_WrapRKN2at10TensorBaseE": "others",
    "_ZN2at7nowhereEv": "others",
}
REPLACED = {
    "_ZN2at4_ops10empty_like4callERKNS_6TensorE": ("torch::stable::NAME", "2.9", "2.9"),
    "_ZN2at4_ops7permute4callERKNS_6TensorE": ("torch::stable::NAME", "2.14", "2.10"),
    "_ZN2at4_ops4abs_4callERNS_6TensorE": ('torch_call_dispatcher("aten::NAME"', "2.10", "2.10"),
    "_ZN2at11TensorMaker11make_tensorEv": ("torch::stable::from_blob", "2.10", "2.10"),
    "_ZNK2at10TensorBase8data_ptrIfEEPT_v": ("tensor.mutable_data_ptr<T>()", "2.10", "2.10"),
    "THPVariable_Unpack": ("torch::stable::tensor_from_pyobject", "2.14", "2.14"),
}


@pytest.mark.parametrize("symbol", SOURCES)
def test_the_construct_that_a_symbol_comes_of(symbol: str) -> None:
    assert construct_of(symbol).source.startswith(SOURCES[symbol])


@given(st.text(max_size=40))
@example("9" * 19)
@example("_ZN" + "9" * 5000)
def test_any_name_comes_of_something(name: str) -> None:
    assert construct_of(name) in (*CONSTRUCTS, UNKNOWN)
    assert construct_of(f"_ZN2at{name}") in (*CONSTRUCTS, UNKNOWN)


@pytest.mark.parametrize("row", CONSTRUCTS, ids=lambda row: row.source)
def test_a_row_says_what_to_do_and_is_reached(row: Construct) -> None:
    assert bool(row.use) != bool(row.instead)
    assert bool(row.header) == bool(row.headers)
    assert row.headers in ("", *export_table().releases)
    assert not row.shims or complete_since(row.shims, export_table())
    names = [pattern.replace("*", "Xx").replace("?", "x") for pattern in row.symbols]
    mangled = ["_ZN" + "".join(f"{len(p)}{p}" for p in name.split("::")) + "Ev" for name in names]
    assert row in map(construct_of, (*names, *mangled))


def installed_torch() -> Torch:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("torch is not installed")
    found = read_torch(Path(spec.origin).parent)
    assert isinstance(found, Torch)
    return found


@pytest.mark.parametrize("row", [one for one in CONSTRUCTS if one.header], ids=lambda r: r.source)
def test_the_headers_have_the_replacement(row: Construct) -> None:
    torch = installed_torch()
    if version_numbers(torch.minor) < version_numbers(row.headers):
        pytest.skip(f"torch {torch.minor} is older than its headers, torch {row.headers}")
    include = torch.folder / "include"
    text = (include / row.header).read_text("utf-8")
    for inner in re.findall(r"#include <(torch/(?:csrc/stable|headeronly)[^>]*)>", text):
        text += (include / inner).read_text("utf-8")
    first = re.split(r"[ ,;(<]", str(row.use))[0].rpartition("::")[2].removeprefix("tensor.")
    names = ("subtract", "amax") if first == "NAME" and row.headers < "2.14" else (first,)
    assert any(re.search(rf"\b{name}\b", text) for name in names)


def report_of(folder: Path, *symbols: str, **changes: object) -> tuple[str, dict[str, object]]:
    files = {"demo/_C.so": linked(undefined=symbols), "demo/_D.so": linked(undefined=symbols[:1])}
    wheel = make_wheel(folder, files={**files, **changes}, claims=None)  # type: ignore[arg-type]
    found = read_stable_abi(case_of(inspect(str(wheel))))
    return " ".join(stable_abi_text(found).split()), json.loads(stable_abi_json(found))


@pytest.mark.parametrize("symbol", REPLACED)
def test_the_replacement_and_the_torch_that_has_it(symbol: str, tmp_path: Path) -> None:
    use, headers, since = REPLACED[symbol]
    text, document = report_of(tmp_path, symbol)
    assert f"replace {use}" in text
    assert f"of torch {headers}, runs with torch {since} and later" in text
    assert (document["since"], document["headers"]) == (since, headers)


def test_the_report_of_a_wheel(tmp_path: Path) -> None:
    gone = "_ZN5torch8autograd4Node8metadataEv"
    check = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
    text, document = report_of(tmp_path, check, gone, "aoti_torch_get_dtype", "PyList_New", "puts")
    for part in (
        "uses TORCH_CHECK, TORCH_INTERNAL_ASSERT, AT_ERROR, in 2 libraries symbols 1: "
        "c10::detail::torchCheckFail replace STD_TORCH_CHECK;",
        "uses torch::autograd::Function, in demo/_C.so symbols 1: torch::autograd::Node::metadata "
        "remains register the gradient in Python",
        "stable ABI 2 symbols are outside, 1 in it; 1 can be replaced: built with the headers of "
        "torch 2.9, one wheel serves torch 2.9 and later, once the 1 that remain are gone",
    ):
        assert part in text
    outside = document["outside"]
    assert isinstance(outside, list)
    assert [one["symbols"] for one in outside] == [[check], [gone]]
    assert outside[0]["libraries"] == ["demo/_C.so", "demo/_D.so"]


WELL = {
    ("torch_new_stable_ivalue",): "keep to it, with 1 C symbols: one wheel serves torch 2.13",
    ("aoti_torch_get_dtype",): "one wheel serves torch 2.9 and later",
    ("aoti_torch_of_nobody",): "one wheel serves no torch that is known",
    ("puts",): "they need nothing of torch",
}


@pytest.mark.parametrize("symbols", WELL)
def test_a_library_that_keeps_to_it(symbols: tuple[str, ...], tmp_path: Path) -> None:
    assert WELL[symbols] in report_of(tmp_path, *symbols)[0]


def test_a_library_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    text, document = report_of(tmp_path, "puts", **{"demo/_E.so": b"\x7fELF" + bytes(60)})
    assert "not read demo/_E.so" in text
    assert "stable ABI not judged: 1 of its libraries cannot be read" in text
    assert document["unread"] == ["demo/_E.so"]


@pytest.mark.parametrize(
    ("options", "start"), [([], "library"), (["--stable-abi"], "stable ABI")], ids=str
)
def test_the_command(
    options: list[str], start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make_wheel(tmp_path, files={"demo/_C.so": linked(undefined=["puts"])}, claims=None)
    assert cli.main(["inspect", *options, str(wheel)]) == 0
    assert any(line.startswith(start) for line in capsys.readouterr().out.splitlines())
