"""Run by a Python that has torch: what that torch is, and what it loads into a process.

Run by `torchwheel.sdist.target` as `python -c …`. Standard library and torch only.
"""

import json
from pathlib import Path


def main() -> None:
    """Print one line of JSON, last."""
    import torch  # noqa: PLC0415 - the one thing that is not there where this file is only read

    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    files = {line.split(maxsplit=5)[5] for line in mapped if ".so" in line}
    facts = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "folder": str(Path(torch.__file__).parent),
        "old_abi": not torch._C._GLIBCXX_USE_CXX11_ABI,
        # Without a GPU torch.cuda.get_arch_list() says nothing.
        "archs": (torch._C._cuda_getArchFlags() or "").split() if torch.version.cuda else [],
        "loaded": sorted(Path(file).name for file in files),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
