"""Wheels as others make them, and wheels of ours, right and wrong in one place.

`WHEELS` has a function for each by its name; it writes the wheel into a folder. `page` is what an
index of others offers.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from elfmaker import cubin, fatbin, linked, module, ptx
from wheelmaker import make_wheel, stable, universal, wheel_around

Maker = Callable[[Path], Path]
MANYLINUX = "manylinux_2_28_x86_64"

GPU_CODE = {
    ".nv_fatbin": fatbin(module(cubin(80)), module(cubin(90), 90), module(ptx(), kind=1)),
    ".nvFatBinSegment": bytes(24),
}
PLAIN = linked(undefined=["aoti_torch_abi_version"], needed=["libc.so.6"])
MANGLED = linked(
    undefined=["_ZN3c106detail14torchCheckFailEPKc", "aoti_torch_empty", "PyList_New"],
    needed=["libtorch.so", "libcudart.so.12"],
)
RUN_PATHS = linked(needed=["libtorch.so"], run_paths=["$ORIGIN:/somewhere"], sections=GPU_CODE)
OF_OTHERS = {
    "demo/__init__.py": b"",
    "demo-1.0.0.data/purelib/evil.pth": b"import os\n",
    "demo-1.0.0.data/scripts/pip": b"",
    "torch/_C/nested.py": b"",
}


def _wheel(library: bytes, version: str = "1.0.0", tag: str = f"cp312-cp312-{MANYLINUX}") -> Maker:
    """Makes a wheel that claims nothing around a library."""
    files = {"demo/__init__.py": b"", "demo/_C.so": library}
    return lambda at: make_wheel(at, version=version, tag=tag, claims=None, files=files)


WHEELS: dict[str, Maker] = {
    "pure": make_wheel,
    "pure, nothing claimed": lambda at: make_wheel(at, claims=None),
    "a library of C": _wheel(PLAIN),
    "C++ symbols of torch": _wheel(MANGLED, "1.0.0+cu126"),
    "limited API": _wheel(MANGLED, tag="cp312-abi3-linux_x86_64"),
    "run paths and GPU code": _wheel(RUN_PATHS, "1.0.0+cu130torch2.11"),
    "a ROCm version": _wheel(PLAIN, "1.0.0+rocm7.2"),
    "files of others": lambda at: make_wheel(at, claims=None, files=OF_OTHERS),
    "claims and no code": lambda at: wheel_around(at, PLAIN, stable(), MANYLINUX),
    "claims and other code": lambda at: wheel_around(at, RUN_PATHS, stable(), MANYLINUX),
    "another torch required": lambda at: make_wheel(at, requires=("torch==2.9",)),
    "no torch required": lambda at: make_wheel(at, requires=()),
    "universal without parts": lambda at: make_wheel(
        at, claims=universal(), tag=f"py3-none-{MANYLINUX}"
    ),
    "a changed RECORD": lambda at: make_wheel(
        at, bend_record=lambda text: text.replace("sha256=", "sha256=x", 1)
    ),
}

OWN = f"cp3{sys.version_info.minor}"
OFFERED = {
    f"demo-1.0.0+cu130torch2.11-{OWN}-{OWN}-manylinux_2_17_x86_64.whl": "",
    "demo-1.0.0+cu126torch2.11-cp39-abi3-manylinux_2_17_x86_64.whl": "",
    f"demo-1.0.0+cu124torch2.6-{OWN}-{OWN}-manylinux_2_17_x86_64.whl": "",
    f"demo-1.0.0+cu12torch2.6cxx11abiFALSE-{OWN}-{OWN}-linux_x86_64.whl": "",
    "demo-1.0.0+cputorch2.9-cp39-abi3-manylinux_2_17_x86_64.whl": "",
    "demo-1.0.0+rocm7.2torch2.11-cp39-abi3-manylinux_2_17_x86_64.whl": "",
    "demo-1.0.0+pt211cu130-cp39-abi3-linux_x86_64.whl": "",
    "demo-1.0.0-cp39-cp39-manylinux_2_17_x86_64.whl": "",
    "demo-1.0.0-py3-none-manylinux_2_99_x86_64.whl": "",
    "demo-1.0.0-py3-none-win_amd64.whl": "",
    "demo-0.9.0-py3-none-any.whl": "",
    "demo-0.8.0-py3-none-any.whl": 'data-yanked="it is slow"',
    "demo-0.7.0-py3-none-any.whl": 'data-requires-python="&gt;=3.99"',
    "demo-1.1.0rc1-py3-none-any.whl": "",
    "demo-no-wheel.whl": "",
    "demo-1.0.0.tar.gz": "",
}
"""Files that an index offers, each with the attributes of its link."""


def page() -> str:
    """The page of a project that offers these files, and one without its hash."""
    links = [
        f'<a href="../{file}#sha256={"1" * 64}" {more}>{file}</a>' for file, more in OFFERED.items()
    ]
    links.append('<a href="../demo-1.0.1-py3-none-any.whl">demo-1.0.1-py3-none-any.whl</a>')
    return "\n".join(links)
