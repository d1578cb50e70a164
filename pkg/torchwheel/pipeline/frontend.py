"""Builds a wheel through PEP 517, so that any ordinary project can be built."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import build
import pyproject_hooks

from torchwheel.errors import UsageError, program_error


def path_with_scripts(environ: Mapping[str, str], python: str = sys.executable) -> str:
    """PATH of `environ`, the scripts beside `python` first."""
    return os.pathsep.join([str(Path(python).parent), environ.get("PATH", os.defpath)])


def find_launcher() -> tuple[str, ...]:
    """What is put before a compiler so that its work is remembered: sccache, where it is."""
    found = shutil.which("sccache")
    return (found,) if found else ()


_NAMED = re.compile(r"(torchwheel: |error: |E   |\w*Error: )")
# Lines that name an error and say no more than that a compiler ended badly.
_BARE = re.compile(r"error: command .* failed|RuntimeError: Error compiling objects")
_COMPILER = re.compile(
    r"\S[^:(]*[:(]\d+[^ ]* (fatal )?error\b|nvcc (fatal|error)|ptxas .*(fatal|error)|\S*/ld: "
)


def failure_reason(log: Path, otherwise: str) -> str:
    """The last line of `log` that names an error, else `otherwise`.

    Where that line says only that a compiler failed, it is the compiler's own first error.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    named = [line for line in lines if _NAMED.match(line)]
    if named and _BARE.match(named[-1]):
        named += [line for line in lines if _COMPILER.match(line)][:1]
    return (named[-1] if named else otherwise).removeprefix("error: ").removeprefix("torchwheel: ")


def installed_here(builder: build.ProjectBuilder) -> None:
    """Refuse a project whose build requirements the running environment lacks."""
    missing = builder.check_dependencies("wheel")
    if missing:
        names = ", ".join(" -> ".join(chain) for chain in sorted(missing))
        raise UsageError(
            f"{builder.source_dir}/pyproject.toml: build requirements not installed here: {names}; "
            "install them with pip"
        )


def build_wheel(
    source: Path,
    environ: Mapping[str, str],
    out: Path,
    log: Path,
    heard: Callable[[str], None],
    *,
    python: str = sys.executable,
    ready: Callable[[build.ProjectBuilder], None] = installed_here,
) -> Path:
    """Build the project at `source` into `out`, without isolation.

    The tree stays clean: setuptools' own folders are put aside.

    Args:
        source: folder of the project.
        environ: what is set beside the variables of this process.
        out: the folder for the wheel.
        log: the file that keeps every line the build says.
        heard: hears each of these lines as it comes.
        python: the interpreter that builds it, in its own environment.
        ready: sees to the project's build requirements in that environment.
    """
    if hasattr(pyproject_hooks, "BuildBackendWarning"):
        # For the project's author; it would stand between our lines.
        warnings.simplefilter("ignore", pyproject_hooks.BuildBackendWarning)
    with tempfile.TemporaryDirectory() as folder, log.open("w", encoding="utf-8") as written:
        scratch = Path(folder)
        (scratch / "egg").mkdir()
        config = scratch / "setup.cfg"
        config.write_text(
            f"[build]\nbuild_base = {scratch / 'build'}\n[egg_info]\negg_base = {scratch / 'egg'}\n"
        )

        def run(
            cmd: Sequence[str],
            cwd: str | None = None,
            extra_environ: Mapping[str, str] | None = None,
        ) -> None:
            merged = {**os.environ, **environ, **(extra_environ or {})}
            merged |= {"DIST_EXTRA_CONFIG": str(config), "PYTHONUNBUFFERED": "1"}
            merged["PATH"] = path_with_scripts(merged, python)
            with subprocess.Popen(
                cmd,
                cwd=cwd,
                env=merged,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process:
                for line in process.stdout or ():
                    written.write(line)
                    heard(line.strip())
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, cmd)

        try:
            builder = build.ProjectBuilder(source, python, runner=run)
            ready(builder)
            return Path(builder.build("wheel", str(out)))
        except (build.BuildException, build.BuildBackendException) as error:
            written.flush()
            raise program_error(
                f"{failure_reason(log, str(error))} (all of it in {log})"
            ) from error
