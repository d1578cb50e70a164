"""The native sources of each family of operators."""

from torchwheel_runtime.builder import Extension, Module, Operator, Split


def _family(
    name: str,
    *,
    kernels: tuple[str, ...] = (),
    uses: tuple[Operator, ...] = (),
) -> Operator:
    """The files of a family follow one naming: kernels/NAME.cu, families/NAME*.cpp.

    Args:
        name: the family's name.
        kernels: its files of device code, if it has others than kernels/NAME.cu.
        uses: families whose kernels it calls. Built at first use, a family is a library of its
            own, so that library contains them too.
    """
    device = (f"kernels/{file}.cu" for file in kernels or (name,))
    return Operator(
        name,
        device=(*device, *(file for one in uses for file in one.device)),
        host=(f"families/{name}*.cpp",),
        bindings={flavour: (f"torch/{flavour}/library.cpp",) for flavour in ("stable", "aten")},
    )


_BIAS_ACT = _family("bias_act", kernels=("bias_act", "bias_act_backward"))
_GATED = _family("gated", kernels=("gated", "gated_backward"))
_NORM = _family("norm", kernels=("norm", "norm_backward", "norm_layer", "norm_rms"))
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
        _family("softmax", kernels=("softmax", "softmax_backward", "softmax_streamed")),
        _family(
            "gemm",
            kernels=("gemm_skinny", "gemm_decode"),
            uses=(_BIAS_ACT, _GATED, _NORM, _DEQUANTIZE),
        ),
    ),
    host=(
        "kernels/runtime.cpp",
        *(f"families/{name}.cpp" for name in ("tensor", "call", "checks", "api", "masks")),
    ),
    module=Module(
        "fusedops._C",
        binding="torch/aten/entry_points.cpp",
        python=("torch/aten/module.cpp", "torch/python/*.cpp"),
    ),
    split=Split(
        interface=("kernels/*.h", "platform/runtime.h"),
        kernels=("kernels/runtime.cpp",),
        entry_points=("torch/dlpack/*.cpp", "torch/python/*.cpp"),
    ),
)
