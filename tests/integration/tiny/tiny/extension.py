from torchwheel.builder import Extension, Operator

EXTENSION = Extension(
    package="tiny",
    sources="csrc",
    operators=(Operator("scale", device=("scale.cu",), bindings={"stable": ("stable.cpp",)}),),
)
