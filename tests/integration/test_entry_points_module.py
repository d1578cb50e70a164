"""The module of entry points over DLPack, without a kernel: what it refuses before it needs one."""

import subprocess
import sysconfig
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.cpp_extension import include_paths  # noqa: E402

import fusedops  # noqa: E402
from fusedops.extension import EXTENSION  # noqa: E402
from fusedops.typed import direct_call, entry_point  # noqa: E402

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
FAMILIES = ("vector_add", "norm")


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """The module of two families."""
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch has no DLPack exchange API")
    folder = tmp_path_factory.mktemp("module")
    source = ROOT / EXTENSION.sources
    chosen = [one for one in EXTENSION.operators if one.name in FAMILIES]
    globs = (*EXTENSION.host, *(glob for one in chosen for glob in one.host))
    globs = (*(one for one in globs if one not in EXTENSION.split.kernels), "torch/dlpack/*.cpp")
    include = (
        *(f"-I{source}", f"-I{ROOT}/pkg/torchwheel_runtime/src/torchwheel_runtime/include"),
        *(f"-isystem{path}" for path in (*include_paths(), sysconfig.get_path("include"))),
    )
    macros = ("-DTORCHWHEEL_FRONT_END", '-DTORCHWHEEL_PACKAGE="fusedops"')
    command = ("g++", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", *macros, *include)
    library = folder / "dlpack.abi3.so"
    files = [str(path) for glob in globs for path in sorted(source.glob(glob))]
    limited = "-DPy_LIMITED_API=0x030a0000"
    subprocess.run([*command, limited, "-o", library, *files], check=True)
    loader = ExtensionFileLoader("dlpack", str(library))
    made = module_from_spec(spec_from_loader("dlpack", loader))
    loader.exec_module(made)
    return made


@pytest.fixture
def function(module, monkeypatch):
    """Makes the module's entry point of a name."""

    def made(name):
        with monkeypatch.context() as patch:
            patch.setattr(fusedops.typed.runtime, "entry_points", lambda package: module)
            return entry_point(name, None)

    return made


def refusal(call, *args, **keywords):
    with pytest.raises((RuntimeError, TypeError, ValueError)) as caught:
        call(*args, **keywords)
    return caught.type, str(caught.value)


def test_an_inference_tensor_is_refused_as_in_python(function):
    x = torch.ones(2, 8)
    with torch.inference_mode():
        out = torch.zeros(2, 8)
    ours = function("vector_add_fp32")
    python = entry_point("vector_add_fp32", None)
    expected = refusal(python, x, x, out=out)
    assert "out: expected a tensor with a version counter, found an inference" in expected[1]
    assert refusal(ours, x, x, out=out) == expected
    both = function("pre_rms_norm_fp32")
    for outs in ((out, x.clone()), (x.clone(), out)):
        assert refusal(both, x, x.clone(), x[0].clone(), out=outs) == (
            TypeError,
            expected[1].replace("vector_add", "pre_rms_norm"),
        )


@pytest.mark.parametrize("inside", [True, False])
def test_an_inference_tensor_is_taken_in_inference_mode(function, inside):
    ours, x = function("vector_add_fp32"), torch.ones(2, 8)
    expected = (RuntimeError, "vector_add_fp32: a: expected a tensor on a GPU, found cpu")
    with torch.inference_mode(inside):
        assert refusal(ours, x, x, out=torch.zeros(2, 8)) == expected


X = torch.ones(2, 8)
WRONG = {
    "shape": ((X, X[0]), {}),
    "type": ((X, X.double()), {}),
    "another type": ((X.half(), X.half()), {}),
    "by name": ((X,), {"b": X[0]}),
    "out over half of an argument": ((X[:1], X[1:]), {"out": X.flatten()[4:12].view(1, 8)}),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_wrong_call_is_refused_as_in_python(why, function):
    args, keywords = WRONG[why]
    expected = refusal(entry_point("vector_add_fp32", None), *args, **keywords)
    assert expected[0] is ValueError
    assert refusal(function("vector_add_fp32"), *args, **keywords) == expected


def test_a_direct_call_that_is_refused_is_left_to_the_dispatcher(module, monkeypatch):
    monkeypatch.setattr(fusedops.typed.runtime, "entry_points", lambda package: module)
    assert direct_call("vector_add")(X, X[0]) is NotImplemented
