"""What a GPU platform brings to a build, as flags; cuda.py and rocm.py each make one."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Backend:
    """Parts of command lines.

    Attributes:
        label: names device steps to a person: "CUDA" or "HIP".
        compiler: the device compiler and its language.
        strict: its flags that make a warning an error.
        flags: its other flags, but for the arch list and what every file gets.
        name_source: the device compiler's flag that names a source among the library's, if any.
        pass_on: put before each flag that is for the host compiler, e.g. ("-Xcompiler",).
        headers: flags with which host code finds the runtime's headers.
        link: what the library is linked with.
    """

    label: str
    compiler: tuple[str, ...]
    strict: tuple[str, ...]
    flags: tuple[str, ...]
    name_source: str
    pass_on: tuple[str, ...]
    headers: tuple[str, ...]
    link: tuple[str, ...]
