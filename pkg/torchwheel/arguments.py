"""What the command line takes: one function for each command."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from torchwheel import __version__


def parser() -> argparse.ArgumentParser:
    """The parser of `torchwheel COMMAND …`; the result's `command` is the command's name."""
    top = argparse.ArgumentParser(
        prog="torchwheel",
        description="Builds, proves, tests and publishes wheels of PyTorch extensions.",
    )
    top.add_argument("--version", action="version", version=f"torchwheel {__version__}")
    top.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, (text, options) in _COMMANDS.items():
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=name)
        options(made)
    return top


def _with_matrix(made: argparse.ArgumentParser) -> None:
    made.add_argument("--matrix", type=Path, default=Path("matrix.yaml"), help="the matrix")


def _matrix(made: argparse.ArgumentParser) -> None:
    _with_matrix(made)
    made.add_argument("variant", nargs="*", help="selection, variant id or pattern (default: all)")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json", default="table")
    form.add_argument("--github", dest="form", action="store_const", const="github")
    made.add_argument(
        "--output", type=Path, help="append it to this file as a step's output: matrix=…"
    )


def _wheels(made: argparse.ArgumentParser) -> None:
    _with_matrix(made)
    made.add_argument(
        "variant", nargs="*", help="selection, variant id or pattern (default: default)"
    )
    made.add_argument("--dist", type=Path, default=Path("dist"), help="the output folder")
    made.add_argument(
        "--archs", default="", help='another arch list, e.g. "9.0;12.0+PTX" or gfx942'
    )
    made.add_argument("--no-launcher", action="store_true", help="compile without sccache")
    made.add_argument(
        "--container", action="store_true", help="build native variants in their images"
    )
    made.add_argument(
        "--show", action="store_true", help="print what cibuildwheel would be told, build nothing"
    )
    made.add_argument(
        "--twice", action="store_true", help="build each again, elsewhere: the bytes must be equal"
    )
    made.add_argument(
        "--resume", action="store_true", help="repeat the last call, doing only what is missing"
    )
    made.add_argument(
        "--at-once", type=_count, help="variants in work at a time (default: by cores and memory)"
    )


def _images(made: argparse.ArgumentParser) -> None:
    _with_matrix(made)
    made.add_argument("variant", nargs="*", help="variants they are for (default: release)")


def _build(made: argparse.ArgumentParser) -> None:
    made.add_argument("source", type=Path, help="an sdist, or the folder of a project")
    made.add_argument("--dist", type=Path, default=Path("dist"), help="the output folder")
    made.add_argument("--torch", help="the torch it is for, e.g. 2.11.0 (default: the newest)")
    made.add_argument("--toolkit", help="a CUDA release, e.g. 13.0 (default: torch's own)")
    made.add_argument(
        "--archs",
        help='arch list, e.g. "9.0;12.0+PTX" (default: TORCH_CUDA_ARCH_LIST, else those of torch)',
    )
    made.add_argument("--cpu", action="store_true", help="build it without CUDA")
    made.add_argument(
        "--with",
        dest="requires",
        metavar="REQUIREMENT",
        action="append",
        default=[],
        help="a build requirement that the project does not declare; may be repeated",
    )
    made.add_argument(
        "--import",
        dest="imports",
        metavar="NAME",
        action="append",
        default=[],
        help="what is imported to try the wheel; may be repeated (default: all it installs)",
    )
    made.add_argument("--max-size", type=int, default=100, help="limit in MiB (default: 100)")
    made.add_argument("--no-launcher", action="store_true", help="compile without sccache")


def _check(made: argparse.ArgumentParser) -> None:
    made.add_argument("wheel", type=Path, nargs="+")
    made.add_argument("--max-size", type=int, default=64, help="limit in MiB (default: 64)")


def _smoke(made: argparse.ArgumentParser) -> None:
    _with_matrix(made)
    made.add_argument("wheel", type=Path)
    made.add_argument("--here", action="store_true", help="use this Python's own torch; no network")
    made.add_argument("--tests", type=Path, help="folder of smoke tests (default: the matrix's)")
    made.add_argument("--torch", help="torch release of the environment (default: the matrix's)")
    made.add_argument("--record", type=Path, help="JSON record (default: dist/smoke/WHEEL.json)")
    made.add_argument("--junit", type=Path, help="JUnit file (default: beside the record)")


def _compat(made: argparse.ArgumentParser) -> None:
    _with_matrix(made)
    made.add_argument("wheel", type=Path)
    made.add_argument(
        "--torch", action="append", help="a release; may be repeated (default: those of the matrix)"
    )
    made.add_argument(
        "--record", type=Path, default=Path("dist", "compat.json"), help="default: dist/compat.json"
    )


def _assemble(made: argparse.ArgumentParser) -> None:
    _with_matrix(made)
    made.add_argument("folder", type=Path, nargs="+", help="wheels and records, or folders of them")
    made.add_argument(
        "--selection",
        action="append",
        help="selection, variant id or pattern that must be there; may be repeated "
        "(default: release)",
    )
    made.add_argument("--version", help="the release, e.g. 1.0.0 or the tag v1.0.0")
    made.add_argument("--earlier", type=Path, help="folder of earlier releases, for the index")
    made.add_argument(
        "--out", type=Path, default=Path("dist", "release"), help="default: dist/release"
    )


def _index(made: argparse.ArgumentParser) -> None:
    made.add_argument("folder", type=Path, nargs="?", default=Path("dist/index"))
    made.add_argument("--port", type=int, default=8000)


def _toolkit(made: argparse.ArgumentParser) -> None:
    _with_matrix(made)
    made.add_argument("name", help="a toolkit of the matrix, e.g. cu130")


def _cache(made: argparse.ArgumentParser) -> None:
    actions = made.add_subparsers(required=True, metavar="ACTION", dest="action")
    shown = "Print the libraries built just in time, each one checked."
    actions.add_parser("list", help=shown, description=shown)
    removed = "Remove libraries and work folders: corrupt ones, and those that are too much."
    prune = actions.add_parser("prune", help=removed, description=removed)
    what = prune.add_mutually_exclusive_group()
    what.add_argument("--older-than", metavar="AGE", help='last used longer ago, e.g. "30d"')
    what.add_argument("--all", dest="everything", action="store_true", help="all of them")
    prune.add_argument(
        "--max-size",
        metavar="SIZE",
        help='what may stay, e.g. "500M" (default: TORCHWHEEL_CACHE_SIZE, else 2G)',
    )


def _doctor(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "package", nargs="*", help="distribution or module (default: those that torchwheel made)"
    )
    made.add_argument("--json", action="store_true", help="print it as JSON")
    made.add_argument(
        "--seconds", type=_count, default=120, help="time limit of an import (default: 120)"
    )


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least 1 expected")
    return int(text)


def _jit(made: argparse.ArgumentParser) -> None:
    made.add_argument("package", help="the extension's package, e.g. fusedops")


def _new(made: argparse.ArgumentParser) -> None:
    made.add_argument("name", help='the project\'s name, e.g. "my-kernels"')
    made.add_argument(
        "--folder", type=Path, default=Path(), help="where its folder is made (default: here)"
    )


_COMMANDS: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "matrix": ("Print the variants of the matrix.", _matrix),
    "wheels": ("Build, repair, check, smoke-test and index wheels.", _wheels),
    "images": ("Build the container images that variants need.", _images),
    "base-images": ("Make the base images here, with mmdebstrap.", _images),
    "build": ("Build a wheel of any extension for one torch, and prove it.", _build),
    "check": ("Hold wheels against their claims: the gates.", _check),
    "smoke": ("Install a wheel in a clean environment and try it out.", _smoke),
    "compat": ("Try a wheel with every torch that it claims.", _compat),
    "assemble": ("Verify the artifacts of a release; write it as one folder.", _assemble),
    "index": ("Serve an index on loopback.", _index),
    "toolkit": ("Provision and verify a toolkit; print its CUDA_HOME.", _toolkit),
    "doctor": ("Explain what packages here run on, and what mends them.", _doctor),
    "new": ("Start an extension: a kernel, tests, matrix, sessions, workflow.", _new),
    "jit": ("Build now what an extension would build at its first call.", _jit),
    "cache": ("List or prune the libraries built just in time.", _cache),
}
