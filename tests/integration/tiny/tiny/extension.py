from torchwheel_runtime.builder import Extension, Flags, Operator, Probe

EXTENSION = Extension(
    package="tiny",
    sources="csrc",
    operators=(Operator("scale", device=("scale.cu",), bindings={"stable": ("stable.cpp",)}),),
    flags=Flags(cuda=("--use_fast_math",)),
    toolkit_flags={"cuda>=13": Flags(cxx=("-DBLANK='a b' $(c)",)), "rocm": Flags(("-DROCM",))},
    probes=(
        Probe("open", Flags(cxx=("-DHAS_DLOPEN",), libraries=("dl",)), function="dlopen"),
        Probe("absent", Flags(cxx=("-DHAS_ABSENT",)), function="no_such_function"),
        Probe("flag", Flags(cxx=("-mno-such-flag",))),
        Probe("cpu", Flags(cxx=("-DCPU",)), cpu=("sse2",)),
    ),
)
