"""Environments to try a wheel in: a clean one, or the running one on an offline machine."""

import contextlib
import dataclasses
import hashlib
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from torchwheel.inspect.wheel import Wheel
from torchwheel.interpreters import Interpreter, running_interpreter
from torchwheel.smoke.requirements import LOCK_OPTIONS as LOCKED
from torchwheel.smoke.requirements import check_installed, find_lock, requirements
from torchwheel.toolkit.toolkit_home import set_header_times
from torchwheel_runtime import files, process
from torchwheel_runtime.console import Progress
from torchwheel_runtime.lock import LockBusyError, fail_if_busy, say_waiting
from torchwheel_runtime.ownership import check_tree, let_others_read, trusted_folder
from torchwheel_runtime.pip import pip_install
from torchwheel_runtime.toolkit.cache import hold_folder_lock
from torchwheel_runtime.variant_format import split_name

TORCH = "torch"
COMPLETE = "complete"
"""Marker file of a finished base; a venv cannot be renamed, so it is made in its own folder."""
UNUSED = 3 * 86400.0
"""Seconds after which an unused base is removed; it has a torch, which takes gigabytes."""
_FORM = "2"
"""What bases are made like; another form has other names."""
_PYTHON_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "VIRTUAL_ENV")


@dataclasses.dataclass(frozen=True)
class Environment:
    """An interpreter, all its variables, and the folder that the wheel is installed in."""

    python: Path
    environ: Mapping[str, str]
    site: Path


def default_torch(wheel: Wheel, release: str) -> str | None:
    """`release`, the default, if the wheel accepts it; None leaves the choice to the wheel."""
    asked = [r.specifier for r in requirements(wheel) if canonicalize_name(r.name) == TORCH]
    return release if all(spec.contains(release, prereleases=True) for spec in asked) else None


def base_requirements(
    wheels: Sequence[Wheel],
    torch: str | None,
    requires: Sequence[str],
    python: Interpreter | None = None,
) -> tuple[str, ...]:
    """Requirements of the wheels and of their tests, without the wheels themselves.

    torch is the release `torch`, or what the wheels require of it. `python` is the Python that
    they are installed for; the running one if not given.
    """
    required = [requirement for wheel in wheels for requirement in requirements(wheel, python)]
    of_torch = [str(r) for r in required if canonicalize_name(r.name) == TORCH]
    pinned = [f"torch=={torch}"] if torch else of_torch or [TORCH]
    excluded = {TORCH, *(wheel.name for wheel in wheels)}
    others = [str(r) for r in required if canonicalize_name(r.name) not in excluded]
    has_pytest = any(name.startswith("pytest") for name in requires)
    tools = requires if has_pytest else ("pytest", *requires)
    return tuple(sorted({*pinned, *others, *tools}))


def base_environment(
    cache: Path,
    requires: Sequence[str],
    progress: Progress,
    python: Interpreter | None = None,
    options: Sequence[str] = (),
    locks: Path | None = None,
) -> Path:
    """A cached venv with the packages `requires`, made once per Python and set of packages.

    `options` are pip's, e.g. another index. With a folder of `locks` all packages are those of the
    lock that meets `requires`, each file by its hash.

    Raises:
        UntrustedError: others could have put something into it.
        TorchwheelError: it cannot be made.
    """
    python = python or running_interpreter()
    lock = find_lock(locks, requires, python.markers) if locks else None
    folder = trusted_folder(cache / "smoke") / base_folder_name(requires, python, lock)
    if not (folder / COMPLETE).is_file():
        busy = say_waiting(progress.say, "smoke environment: another run makes it")
        with hold_folder_lock(folder, busy), files.explain_full_disk(folder):
            if not (folder / COMPLETE).is_file():
                by_hash = f", by hash ({lock.name})" if lock else ""
                progress.step(f"smoke environment: {' '.join(requires)}{by_hash}")
                if lock:
                    _make_base(folder, (), python, (*options, *LOCKED, str(lock)))
                else:
                    _make_base(folder, requires, python, options)
                _discard_unused(folder)
    check_tree(folder)
    with contextlib.suppress(OSError):  # a cache of root's, which others may read
        os.utime(folder / COMPLETE)
    return folder


def _discard_unused(made: Path) -> None:
    """Remove the bases beside `made` that nobody has used for long.

    Where others may read them, their use leaves no time behind: none is removed.
    """
    if made.parent.stat().st_mode & 0o077:
        return
    oldest = time.time() - UNUSED
    for marker in made.parent.glob(f"*/{COMPLETE}"):
        with contextlib.suppress(OSError, LockBusyError):
            if marker.stat().st_mtime < oldest:
                with hold_folder_lock(marker.parent, fail_if_busy):
                    files.discard(marker.parent)


def base_folder_name(
    requires: Sequence[str], python: Interpreter | None = None, lock: Path | None = None
) -> str:
    """The name of a base: a hash of its Python and its packages."""
    python = python or running_interpreter()
    packages = [files.sha256(lock)] if lock else [*sorted(requires), *_linked_wheels(requires)]
    key = "\n".join([_FORM, python.build, platform.machine(), *packages])
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _make_base(
    folder: Path, packages: Sequence[str], python: Interpreter, options: Sequence[str]
) -> None:
    files.discard(folder)
    program = _make_venv(folder, python)
    doing = f"cannot install {' '.join(packages or options)}"
    pip_install(program, packages, options=options, offline=False, doing=doing)
    for site in folder.glob("lib/python*/site-packages"):
        set_header_times(site)
    let_others_read(folder)
    # A power cut must not keep the marker alone.
    files.sync_tree(folder)
    files.write_text(folder / COMPLETE, "\n".join(sorted(packages or options)) + "\n")


def _linked_wheels(requires: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Names and hashes of the required wheels that lie in folders of PIP_FIND_LINKS.

    Another build of such a wheel has the same name and version, and an index has it once.
    """
    names: set[str] = set()
    for text in requires:
        with contextlib.suppress(InvalidRequirement):  # pip_install says it
            names.add(canonicalize_name(Requirement(text).name))
    folders = map(Path, environ.get("PIP_FIND_LINKS", "").split())
    return [
        f"{wheel.name} {files.sha256(wheel)}"
        for folder in folders
        for wheel in sorted(folder.glob("*.whl"))
        if canonicalize_name(wheel.name.split("-")[0]) in names
    ]


def clean_environment(
    wheels: Sequence[Wheel],
    base_folder: Path,
    temporary: Path,
    python: Interpreter | None = None,
) -> Environment:
    """A new venv over the base with the wheels; all they require is in the base, so no index."""
    env = layered_environment(base_folder, temporary / "venv", python)
    doing = f"{wheels[0].path.name} does not install beside the packages of the smoke environment"
    pip_install(env.python, _wheel_files(wheels, temporary), offline=True, doing=doing)
    return env


def layered_environment(
    base_folder: Path, folder: Path, python: Interpreter | None = None
) -> Environment:
    """A new venv in `folder` that also sees the packages of the base, which has the same Python."""
    program = _make_venv(folder, python or running_interpreter())
    site = site_of(folder)
    # addsitedir, not a bare path: the base may have .pth files of its own.
    (site / "base.pth").write_text(f"import site; site.addsitedir({str(site_of(base_folder))!r})\n")
    return Environment(program, {**clean_variables(), "PYTHONNOUSERSITE": "1"}, site)


def running_environment(
    wheels: Sequence[Wheel], packages: Sequence[str], temporary: Path
) -> Environment:
    """The running interpreter, with the wheels in a temporary folder that comes first."""
    check_installed(wheels, ("pytest",))
    target, python = temporary / "site", Path(sys.executable)
    options = ["--no-deps", "--target", str(target)]
    doing = f"{wheels[0].path.name} does not install"
    pip_install(python, _wheel_files(wheels, temporary), options=options, offline=True, doing=doing)
    folders = [Path(name) for name in os.environ.get("PYTHONPATH", "").split(os.pathsep) if name]
    # The source tree may be on PYTHONPATH, for torchwheel; the tests must not import from it.
    others = [path for path in folders if not any((path / name).exists() for name in packages)]
    path = os.pathsep.join([str(target), *(str(other.resolve()) for other in others)])
    return Environment(python, {**clean_variables(), "PYTHONPATH": path}, target)


def _wheel_files(wheels: Sequence[Wheel], temporary: Path) -> list[Path]:
    """The files, a labelled wheel by a name that pip takes."""
    found = []
    for wheel in wheels:
        path = wheel.path.resolve()
        if wheel.named.label:
            path = temporary / split_name(path.name)[0]
            path.symlink_to(wheel.path.resolve())
        found.append(path)
    return found


def clean_variables() -> dict[str, str]:
    """The variables of this process, without those that lead to its own packages."""
    return {name: value for name, value in os.environ.items() if name not in _PYTHON_VARIABLES}


def _make_venv(folder: Path, python: Interpreter) -> Path:
    done = process.run([*process.python_module(python.path, "venv"), "--without-pip", folder])
    done.require(f"cannot make a virtual environment in {folder}")
    return folder / "bin" / "python"


def site_of(folder: Path) -> Path:
    """The site-packages of a venv."""
    (site,) = folder.glob("lib/python*/site-packages")
    return site
