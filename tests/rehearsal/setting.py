"""What a rehearsal needs: a repository with a tag, runners, a forge and a package index."""

import contextlib
import copy
import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rehearsal.executor import Executor, git
from rehearsal.forge import SIGNER, Forge
from rehearsal.forge_server import serving_forge
from rehearsal.pypi import index_server
from rehearsal.runs import BRANCH, Event, Machine
from rehearsal.sources import ROOT, Form, set_version, write_sources

HERE = Path(__file__).parent
RELEASE = ".github/workflows/release.yml"
STAND_INS = ("actions.py", "client.py", "gh.py")


@dataclasses.dataclass(frozen=True)
class Setting:
    """All that a rehearsal works with."""

    executor: Executor
    forge: Forge
    pypi: str
    packages: Path
    root: Path

    def commit(self, version: str) -> str:
        """Commit a version of the sources and push it; returns the commit."""
        work = self.root / "seed"
        set_version(work, version)
        commit = _commit(work, f"Release {version}")
        git(work, "push", "--quiet", "origin", BRANCH)
        git(self.executor.tree, "fetch", "--quiet", "origin", commit)
        git(self.executor.tree, "checkout", "--quiet", "--detach", commit)
        _give(self.executor.source, self.executor.machine.user)
        return commit

    def tag(self, version: str) -> Event:
        """Commit a version of the sources, push its tag; returns the event of that push."""
        commit = self.forge.tags[f"v{version}"] = self.commit(version)
        git(self.root / "seed", "tag", f"v{version}")
        git(self.root / "seed", "push", "--quiet", "origin", f"v{version}")
        _give(self.executor.source, self.executor.machine.user)
        return Event("push", f"refs/tags/v{version}", commit)

    def public_files(self) -> dict[str, Path]:
        """Everything that is public, by a name that tells where it is."""
        files = {f"asset {tag} {name}": path for tag, name, path in self.forge.published()}
        if self.forge.pages.exists():
            for path in sorted(p for p in self.forge.pages.rglob("*") if p.is_file()):
                files[f"page {path.relative_to(self.forge.pages)}"] = path
        return files | {f"pypi {path.name}": path for path in sorted(self.packages.iterdir())}

    def public(self) -> dict[str, str]:
        """The sha256 of everything that is public."""
        files = self.public_files().items()
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files}

    def save(self) -> Callable[[], None]:
        """Returns what makes the public as it is now: takes back the releases in between."""
        pages = Path(tempfile.mkdtemp(dir=self.root)) / "pages"
        shutil.copytree(self.forge.pages, pages)
        releases = copy.deepcopy(self.forge.releases)
        packages = set(self.packages.iterdir())

        def restore() -> None:
            shutil.rmtree(self.forge.pages)
            shutil.copytree(pages, self.forge.pages)
            self.forge.releases[:] = releases
            for path in set(self.packages.iterdir()) - packages:
                path.unlink()

        return restore


@contextlib.contextmanager
def setting(root: Path, form: Form, variables: Mapping[str, str]) -> Iterator[Setting]:
    """Make all of it in the folder `root`, which must be empty, and end its servers."""
    root.chmod(0o755)
    (root / "stand-ins").mkdir()
    for name in STAND_INS:
        shutil.copy(HERE / name, root / "stand-ins")
    (root / "bin").mkdir()
    gh = root / "bin" / "gh"
    gh.write_text(f'#!/bin/sh\nexec /usr/bin/python3 {root}/stand-ins/gh.py "$@"\n')
    gh.chmod(0o755)
    packages = root / "packages"
    packages.mkdir()
    _seed(root, form)
    forge = Forge(root / "forge", f"owner/{form.project}", {})
    forge.root.mkdir()
    trust = _trust(root)
    python = _python_with_twine(root, form.user)
    machine = Machine(root, form.user, {**variables, **trust}, form.clean, python)
    with serving_forge(forge), index_server(packages, forge) as pypi:
        # Where pip looks, beside the indexes of this machine.
        extra = " ".join([*_extra_indexes(), f"{pypi}/simple/"])
        machine = dataclasses.replace(
            machine, variables={**machine.variables, "PIP_EXTRA_INDEX_URL": extra}
        )
        executor = Executor(forge, root / "source.git", root / "tree", machine, pypi)
        forge.dispatch = executor.dispatch
        yield Setting(executor, forge, pypi, packages, root)


def _seed(root: Path, form: Form) -> None:
    """A repository with the sources of the form."""
    seed = root / "seed"
    write_sources(seed, form)
    subprocess.run(["git", "init", "--quiet", "--bare", str(root / "source.git")], check=True)
    git(seed, "init", "--quiet", f"--initial-branch={BRANCH}")
    git(seed, "remote", "add", "origin", str(root / "source.git"))
    _commit(seed, "Begin")
    git(seed, "push", "--quiet", "origin", BRANCH)
    subprocess.run(
        ["git", "clone", "--quiet", str(root / "source.git"), str(root / "tree"), "-b", BRANCH],
        check=True,
    )
    _give(root / "source.git", form.user)


def _python_with_twine(root: Path, user: int | None) -> str:
    """A Python that the jobs' user may run: this one may lie in a home that is closed to it."""
    if user is None:
        return sys.executable
    folder = root / "twine"
    subprocess.run(["/usr/bin/python3", "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    command = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*command, "twine"], check=True)
    return python


def _trust(root: Path) -> dict[str, str]:
    """Make a root of trust that signs for the forge; returns the variable that names it."""
    command = [sys.executable, str(SIGNER), "--root", str(root / "forge" / "trust"), "trust"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    shutil.copy(done.stdout.strip(), root / "trusted_root.json")
    (root / "trusted_root.json").chmod(0o644)
    return {"TORCHWHEEL_TRUSTED_ROOT": str(root / "trusted_root.json")}


def _extra_indexes() -> list[str]:
    command = [sys.executable, "-m", "pip", "config", "get", "global.extra-index-url"]
    named = os.environ.get("PIP_EXTRA_INDEX_URL")
    if named is None:
        named = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    return named.split()


def _commit(folder: Path, text: str) -> str:
    git(folder, "add", "--all", "--force")
    who = ("-c", "user.name=rehearsal", "-c", "user.email=rehearsal@localhost")
    git(folder, *who, "commit", "--quiet", "--allow-empty", "-m", text)
    return git(folder, "rev-parse", "HEAD")


def _give(folder: Path, user: int | None) -> None:
    """git reads a repository of the same user alone."""
    if user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user)
