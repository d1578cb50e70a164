"""Makes programs for tests: shell scripts that say or do one thing, and runs of Python code."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any


def run_python(code: str, *arguments: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Python code in a process of its own, run to its end, with options of subprocess.run."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def program(path: Path, *lines: str) -> Path:
    """A shell script of these lines at `path`; without any it succeeds and says nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path
