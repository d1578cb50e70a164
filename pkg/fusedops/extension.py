"""What is native about this package: the sources of each family of operators."""

from torchwheel.builder import Extension, Module, Operator


def _family(name: str, *device: str, uses: tuple[Operator, ...] = ()) -> Operator:
    """A family keeps to one naming: kernels/NAME*.cu, ops/NAME.cpp, torch/FLAVOUR/NAME.cpp.

    It is a library of its own when it is built at first use, so it has what it `uses` in it.
    """
    return Operator(
        name,
        device=(
            *(device or (f"kernels/{name}.cu",)),
            *(file for one in uses for file in one.device),
        ),
        host=(f"ops/{name}.cpp", *(file for one in uses for file in one.host)),
        bindings={abi: (f"torch/{abi}/{name}.cpp",) for abi in ("stable", "aten")},
    )


_BIAS_ACT = _family("bias_act", "kernels/bias_act.cu", "kernels/bias_act_backward.cu")
_GATED = _family("gated", "kernels/gated.cu", "kernels/gated_backward.cu")
_NORM = _family("norm", "kernels/norm*.cu")
_DEQUANTIZE = _family("dequantize")

EXTENSION = Extension(
    package="fusedops",
    sources="csrc",
    operators=(
        _family("vector_add"),
        _BIAS_ACT,
        _GATED,
        _family("residual"),
        _NORM,
        _family("rotary"),
        _family("layout"),
        _DEQUANTIZE,
        _family("attention"),
        _family(
            "softmax",
            "kernels/softmax.cu",
            "kernels/softmax_streamed.cu",
            "kernels/softmax_backward.cu",
        ),
        _family("gemm", "kernels/gemm_thin.cu", uses=(_BIAS_ACT, _GATED, _NORM, _DEQUANTIZE)),
    ),
    host=("ops/tensor_view.cpp", "ops/validate.cpp", "ops/masks.cpp"),
    module=Module(
        "fusedops._C",
        binding=("torch/aten/typed.cpp", "torch/aten/libstdcxx.cpp"),
        python=("torch/aten/module.cpp",),
    ),
)
