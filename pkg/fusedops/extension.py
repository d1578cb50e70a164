"""The native sources of each family of operators."""

from torchwheel_runtime.builder import Extension, Module, Operator, Split


def _family(
    name: str,
    *,
    uses: tuple[Operator, ...] = (),
    entry_points: bool = True,
) -> Operator:
    """The files of a family follow one naming: kernels/NAME*.cu, families/NAME*.cpp.

    Args:
        name: the family's name.
        uses: families whose kernels it calls. Built at first use, a family is a library of its
            own, so that library contains them too.
        entry_points: whether it has entry points over DLPack.
    """
    return Operator(
        name,
        device=(f"kernels/{name}*.cu", *(file for one in uses for file in one.device)),
        host=(f"families/{name}*.cpp",),
        bindings={flavour: (f"torch/{flavour}/library.cpp",) for flavour in ("stable", "aten")},
        entry_points=entry_points,
    )


_BIAS_ACT = _family("bias_act")
_GATED = _family("gated")
_NORM = _family("norm")
_DEQUANTIZE = _family("dequantize", entry_points=False)

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
        _family("attention", entry_points=False),  # writes to a workspace
        _family("softmax"),
        # Products of matrices are torch's own.
        _family("gemm", uses=(_BIAS_ACT, _GATED, _NORM, _DEQUANTIZE), entry_points=False),
    ),
    host=(
        "kernels/runtime.cpp",
        *(f"families/{name}.cpp" for name in ("tensor", "call", "checks", "api", "masks")),
    ),
    module=Module("fusedops._C", binding="torch/aten/typed.cpp", python=("torch/aten/module.cpp",)),
    split=Split(
        interface=("kernels/*.h", "platform/runtime.h"),
        kernels=("kernels/runtime.cpp",),
        entry_points=("torch/dlpack/*.cpp",),
    ),
)
