"""Makes programs for tests: shell scripts that say or do one thing."""

from pathlib import Path


def program(path: Path, *lines: str) -> Path:
    """A shell script of these lines at `path`; without any it succeeds and says nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path
