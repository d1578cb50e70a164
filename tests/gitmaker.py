"""Repositories of git for tests."""

import subprocess
from pathlib import Path


def git(folder: Path, *arguments: object) -> str:
    """Run git in a folder, as an author of no name; returns what it prints."""
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    command = ["git", *own, "-C", str(folder), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, *tags: str) -> Path:
    """A checkout with a commit of all files for each tag; an empty one gives a commit no tag.

    Any of its commits can be fetched from it.
    """
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch=main")
        git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    for tag in tags:
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", "a")
        if tag:
            git(folder, "tag", tag)
    return folder
