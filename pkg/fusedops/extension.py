"""The native sources of each family of operators."""

from torchwheel.builder import Extension, Module, Operator, Split


def _family(name: str, *, header_only: bool = False, uses: tuple[Operator, ...] = ()) -> Operator:
    """The files of a family follow one naming: kernels/NAME*.cu, ops/NAME.cpp, families/NAME.cpp.

    Args:
        name: the family's name.
        header_only: its host side is ops/NAME.h alone.
        uses: families whose kernels it calls. Built at first use, a family is a library of its
            own, so that library contains them too.
    """
    host = () if header_only else (f"ops/{name}.cpp",)
    binding = (f"torch/families/{name}.cpp",)
    return Operator(
        name,
        device=(f"kernels/{name}*.cu", *(file for one in uses for file in one.device)),
        host=(*host, *(file for one in uses for file in one.host)),
        bindings={"stable": binding, "aten": binding},
    )


_BIAS_ACT = _family("bias_act")
_GATED = _family("gated")
_NORM = _family("norm")
_DEQUANTIZE = _family("dequantize")

EXTENSION = Extension(
    package="fusedops",
    sources="csrc",
    operators=(
        _family("vector_add", header_only=True),
        _BIAS_ACT,
        _GATED,
        _family("residual"),
        _NORM,
        _family("rotary"),
        _family("layout"),
        _DEQUANTIZE,
        _family("attention"),
        _family("softmax"),
        _family("gemm", uses=(_BIAS_ACT, _GATED, _NORM, _DEQUANTIZE)),
    ),
    host=("kernels/runtime.cpp", "ops/tensor_view.cpp", "ops/validate.cpp", "ops/masks.cpp"),
    module=Module("fusedops._C", binding="torch/aten/typed.cpp", python=("torch/aten/module.cpp",)),
    split=Split(
        interface=("kernels/*.h", "platform/runtime.h"),
        kernels=("kernels/runtime.cpp",),
        # Products of matrices are torch's own, and attention writes to a workspace.
        entry_points=(
            "torch/dlpack/*.cpp",
            *(
                f"torch/families/{family}.cpp"
                for family in (
                    *("vector_add", "bias_act", "gated", "residual", "norm", "rotary"),
                    *("layout", "softmax"),
                )
            ),
        ),
    ),
)
