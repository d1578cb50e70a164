"""Symbols of torch, known by the form of their names."""

import re

SHIMS = ("torch_", "aoti_torch_")
"""C names of libtorch: all that a stable library may use."""
# A namespace of torch as Itanium mangling writes it: its length, its name, then what is in it (a
# name, or an operator such as "ls").
_CXX = re.compile(r"_Z.*?(?<!\d)(?:2at|3c10|5torch|6caffe2)(?=[0-9La-z])")
_NESTED = re.compile(r"_ZN[KVr]*")
_LENGTH = re.compile(r"[1-9]\d*")


def is_cxx(name: str) -> bool:
    """Whether it is a C++ symbol of torch: one of its minor releases has it."""
    return _CXX.match(name) is not None


def readable(name: str) -> str:
    """The qualified name in a mangled one, e.g. "c10::cuda::SetDevice"; else the name as it is."""
    start = _NESTED.match(name)
    parts: list[str] = []
    at = start.end() if start else len(name)
    while length := _LENGTH.match(name, at):
        at = length.end() + int(length[0])
        parts.append(name[length.end() : at])
    return "::".join(parts) if parts else name
