"""Makes dist-info folders, complete or malformed."""

from pathlib import Path

import wheelmaker
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC

FILES = {"demo/__init__.py": b"answer = 42\n", "demo/_C.so": ELF_MAGIC}


def put(root: Path, *, name: str = "demo", version: str = "1.0.0", **files: bytes | None) -> Path:
    """Install `demo` as pip leaves it; `files` of its dist-info replace its own; None: left out."""
    folder = root / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    for path, data in FILES.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(data)
    lines = "".join(wheelmaker.record_line(*item) for item in FILES.items())
    held = {
        "METADATA": wheelmaker.metadata(name, version, ("torch>=2.11", "numpy")),
        "WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-linux_x86_64\n",
        "RECORD": lines.encode(),
        claims_file.FILE: claims_file.dumps(wheelmaker.stable()).encode(),
        **{file.replace("__", "."): data for file, data in files.items()},
    }
    for file, data in held.items():
        if data is not None:
            (folder / file).write_bytes(data)
    return folder
