"""`torchwheel doctor --all` with the torch that is installed, and after a move to the newest."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT, python_path
from elfmaker import linked
from torchwheel.check.torch_symbols import export_table
from torchwheel_runtime.inspect.elf import exported_symbols, is_cxx, qualified_name
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.machine.torch import find_torch

TORCH = find_torch()
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not isinstance(TORCH, Torch), reason="torch is not installed"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the libraries are for x86_64"),
]
STABLE = "aoti_torch_get_data_ptr"


@pytest.fixture
def gone() -> tuple[str, str]:
    """A C++ symbol of libc10.so that the newest torch no longer has, and that torch."""
    assert isinstance(TORCH, Torch)
    table = export_table()
    for name in sorted(exported_symbols(TORCH.folder / "lib" / "libc10.so")):
        known = table.releases_with(name)
        if is_cxx(name) and TORCH.minor in known and table.releases[-1] not in known:
            return name, table.releases[-1]
    pytest.skip(f"libc10.so of torch {TORCH.minor} has nothing that a newer one lacks")


def install(site: Path, name: str, symbol: str) -> None:
    """A package whose module must not be imported, with a library that needs a symbol of torch."""
    folder, info = site / name, site / f"{name}-1.0.0.dist-info"
    folder.mkdir(parents=True)
    info.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('was imported')\n")
    needed = ["libc10.so", "libtorch_cpu.so"]
    (folder / "_C.so").write_bytes(linked(undefined=[symbol], needed=needed))
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n{name}/_C.so,,\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")


def doctor(site: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "torchwheel", "doctor", *arguments]
    environ = {**os.environ, "PYTHONPATH": python_path(ROOT, site)}
    return subprocess.run(
        command, cwd=site, env=environ, capture_output=True, text=True, check=False
    )


def test_a_move_breaks_what_needs_a_symbol_that_is_gone(
    tmp_path: Path, gone: tuple[str, str]
) -> None:
    symbol, newest = gone
    site = tmp_path / "site"
    install(site, "movable", STABLE)
    install(site, "stuck", symbol)
    install(site, "lost", "_ZN3c107nowhereEv")
    now = json.loads(doctor(site, "--all", "--json").stdout)
    then = doctor(site, "--all", "--torch", newest, "--json")
    found = {
        one["name"]: (before["state"], one["state"])
        for before, one in zip(now["packages"], json.loads(then.stdout)["packages"], strict=True)
    }
    ours = {name: found[name] for name in ("movable", "stuck", "lost")}
    assert (then.returncode, ours) == (
        1,
        {"movable": ("works", "works"), "stuck": ("works", "breaks"), "lost": ("wrong", "wrong")},
    )
    text = doctor(site, "stuck", "--torch", newest)
    assert f"has no {qualified_name(symbol)}" in " ".join(text.stdout.split())
    assert doctor(site, "movable", "--torch", newest).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--all", "movable"], "expected --all or names of packages, found both"),
        (["--torch", "2.15"], "expected --all or names of packages, found neither"),
        (["--all", "--torch", "1.0"], "--torch: expected one of 2.6"),
        (["nowhere_to_be_found", "--python", "3.14"], "expected a package of this Python"),
    ],
)
def test_a_wrong_call(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = doctor(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
