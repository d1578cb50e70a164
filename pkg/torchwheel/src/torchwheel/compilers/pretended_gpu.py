"""Answers the questions for a GPU of a setup.py: a build has none, and compiles for those listed.

`install` copies this file into the environment of a build. torch calls `answer` at the end of its
import there (entry points of the group torch.backends), so that torch.cuda has a GPU of each arch
of TORCH_CUDA_ARCH_LIST or PYTORCH_ROCM_ARCH, the newest first. torch still finds no driver: what
runs something on a GPU fails as before. TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns it off. Standard
library only.
"""

import os
import re
import shutil
import sys
import types
from pathlib import Path

_NAME = "torchwheel_pretended_gpu"
_ARCH = re.compile(r"(?:(\d+)\.(\d)[af]?(?:\+PTX)?|gfx(\d+)([0-9a-f])[0-9a-f](?::.*)?)\Z")


def install(environment: Path) -> None:
    """Write this module and its entry point into a folder on the path of a build's Python."""
    environment.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(__file__, environment / f"{_NAME}.py")
    information = environment / f"{_NAME}-1.dist-info"
    information.mkdir(exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: 1\n"
    (information / "METADATA").write_text(metadata, encoding="utf-8")
    entry = f"[torch.backends]\n{_NAME} = {_NAME}:answer\n"
    (information / "entry_points.txt").write_text(entry, encoding="utf-8")


def capabilities(archs: str) -> "list[tuple[int, int, str]]":
    """Major, minor and AMD's name of each arch of a list, the newest first; each number once."""
    found: dict[tuple[int, int], str] = {}
    for word in archs.replace(";", " ").split():
        if arch := _ARCH.match(word):
            numbers = (int(arch[1] or arch[3]), int(arch[2] or arch[4], 16))
            found.setdefault(numbers, word if arch[3] else "")
    return [(*numbers, found[numbers]) for numbers in sorted(found, reverse=True)]


def answer() -> None:
    """Have torch.cuda say that there is a GPU of each arch that is compiled for."""
    torch = sys.modules["torch"]
    variable = "PYTORCH_ROCM_ARCH" if torch.version.hip else "TORCH_CUDA_ARCH_LIST"
    gpus = capabilities(os.environ.get(variable, ""))
    if not gpus:
        return

    def properties(device: object = None) -> types.SimpleNamespace:
        number = re.search(r"\d+\Z", str(device))
        major, minor, name = gpus[int(number[0]) if number else 0]
        named = f"pretended GPU {name or f'{major}.{minor}'}"
        return types.SimpleNamespace(name=named, major=major, minor=minor, gcnArchName=name)

    def capability(device: object = None) -> "tuple[int, int]":
        found = properties(device)
        return found.major, found.minor

    answers = {
        "is_available": lambda: True,
        "device_count": lambda: len(gpus),
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: properties(device).name,
        "get_device_capability": capability,
        "get_device_properties": properties,
    }
    for name, function in answers.items():
        setattr(torch.cuda, name, function)
    accelerator = getattr(torch, "accelerator", types.SimpleNamespace())  # since torch 2.6
    for name in ("is_available", "device_count"):
        setattr(accelerator, name, answers[name])
