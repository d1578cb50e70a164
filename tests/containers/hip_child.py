"""Runs in a ROCm image with torch: maps a HIP kernel library, then runs the reference tests.

    python3 hip_child.py LIBRARY FACTS TEST…

The facts are JSON: what the library needed, what it got, what the runtime says of GPUs.
"""

import ctypes
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fusedops

NO_DEVICE = 100  # hipErrorNoDevice


def main() -> int:
    """Map the library beside the front end, write the facts, run the tests."""
    name, facts, *tests = sys.argv[1:]
    libraries = Path(fusedops.__file__).parent / "_lib"
    kernels = libraries / "kernels" / name
    # RTLD_NOW: each symbol that it lacks would be an error here, not at a first launch.
    library = ctypes.CDLL(str(kernels), mode=os.RTLD_NOW)
    front_end = libraries / "front_end" / "stable.so"
    torch.ops.load_library(str(front_end))
    operators = ctypes.CDLL(str(front_end))
    use = operators.torchwheel_use_kernels
    use.argtypes, use.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_bool
    interfaces = {
        ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(one, "torchwheel_interface")))
        for one in (library, operators)
    }
    count = ctypes.c_int(-1)
    status = library.hipGetDeviceCount(ctypes.byref(count))  # of libamdhip64, which it needs
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {line.split(maxsplit=5)[5] for line in lines if ".so" in line}
    names = subprocess.run(
        ["nm", "--dynamic", "--undefined-only", str(kernels)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    Path(facts).write_text(
        json.dumps(
            {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "hip_runtime": sorted(
                    str(Path(file).resolve()) for file in mapped if "libamdhip64" in file
                ),
                "hip_symbols_resolved": sorted(
                    name.partition("@")[0] for name in names if name.startswith("hip")
                ),
                "mapped": sorted(Path(file).name for file in mapped if str(libraries) in file),
                "one_interface": len(interfaces) == 1,
                "kernels_taken": use(0, library._handle),
                "no_device": status == NO_DEVICE and count.value <= 0,
                "device_count": {"status": status, "count": count.value},
            }
        )
    )
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *tests]))


if __name__ == "__main__":
    sys.exit(main())
