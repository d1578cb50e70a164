"""The sources that are released: this repository's, an adopted project's or a new one's."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import yaml

from checkout import python_path
from rehearsal.executor import git

ROOT = Path(__file__).parents[2]
PLUS = ROOT / "tests" / "containers" / "plus"
"""An extension as its author wrote it."""
NAMES = {"ours": "fusedops", "adopt": "plus", "new": "my-kernels"}
"""The project's name, by who wrote its workflows."""
_VERSION = re.compile(r'^(\s*version ?= ?)".*?"', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Form:
    """What of a release is rehearsed.

    Attributes:
        variants: the variants of the release.
        archs: the arch list of every CUDA toolkit.
        clean: whether each job starts with an empty home.
        user: the user of the jobs; None for the one that runs this.
        smoke: the smoke tests that are run; empty for those of the matrix.
        origin: who wrote the workflows: we, `torchwheel adopt` or `torchwheel new`.
    """

    variants: tuple[str, ...]
    archs: tuple[str, ...] = ("9.0+PTX",)
    clean: bool = True
    user: int | None = None
    smoke: tuple[str, ...] = ()
    origin: Literal["ours", "adopt", "new"] = "ours"

    @property
    def project(self) -> str:
        """The name of its repository."""
        return NAMES[self.origin]


def write_sources(seed: Path, form: Form) -> None:
    """Write the sources, with a matrix of the form's variants, into a folder."""
    {"ours": _copy, "adopt": _adopt, "new": _begin}[form.origin](seed)
    if form.smoke:
        for path in (seed / "tests" / "smoke").glob("test_*.py"):
            if path.name not in form.smoke:
                path.unlink()
    matrix = yaml.safe_load((seed / "matrix.yaml").read_text(encoding="utf-8"))
    (seed / "matrix.yaml").write_text(yaml.safe_dump(narrowed(matrix, form), sort_keys=False))


def _copy(seed: Path) -> None:
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (seed / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, seed / name)


def _adopt(seed: Path) -> None:
    shutil.copytree(PLUS, seed, ignore=shutil.ignore_patterns("matrix.yaml", "__pycache__"))
    _torchwheel(seed, "adopt", ".", "--vendor")


def _begin(seed: Path) -> None:
    _torchwheel(seed.parent, "new", NAMES["new"])
    (seed.parent / NAMES["new"]).rename(seed)


def _torchwheel(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "torchwheel", *arguments]
    environ = {**os.environ, "PYTHONPATH": python_path()}
    subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True)


def narrowed(matrix: dict[str, Any], form: Form) -> dict[str, Any]:
    """The matrix with fewer variants and archs, for machines without a GPU."""
    toolkits = {
        name: {**about, "archs": list(form.archs)} if about["backend"] == "cuda" else about
        for name, about in matrix["toolkits"].items()
    }
    runners = {
        platform: {k: v for k, v in machines.items() if k not in ("cuda", "rocm")}
        for platform, machines in matrix["runners"].items()
    }
    first = form.variants[0]
    chosen = {"release": list(form.variants), "pull-request": [first]}
    changed: dict[str, Any] = {"toolkits": toolkits, "runners": runners}
    if form.origin == "adopt":
        # What `adopt` wrote is for the newest torches, which an index need not have yet.
        chosen["default"] = [first]
        changed["torch"] = _torches(form.variants)
    elif form.origin == "ours":
        without_gpu = list(form.smoke or matrix["smoke"]["without_gpu"])
        changed["smoke"] = {**matrix["smoke"], "without_gpu": without_gpu}
    return {**matrix, **changed, "selections": {**matrix["selections"], **chosen}}


def _torches(variants: tuple[str, ...]) -> dict[str, Any]:
    """The section `torch` for variants such as cu130-torch2.13-cp311."""
    torches: dict[str, Any] = {}
    for toolkit, torch, python in (variant.split("-") for variant in variants):
        pythons = [f"3.{python.removeprefix('cp3')}"]
        torches[torch.removeprefix("torch")] = {"toolkits": [toolkit], "pythons": pythons}
    return torches


def set_version(folder: Path, version: str) -> None:
    """Change the version of the project in a folder."""
    file = folder / "pyproject.toml"
    if not file.exists():
        file = folder / "setup.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(_VERSION.sub(rf'\g<1>"{version}"', text, count=1), encoding="utf-8")
