"""Builds a wheel through PEP 517, so that any ordinary project can be built."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import build

from torchwheel.builder.ninja import is_progress
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.pipeline.log import reason
from torchwheel.pipeline.scripts import path_with_scripts


def build_wheel(
    source: Path, environ: Mapping[str, str], out: Path, log: Path, step: Callable[[str], None]
) -> Path:
    """Build the project at `source` into `out`; `step` hears which file a compiler is on.

    The tree stays clean: setuptools' own folders are put aside.
    """
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
            merged["PATH"] = path_with_scripts(merged)
            with subprocess.Popen(
                cmd,
                cwd=cwd,
                env=merged,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process:
                for line in process.stdout or ():
                    written.write(line)
                    if is_progress(line):
                        step(line.strip())
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, cmd)

        try:
            builder = build.ProjectBuilder(source, runner=run)
            missing = builder.check_dependencies("wheel")
            if missing:
                names = ", ".join(" -> ".join(chain) for chain in sorted(missing))
                raise UsageError(
                    f"{source}/pyproject.toml: build requirements not installed here: {names}; "
                    "install them with pip"
                )
            return Path(builder.build("wheel", str(out)))
        except (build.BuildException, build.BuildBackendException) as error:
            written.flush()
            raise TorchwheelError(f"{reason(log, str(error))} (all of it in {log})") from error
