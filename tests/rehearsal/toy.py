"""A forge with a repository of a few files, for tests of how workflows run."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rehearsal.executor import Executor
from rehearsal.forge import Forge
from rehearsal.forge_server import serving_forge
from rehearsal.runs import Event, Machine
from rehearsal.setting import STAND_INS

HERE = Path(__file__).parent
UPLOAD = "actions/upload-artifact@043fb46d1a93c77aae656e7c1c64a875d1fc6a0a"
DOWNLOAD = "actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c"
PACK = "actions/upload-pages-artifact@fc324d3547104276b827a68afc52ff2a11cc49c9"
DEPLOY = "actions/deploy-pages@cd2ce8fcbc39b97be8ca5fce6e763baed58fa128"
ATTEST = "actions/attest-build-provenance@0f67c3f4856b2e3261c31976d6725780e5e4c373"
PYPI = "pypa/gh-action-pypi-publish@dc37677b2e1c63e2034f94d8a5b11f265b73ba33"
CHECKOUT = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1"


@contextlib.contextmanager
def forge_with_gh(root: Path) -> Iterator[tuple[Forge, Path]]:
    """A forge on loopback, and a folder whose `gh` talks to it."""
    (root / "stand-ins").mkdir(parents=True)
    for name in STAND_INS:
        shutil.copy(HERE / name, root / "stand-ins")
    (root / "bin").mkdir()
    gh = root / "bin" / "gh"
    gh.write_text(f'#!/bin/sh\nexec {sys.executable} {root}/stand-ins/gh.py "$@"\n')
    gh.chmod(0o755)
    forge = Forge(root / "forge", "owner/toy", {})
    forge.root.mkdir()
    with serving_forge(forge):
        yield forge, root / "bin"


@contextlib.contextmanager
def toy(root: Path, files: Mapping[str, str]) -> Iterator[tuple[Executor, Event]]:
    """An executor for a repository of `files`, and the event of a push of its tag v1.0.0."""
    with forge_with_gh(root) as (forge, _):
        tree = root / "tree"
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        who = ("-c", "user.name=toy", "-c", "user.email=toy@localhost")
        for arguments in (
            ("init", "--quiet", "--initial-branch=main"),
            ("add", "--all"),
            (*who, "commit", "--quiet", "-m", "Begin"),
            ("tag", "v1.0.0"),
        ):
            subprocess.run(("git", "-C", str(tree), *arguments), check=True)
        machine = Machine(root, None, {}, True, sys.executable)
        executor = Executor(forge, tree, tree, machine)
        forge.dispatch = executor.dispatch
        forge.tags["v1.0.0"] = executor.head
        yield executor, Event("push", "refs/tags/v1.0.0", executor.head)
