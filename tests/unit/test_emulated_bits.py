"""How the bits of a model and a GPU are compared: results apart from gradients."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "gpu"), str(TESTS / "emulation"), str(TESTS / "smoke")]

import emulate  # noqa: E402
import emulated_bits  # noqa: E402
from exact import the_case  # noqa: E402

CPU = torch.device("cpu")


def test_results_and_gradients_have_tables_of_their_own():
    case = the_case("bias_add")
    tables = dict(emulated_bits.of_case(case, CPU))
    dtypes = ("float32", "float16", "bfloat16", "float64")
    assert set(tables) == {
        f"bias_add {dtype} {kind}" for dtype in dtypes for kind in ("results", "gradients")
    }
    shapes = [tuple(one.shape) for one in tables["bias_add float32 results"]]
    assert shapes == [*case.small, case.strided]
    shapes = [tuple(one.shape) for one in tables["bias_add float32 gradients"]]
    assert shapes == [of for one in (*case.small, case.strided) for of in (one, one[-1:])]
    assert all(
        torch.equal(*both)
        for both in zip(
            tables["bias_add float32 results"],
            dict(emulated_bits.of_case(case, CPU))["bias_add float32 results"],
            strict=True,
        )
    )


def test_a_gradient_that_differs_leaves_the_results_equal(tmp_path, capsys):
    files = tmp_path / "a.pt", tmp_path / "b.pt"
    for file, gradient in zip(files, (1.0, 1.5), strict=True):
        tables = {"op float32 results": [torch.ones(3)]}
        torch.save(tables | {"op float32 gradients": [torch.full((2,), gradient)]}, file)
    assert emulated_bits.main(["compare", *map(str, files)]) == 0
    printed = capsys.readouterr().out
    assert "1 of 1 tables of results are equal bit for bit" in printed
    assert "0 of 1 tables of gradients are equal bit for bit" in printed


@pytest.mark.parametrize("models", [(), ("sm_90", "gfx90a")], ids=["none", "two"])
def test_a_file_holds_the_results_of_one_model(models, capsys, monkeypatch):
    monkeypatch.setattr(emulate, "build", lambda *_: pytest.fail("it built a model"))
    words = [word for model in models for word in ("--model", model)]
    assert emulate.main([*words, "--bits", "model.pt"]) == 2
    found = ", ".join(models) or "none"
    says = f"emulate: --bits: expected one --model, whose results it holds, found {found}\n"
    assert capsys.readouterr().err == says
