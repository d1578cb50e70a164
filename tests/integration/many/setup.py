"""Two extensions of several files: what shards divide."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

# slow.cpp takes a compiler long enough to be stopped in the middle.
flags = ["-O1", "-fconstexpr-ops-limit=4000000000", "-fconstexpr-loop-limit=100000000"]
files = {
    "many._C": ["many/module.cpp", "many/slow.cpp", "many/part.cpp"],
    "many._D": ["many/second.cpp"],
}
setup(
    name="many",
    version="1.0",
    packages=["many"],
    ext_modules=[
        CppExtension(name, sources, extra_compile_args=flags) for name, sources in files.items()
    ],
    cmdclass={"build_ext": BuildExtension},
)
