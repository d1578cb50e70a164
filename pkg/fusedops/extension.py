"""What is native about this package: the sources of each family of operators."""

from torchwheel.builder import Extension, Module, Operator


def _family(name: str, *device: str) -> Operator:
    """A family keeps to one naming: kernels/NAME*.cu, ops/NAME.cpp, torch/FLAVOUR/NAME.cpp."""
    return Operator(
        name,
        device=device or (f"kernels/{name}.cu",),
        host=(f"ops/{name}.cpp",),
        bindings={abi: (f"torch/{abi}/{name}.cpp",) for abi in ("stable", "aten")},
    )


EXTENSION = Extension(
    package="fusedops",
    sources="csrc",
    operators=(
        _family("vector_add"),
        _family("bias_act", "kernels/bias_act.cu", "kernels/bias_act_backward.cu"),
    ),
    host=("ops/tensor_view.cpp", "ops/validate.cpp"),
    module=Module(
        "fusedops._C", binding=("torch/aten/typed.cpp",), python=("torch/aten/module.cpp",)
    ),
)
